//! Parses the kubeconfig of a Secret, and refuses settings that could do harm. Pure.
//!
//! In: bytes, and whether insecure connections are allowed. Out: a [`Checked`] connection to one API server, or an [`Invalid`] with the
//! field and the remedy. The author of the Secret is not trusted. No program is run, no file is read, no address of the machine itself is
//! contacted, and errors contain no value of the kubeconfig.

mod raw;
#[cfg(test)]
mod tests;

use std::fmt;

use http::Uri;
use k8s_openapi::ByteString;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use url::{Host, Url};

use super::address;
use raw::{Cluster, File, User};

/// Maximum size of a kubeconfig.
const MAX_BYTES: usize = 64 * 1024;

/// An allowed connection to one API server.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    /// URL of the API server.
    pub server: Uri,
    /// CA certificates in DER that verify the server certificate. `None`: those of the system.
    pub roots: Option<Vec<Vec<u8>>>,
    /// Whether the server certificate is not verified.
    pub any_certificate: bool,
    /// Name in the server certificate. `None`: the host of the URL.
    pub server_name: Option<String>,
    /// Credentials of the user.
    pub user: Credentials,
}

impl Checked {
    /// Returns the identity of the cluster: hashes of its address and of its CA certificates. Each of them can change alone, for example
    /// with a new host name or a new CA. See [`is_same_cluster`](relaybook_core::reading::is_same_cluster).
    pub fn identity(&self) -> String {
        let hash = |hash: Sha256| hex::encode(&hash.finalize()[..4]);
        let server = hash(Sha256::new_with_prefix(self.server.to_string()));
        let roots = self.roots.iter().map(|roots| hash(roots.iter().fold(Sha256::new(), Sha256::chain_update)));
        format!("{server}.{}", roots.collect::<String>())
    }
}

/// Whether a token can be sent in a header. The client panics on a token that cannot.
#[must_use]
pub fn is_token(token: &SecretString) -> bool {
    http::HeaderValue::from_str(token.expose_secret()).is_ok()
}

/// Credentials for an API server. All can be absent: requests are then anonymous.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    /// A bearer token.
    pub token: Option<SecretString>,
    /// User name and password.
    pub basic: Option<(String, SecretString)>,
    /// Certificate and key, both base64-encoded PEM.
    pub certificate: Option<(String, SecretString)>,
    /// The user to impersonate.
    pub act_as: Option<String>,
    /// The groups to impersonate.
    pub act_as_groups: Vec<String>,
}

/// Why a kubeconfig is refused. The message contains nothing of the kubeconfig except names of fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalid(String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Invalid {
    fn of(field: &str, words: &str) -> Self {
        Self(format!("{field} {words}"))
    }

    fn unknown_reference(field: &str, kind: &str) -> Self {
        Self(format!("{field} refers to a {kind} that the file does not contain"))
    }
}

/// Parses a kubeconfig. `insecure` is the value of `--allow-insecure-clusters`.
pub(crate) fn read(bytes: &[u8], insecure: bool) -> Result<Checked, Invalid> {
    let file = parse(bytes)?;
    let (cluster, user) = file.chosen()?;
    let server = server(cluster, insecure)?;
    let any_certificate = cluster.insecure_skip_tls_verify.unwrap_or(false);
    if any_certificate && !insecure {
        let words = "is not allowed; remove it and set certificate-authority-data to the CA certificate \
             (or run Relaybook with --allow-insecure-clusters)";
        return Err(Invalid::of("clusters[].cluster.insecure-skip-tls-verify", words));
    }
    no_file(
        "clusters[].cluster.certificate-authority",
        cluster.certificate_authority.as_ref(),
        "certificate-authority-data",
    )?;
    if cluster.proxy_url.as_ref().is_some_and(|url| !url.is_empty()) {
        return Err(Invalid::of(
            "clusters[].cluster.proxy-url",
            "is not supported; use a server that is reachable without a proxy",
        ));
    }
    let server_name = cluster.tls_server_name.clone().filter(|name| !name.is_empty());
    if server_name.as_ref().is_some_and(|name| ServerName::try_from(name.as_str()).is_err()) {
        return Err(Invalid::of("clusters[].cluster.tls-server-name", "is not a valid host name"));
    }
    let roots = cluster.certificate_authority_data.as_ref().filter(|data| !data.is_empty());
    // With CA certificates, kube would verify host names although verification is off.
    let roots = roots.filter(|_| !any_certificate).map(|data| authorities(data)).transpose()?;
    Ok(Checked { server, roots, any_certificate, server_name, user: credentials(user)? })
}

fn parse(bytes: &[u8]) -> Result<File, Invalid> {
    if bytes.len() > MAX_BYTES {
        return Err(Invalid(format!("the kubeconfig is larger than {} KiB", MAX_BYTES / 1024)));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return Err(Invalid("the kubeconfig is not UTF-8 text".to_owned())) };
    let options = serde_saphyr::options! {
        with_snippet: false,
        budget: serde_saphyr::budget! {
            max_depth: 32,
            max_documents: 1,
            max_nodes: 10_000,
            max_events: 50_000,
            max_aliases: 16,
            max_anchors: 16,
            max_merge_keys: 16,
            max_total_scalar_bytes: 2 * MAX_BYTES,
        },
    };
    // The message of the parser may contain the text that it could not parse.
    serde_saphyr::from_str_with_options(text, options).map_err(|error| match error.location() {
        Some(at) => Invalid(format!("the kubeconfig cannot be read, at line {}, column {}", at.line(), at.column())),
        None => Invalid("the kubeconfig cannot be read: it is not valid YAML, or exceeds a size limit".to_owned()),
    })
}

impl File {
    /// Returns the cluster and the user of the current context.
    fn chosen(&self) -> Result<(&Cluster, &User), Invalid> {
        let context = match self.current_context.as_deref().filter(|name| !name.is_empty()) {
            Some(current) => self.contexts().find(|c| c.name == current),
            None => match &self.contexts.as_deref().unwrap_or_default() {
                [one] => Some(one),
                [] => return Err(Invalid::of("contexts", "are missing; this is not a kubeconfig")),
                _ => return Err(Invalid::of("current-context", "is missing; set it to one of the contexts")),
            },
        };
        let context = context.ok_or_else(|| Invalid::unknown_reference("current-context", "context"))?;
        let named = context.context.as_ref().ok_or_else(|| Invalid::of("contexts[].context", "is missing"))?;
        let cluster = self.clusters.iter().flatten().find(|c| c.name == named.cluster).and_then(|c| c.cluster.as_ref());
        let cluster = cluster.ok_or_else(|| Invalid::unknown_reference("contexts[].context.cluster", "cluster"))?;
        let user = self.users.iter().flatten().find(|u| Some(&u.name) == named.user.as_ref()).and_then(|u| u.user.as_ref());
        let user = user.ok_or_else(|| Invalid::unknown_reference("contexts[].context.user", "user"))?;
        Ok((cluster, user))
    }

    fn contexts(&self) -> impl Iterator<Item = &raw::NamedContext> {
        self.contexts.iter().flatten()
    }
}

/// Returns the URL of the API server.
fn server(cluster: &Cluster, insecure: bool) -> Result<Uri, Invalid> {
    let invalid = |words| Invalid::of("clusters[].cluster.server", words);
    let text = cluster.server.as_deref().filter(|s| !s.is_empty()).ok_or_else(|| invalid("is missing"))?;
    let url = Url::parse(text).map_err(|_| invalid("is not a URL such as https://HOST:6443"))?;
    match url.scheme() {
        "https" => {}
        "http" if insecure => {}
        "http" => return Err(invalid("must begin with https:// (or run Relaybook with --allow-insecure-clusters)")),
        _ => return Err(invalid("must begin with https://")),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid("must not contain a user or a password; set them in users[].user"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(invalid("must not have a query or a fragment"));
    }
    if url.host().is_none_or(|host| is_refused(&host)) {
        return Err(invalid(
            "is not allowed as the address of an API server: link-local, multicast, unspecified, or of a metadata service",
        ));
    }
    url.as_str().parse().map_err(|_| invalid("is not a URL such as https://HOST:6443"))
}

/// Names that refer to the machine's own environment. Other names are checked when they are resolved.
fn is_refused(host: &Host<&str>) -> bool {
    match *host {
        Host::Domain(name) => matches!(name.trim_end_matches('.'), "metadata.google.internal" | "metadata"),
        Host::Ipv4(ip) => address::is_refused(ip.into()),
        Host::Ipv6(ip) => address::is_refused(ip.into()),
    }
}

fn no_file(field: &str, path: Option<&String>, instead: &str) -> Result<(), Invalid> {
    match path {
        Some(path) if !path.is_empty() => {
            Err(Invalid::of(field, &format!("refers to a file, which is not supported; put the content into {instead}")))
        }
        _ => Ok(()),
    }
}

fn credentials(user: &User) -> Result<Credentials, Invalid> {
    for (field, given) in [("exec", user.exec.is_some()), ("auth-provider", user.auth_provider.is_some())] {
        if given {
            let words = "runs a program, which is not allowed; use a token, or client-certificate-data and client-key-data";
            return Err(Invalid::of(&format!("users[].user.{field}"), words));
        }
    }
    // If these fields were ignored, the requests would have another identity.
    for (field, given) in [("as-uid", user.as_uid.is_some()), ("as-user-extra", user.as_user_extra.is_some())] {
        if given {
            return Err(Invalid::of(&format!("users[].user.{field}"), "is not supported; use as and as-groups"));
        }
    }
    no_file("users[].user.tokenFile", user.token_file.as_ref(), "token")?;
    no_file("users[].user.client-certificate", user.client_certificate.as_ref(), "client-certificate-data")?;
    no_file("users[].user.client-key", user.client_key.as_ref(), "client-key-data")?;
    let token = user.token.clone().filter(|token| !token.expose_secret().is_empty());
    let groups = user.act_as_groups.clone().unwrap_or_default();
    let visible = |text: &str| text.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
    for (field, fits) in [
        ("token", token.as_ref().is_none_or(|t| visible(t.expose_secret()))),
        ("as", user.act_as.as_ref().is_none_or(|name| visible(name))),
        ("as-groups", groups.iter().all(|name| visible(name))),
    ] {
        if !fits {
            let words = "has characters that are not allowed, for example a line break at the end";
            return Err(Invalid::of(&format!("users[].user.{field}"), words));
        }
    }
    let basic = user.username.clone().filter(|name| !name.is_empty()).zip(user.password.clone());
    // kube uses one of the two. Kubernetes itself prefers the token.
    let basic = basic.filter(|_| token.is_none());
    let act_as = user.act_as.clone().filter(|name| !name.is_empty());
    Ok(Credentials { token, basic, certificate: certificate(user)?, act_as, act_as_groups: groups })
}

fn certificate(user: &User) -> Result<Option<(String, SecretString)>, Invalid> {
    let certificate = user.client_certificate_data.as_ref().filter(|data| !data.is_empty());
    let key = user.client_key_data.as_ref().filter(|data| !data.expose_secret().is_empty());
    let (certificate, key) = match (certificate, key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (None, Some(_)) => return Err(Invalid::of("users[].user.client-certificate-data", "is missing; the key is set")),
        (Some(_), None) => return Err(Invalid::of("users[].user.client-key-data", "is missing; the certificate is set")),
    };
    let pem = decoded(certificate).and_then(|pem| CertificateDer::from_pem_slice(&pem).ok());
    pem.ok_or_else(|| Invalid::of("users[].user.client-certificate-data", "is not a certificate as PEM in base64"))?;
    let pem = decoded(key.expose_secret()).and_then(|pem| PrivateKeyDer::from_pem_slice(&pem).ok());
    pem.ok_or_else(|| Invalid::of("users[].user.client-key-data", "is not a private key as PEM in base64"))?;
    Ok(Some((certificate.clone(), key.clone())))
}

fn authorities(data: &str) -> Result<Vec<Vec<u8>>, Invalid> {
    let invalid =
        || Invalid::of("clusters[].cluster.certificate-authority-data", "is not a list of certificates as PEM in base64");
    let pem = decoded(data).ok_or_else(invalid)?;
    let all = CertificateDer::pem_slice_iter(&pem).map(|one| one.map(|der| der.to_vec()));
    let all: Vec<Vec<u8>> = all.collect::<Result<_, _>>().map_err(|_| invalid())?;
    if all.is_empty() { Err(invalid()) } else { Ok(all) }
}

fn decoded(base64: &str) -> Option<Vec<u8>> {
    serde_json::from_value::<ByteString>(base64.into()).ok().map(|bytes| bytes.0)
}
