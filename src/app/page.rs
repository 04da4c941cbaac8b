//! The audit page: for everybody with a token of the cluster, and for the person who runs `relaybook page`.

use std::net::{Ipv4Addr, SocketAddr};

use futures::future;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use super::process::Process;
use super::signals::Signals;
use super::{Access, AppError, Part, listen};
use crate::http;
use relaybook_page::{Own, Page, Seal, SealError, Settings, Tokens};
use relaybook_tools::preview::Egress;

/// Listens on `address`. The page has a client without credentials, so it has only the permissions of the tokens that it is given.
pub(super) async fn start(process: &Process, address: SocketAddr) -> Result<Part, AppError> {
    let Process { options, access, stop, .. } = process;
    let (listener, address) = listen(address)?;
    tracing::info!(%address, "serving the audit page");
    let texts = |all: &[ipnet::IpNet]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    let settings = Settings {
        cluster_name: options.cluster_name.clone(),
        place: options.cluster_name.clone(),
        config_map: options.global(),
        allow_http: options.allow_http,
        egress: Egress::new(&texts(&options.allow_destinations), &texts(&options.deny_destinations)),
        actions: options.page.actions,
        flags: String::new(),
        url: options.page.url.clone(),
    };
    let seal = match &options.page.key {
        Some(key) => Seal::from_secret(key)?,
        None => Seal::of_process()?,
    };
    let page = Page::public(Tokens::new(access.anonymous().await?, seal), settings);
    let mut part = Part::default();
    part.spawn("serving the audit page", http::serve_page(listener, page, stop.clone()));
    Ok(part)
}

/// Serves the page on the loopback address for the person with this access, until SIGTERM or SIGINT. `begun` is called with the address,
/// which contains a part that can be used once.
///
/// # Errors
/// [`AppError::Listen`] if the port is in use, and the errors of [`Access::client`].
pub async fn page(
    access: &Access,
    port: u16,
    settings: Settings,
    begun: impl FnOnce(&SecretString),
) -> Result<(), AppError> {
    use secrecy::ExposeSecret as _;
    let stop = CancellationToken::new();
    let mut signals = Signals::new()?;
    let (listener, bound) = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    let own = Own::new(access.client().await?, bound.port())?;
    let first = SecretString::from(format!("http://{bound}{}", own.first_path().expose_secret()));
    let page = Page::own(own, bound.port(), settings)?;
    begun(&first);
    let serving = std::pin::pin!(http::serve_page(listener, page, stop.clone()));
    match future::select(std::pin::pin!(signals.next()), serving).await {
        future::Either::Left((_, serving)) => {
            stop.cancel();
            serving.await;
        }
        future::Either::Right(_) => {}
    }
    Ok(())
}

impl From<SealError> for AppError {
    fn from(error: SealError) -> Self {
        Self::Page(error)
    }
}
