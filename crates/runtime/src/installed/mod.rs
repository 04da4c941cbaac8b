//! Whether the installed CRDs are those of this version.
//!
//! In: the schemas that the API server publishes, which every account can read
//! ([OpenAPI v3](https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-v3)).
//! Out: [`fits`] returns once the CRDs [`fit`]. Until then, log lines report what is missing and how to fix it.
//!
//! The API server drops a field that the CRDs do not declare, such as a cursor or the settled state, and returns no error. So a version
//! that is newer than the CRDs does not start its controllers, and the previous version, which fits the CRDs, continues. A rollback can
//! also install older CRDs while a version is running. So the process checks them periodically, and exits when they no longer fit.
//!
//! An older CRD of Deliveries has a status subresource. With it, the API server also drops the status from a create or a patch of a
//! Delivery, and returns no error.

pub mod acting;
pub mod fit;

use std::time::Duration;

use http::header::{ACCEPT, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{Request, StatusCode};
use kube::client::Body;
use kube::{Client, Resource as _};
use tokio::time::timeout;

use fit::{Published, missing};
use relaybook_api::Pipeline;
use relaybook_telemetry::chain;

/// Interval between checks until the CRDs fit.
const AGAIN: Duration = Duration::from_secs(2);
/// Interval between checks once the CRDs fit. An unchanged answer costs almost nothing.
const NOW_AND_THEN: Duration = Duration::from_secs(15);
/// Timeout of one check. The next check follows after the usual interval.
const DEADLINE: Duration = Duration::from_secs(5);
/// Number of consecutive 403 answers after which the check is skipped: half a minute in total. Fewer answers prove nothing, because an API
/// server that is starting refuses all callers.
const REFUSALS: u32 = 15;
/// Maximum number of missing fields in a message.
const NAMED: usize = 5;
/// The command that installs the CRDs of this version.
pub const INSTALL: &str = "relaybook crds | kubectl apply --server-side --force-conflicts -f -";

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CrdState {
    /// The CRDs have all fields that this version needs.
    Match,
    /// The process is not allowed to read the schemas. After 15 consecutive answers of this kind it continues without a check.
    Forbidden,
    /// Fields are missing; with a human-readable message.
    Outdated(String),
    /// The CRDs of some kinds are missing, and the other CRDs fit; with a human-readable message.
    Missing(String),
    /// The API server did not answer with its schemas; with the reason.
    Unknown(String),
}

/// Waits until the CRDs fit. Logs a problem when it first occurs, and when it changes. Returns the value that continues the checks.
pub async fn fits(client: &Client) -> CrdChecker {
    let (mut checker, mut logged, mut refused) = (CrdChecker::new(client), CrdState::Match, 0);
    loop {
        let found = checker.check().await;
        if found != logged {
            match &found {
                CrdState::Match => {}
                CrdState::Forbidden => {
                    tracing::warn!("no permission to read the schemas of the API server, so the CRDs cannot be checked");
                }
                CrdState::Outdated(words) | CrdState::Missing(words) => {
                    tracing::error!("controllers are not started: {words}");
                }
                CrdState::Unknown(error) => {
                    tracing::warn!(error, "could not read the schemas of the API server; retrying");
                }
            }
        }
        refused = if found == CrdState::Forbidden { refused + 1 } else { 0 };
        if found == CrdState::Match || refused == REFUSALS {
            return checker;
        }
        logged = found;
        tokio::time::sleep(AGAIN).await;
    }
}

/// A repeated check. It reads an answer only if the answer has changed.
pub struct CrdChecker {
    client: Client,
    /// The `ETag` of the last answer, and its result.
    last: Option<(HeaderValue, CrdState)>,
}

impl CrdChecker {
    /// Creates the state without a check.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone(), last: None }
    }

    /// Waits until the CRDs no longer fit, and returns a message. A missing CRD does not count: no object of its kind can be written, so
    /// nothing is lost until the CRD is installed again.
    pub async fn misfit(mut self) -> String {
        let mut doubt = false;
        loop {
            tokio::time::sleep(NOW_AND_THEN).await;
            match self.check().await {
                // Two failed checks are required, because one of several API servers may still publish the CRDs from before an upgrade.
                CrdState::Outdated(words) if doubt => return words,
                found => doubt = matches!(found, CrdState::Outdated(_)),
            }
        }
    }

    /// Checks once.
    pub async fn check(&mut self) -> CrdState {
        let slow = || Err(kube::Error::Service("no answer in time".into()));
        timeout(DEADLINE, self.fetch()).await.unwrap_or_else(|_| slow()).unwrap_or_else(|e| CrdState::Unknown(chain(&e)))
    }

    async fn fetch(&mut self) -> kube::Result<CrdState> {
        let path = format!("/openapi/v3/apis/{}/{}", Pipeline::group(&()), Pipeline::version(&()));
        let mut request = Request::get(path).header(ACCEPT, "application/json");
        if let Some((mark, _)) = &self.last {
            request = request.header(IF_NONE_MATCH, mark);
        }
        let request = request.body(Body::empty()).map_err(kube::Error::HttpError)?;
        let answer = self.client.send(request).await?;
        let mark = answer.headers().get(ETAG).cloned();
        match answer.status() {
            StatusCode::OK => {
                let published = answer.into_body().collect_bytes().await?;
                let found = apart(move || {
                    let published = serde_json::from_slice(&published).map_err(kube::Error::SerdeError)?;
                    Ok(classify(&missing(&relaybook_api::crds(), &published)))
                });
                let found = found.await?;
                self.last = mark.map(|mark| (mark, found.clone()));
                Ok(found)
            }
            StatusCode::NOT_MODIFIED => {
                let unknown = || CrdState::Unknown("the API server answered 304 to a request without an ETag".to_owned());
                Ok(self.last.as_ref().map_or_else(unknown, |(_, found)| found.clone()))
            }
            StatusCode::NOT_FOUND => apart(|| Ok(classify(&missing(&relaybook_api::crds(), &Published::default())))).await,
            StatusCode::FORBIDDEN => Ok(CrdState::Forbidden),
            other => Ok(CrdState::Unknown(format!("the API server answers {other}"))),
        }
    }
}

/// Compares in a thread of its own. The schemas need some MiB for a moment. The allocator can reuse what a thread leaves when it ends. What a
/// thread of the runtime has used stays with that thread.
async fn apart(compare: impl FnOnce() -> kube::Result<CrdState> + Send + 'static) -> kube::Result<CrdState> {
    let (done, found) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("crds".to_owned());
    if let Err(error) = thread.spawn(move || done.send(compare())) {
        return Ok(CrdState::Unknown(format!("no thread for the comparison: {error}")));
    }
    found.await.unwrap_or_else(|_| Ok(CrdState::Unknown("the comparison ended early".to_owned())))
}

fn classify(missing: &[String]) -> CrdState {
    let (named, more) = missing.split_at(missing.len().min(NAMED));
    if named.is_empty() {
        return CrdState::Match;
    }
    // A missing field has a path. A missing kind has only its name.
    let found = if missing.iter().any(|lost| lost.contains('.')) { CrdState::Outdated } else { CrdState::Missing };
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    found(format!(
        "the installed CRDs are not those of version {}; missing: {}{more}. Install them with `{INSTALL}`; Relaybook then continues \
         automatically",
        env!("CARGO_PKG_VERSION"),
        named.join(", "),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_bounded_and_has_a_remedy() {
        assert_eq!(classify(&[]), CrdState::Match);
        let many: Vec<String> = (0..9).map(|n| format!("K.f{n}")).collect();
        let CrdState::Outdated(words) = classify(&many) else { panic!("it does not fit") };
        assert!(words.contains("K.f0, K.f1, K.f2, K.f3, K.f4 and 4 more") && words.contains("kubectl apply"), "{words}");
    }

    #[test]
    fn a_missing_kind_is_not_treated_as_a_missing_field() {
        let judged = |missing: &[&str]| classify(&missing.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(matches!(judged(&["Pipeline", "Delivery"]), CrdState::Missing(_)));
        assert!(matches!(judged(&["Promotion"]), CrdState::Missing(_)));
        assert!(matches!(judged(&["Pipeline.status.settled"]), CrdState::Outdated(_)));
        assert!(matches!(judged(&["Pipeline", "Delivery.spec.to"]), CrdState::Outdated(_)));
        assert!(matches!(
            judged(&["Delivery.status in the object itself (it is still a subresource)"]),
            CrdState::Outdated(_)
        ));
    }
}
