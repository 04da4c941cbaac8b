//! The credentials of a request, how it is signed, and which receivers it trusts.
//!
//! In: `endpoint.auth`, `endpoint.signing` and `endpoint.tls` of the merged layers, and which layer set them. Out: references to Secrets. No
//! Secret is read here.

use std::str::FromStr as _;
use std::sync::Arc;

use globset::Glob;
use http::HeaderName;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use url::Url;

use super::given::{Given, Places};
use super::template::{self, Chosen};
use crate::config::problem::Problem;
use crate::render::origin_of;
use relaybook_api::ObjectName;
use relaybook_api::notification as spec;
use relaybook_api::notification::credentials::{
    AuthRef, Authorities, GithubAppRef, OAuth2Ref, SecretKey, SignatureForm, SigningRef, TlsRef, WorkloadRef,
};
use relaybook_api::values::refs::{ConfigMapKey, SecretKeyRef, is_service};

/// Returns the credentials by reference.
pub(super) fn auth(
    auth: &spec::Auth,
    endpoint: &spec::Endpoint,
    chosen: &Chosen,
    places: &Places<'_>,
    given: &Given<'_>,
) -> Result<Option<AuthRef>, Problem> {
    match (&auth.basic, &auth.token, &auth.github_app, &auth.oauth2) {
        (None, None, Some(app), None) => github_app(app, endpoint, chosen, places).map(Some),
        (None, None, None, Some(client)) => oauth2(client, places, given).map(Some),
        (Some(basic), None, None, None) => {
            let namespace = places.of("/endpoint/auth/basic/secretRef").to_owned();
            Ok(Some(AuthRef::Basic { namespace, name: basic.secret_ref.name.clone() }))
        }
        (None, Some(token), None, None) => {
            let name = token.header.as_deref().or(chosen.token_header.as_deref()).unwrap_or("Authorization");
            let header = HeaderName::from_str(name).map_err(|_| {
                Problem::invalid("spec.endpoint.auth.token.header", format!("{name:?} is not a header name"))
            })?;
            // The usual scheme of the receiver applies only to its usual header.
            let usual_header = chosen.token_header.as_deref().unwrap_or("Authorization");
            let usual = chosen.token_scheme.as_deref().filter(|_| name.eq_ignore_ascii_case(usual_header));
            let default = if header == http::header::AUTHORIZATION { "Bearer" } else { "" };
            Ok(Some(AuthRef::Token {
                secret: secret_key(&token.secret_key_ref, places.of("/endpoint/auth/token/secretKeyRef")),
                header,
                scheme: token.scheme.as_deref().or(usual).unwrap_or(default).to_owned(),
            }))
        }
        (None, None, None, None) => Ok(None),
        _ => Err(Problem::invalid("spec.endpoint.auth", "set exactly one of basic, token, githubApp and oauth2")),
    }
}

fn github_app(
    app: &spec::GithubAppAuth,
    endpoint: &spec::Endpoint,
    chosen: &Chosen,
    places: &Places<'_>,
) -> Result<AuthRef, Problem> {
    if endpoint.url.is_none() {
        let message = "requires endpoint.url, because the URL in a Secret does not show the repository";
        return Err(Problem::invalid("spec.endpoint.auth.githubApp", message));
    }
    let repositories = app.repositories.clone().unwrap_or_default();
    let is_usable = |glob: &str| glob.split('/').count() == 2 && Glob::new(glob).is_ok();
    if let Some(wrong) = repositories.iter().find(|glob| !is_usable(glob)) {
        let message = format!("{wrong:?} is not a glob of OWNER/NAME, such as acme/*");
        return Err(Problem::invalid("spec.endpoint.auth.githubApp.repositories", message));
    }
    let namespace = places.of("/endpoint/auth/githubApp/secretRef");
    let theirs =
        chosen.metadata.map(|metadata| &metadata.credentials.permissions).filter(|_| places.of(chosen.at) == namespace);
    let permissions = app.permissions.as_ref().or(theirs).filter(|permissions| !permissions.is_empty());
    let permissions = permissions.ok_or_else(|| {
        let message = "is missing: set the permissions of the tokens, such as {statuses: write}; only a built-in template for GitHub that the \
                       same namespace chooses has a default";
        Problem::invalid("spec.endpoint.auth.githubApp.permissions", message)
    })?;
    Ok(AuthRef::GithubApp(Arc::new(GithubAppRef {
        secret: secret_name(&app.secret_ref.name, namespace),
        repositories,
        permissions: permissions.clone(),
    })))
}

fn oauth2(client: &spec::OAuth2Auth, places: &Places<'_>, given: &Given<'_>) -> Result<AuthRef, Problem> {
    const FIELD: &str = "spec.endpoint.auth.oauth2.tokenUrl";
    let is_usable = |url: &Url| url.username().is_empty() && url.password().is_none();
    // The origin is read from the text, because a parser of URLs repairs some that are not valid.
    let url = origin_of(&client.token_url).ok().and_then(|_| Url::parse(&client.token_url).ok()).filter(is_usable);
    let url = url.ok_or_else(|| Problem::invalid(FIELD, "is not a URL, or has user info"))?;
    match url.scheme() {
        "https" => {}
        "http" if given.allow_http || url.host_str().is_some_and(is_service) => {}
        "http" => return Err(Problem::InsecureScheme { field: FIELD }),
        _ => return Err(Problem::invalid(FIELD, "must begin with https://")),
    }
    let (scope, parameters) = (client.scope.clone(), client.parameters.clone().unwrap_or_default());
    match (&client.secret_ref, &client.service_account) {
        (Some(secret), None) => Ok(AuthRef::OAuth2(Arc::new(OAuth2Ref {
            token_url: url,
            secret: secret_name(&secret.name, places.of("/endpoint/auth/oauth2/secretRef")),
            scope,
            client_authentication: client.client_authentication.unwrap_or_default(),
            parameters,
        }))),
        (None, Some(account)) => Ok(AuthRef::Workload(Arc::new(WorkloadRef {
            token_url: url,
            account: ObjectName::new(places.of("/endpoint/auth/oauth2/serviceAccount"), &account.name),
            audience: account.audience.clone(),
            client_id: client.client_id.clone(),
            scope,
            parameters,
        }))),
        _ => Err(Problem::invalid("spec.endpoint.auth.oauth2", "set exactly one of secretRef and serviceAccount")),
    }
}

/// Returns how requests are signed. The header must not be that of the credentials `auth`, because only one of the two could be sent.
pub(super) fn signing(signing: &spec::Signing, auth: Option<&AuthRef>, places: &Places<'_>) -> Result<SigningRef, Problem> {
    const FIELD: &str = "spec.endpoint.signing.header";
    let form = match signing.scheme.unwrap_or_default() {
        spec::SigningScheme::StandardWebhooks => SignatureForm::StandardWebhooks,
        spec::SigningScheme::BodyHex => {
            let name = signing.header.as_deref().unwrap_or("X-Signature");
            let header =
                HeaderName::from_str(name).map_err(|_| Problem::invalid(FIELD, format!("{name:?} is not a header name")))?;
            if auth.is_some_and(|auth| auth.header() == header) {
                return Err(Problem::invalid(FIELD, "is also the header of the credentials in auth; use another name"));
            }
            SignatureForm::BodyHex(header)
        }
    };
    let secret = secret_name(&signing.secret_ref.name, places.of("/endpoint/signing/secretRef"));
    Ok(SigningRef { secret, form })
}

pub(super) fn tls(tls: Option<&spec::Tls>, places: &Places<'_>, given: &Given<'_>) -> Result<TlsRef, Problem> {
    let Some(tls) = tls else { return Ok(TlsRef::default()) };
    let authorities = match &tls.ca_from {
        None => Authorities::System,
        Some(spec::CaFrom { secret_key_ref: Some(from), config_map_key_ref: None }) => {
            Authorities::Secret(secret_key(from, places.of("/endpoint/tls/caFrom/secretKeyRef")))
        }
        Some(spec::CaFrom { secret_key_ref: None, config_map_key_ref: Some(from) }) => {
            let field = "spec.endpoint.tls.caFrom.configMapKeyRef";
            let namespace = places.of(template::AUTHORITIES).to_owned();
            let key = ConfigMapKey { namespace, name: from.name.clone(), key: from.key.clone() };
            let pem = template::read(&key, field, given)?;
            let has_some = CertificateDer::pem_slice_iter(pem.as_bytes()).next().is_some_and(|first| first.is_ok());
            if !has_some {
                return Err(Problem::invalid(field, format!("ConfigMap {key} contains no certificate in PEM format")));
            }
            Authorities::Pem(pem)
        }
        Some(_) => {
            let message = "set exactly one of configMapKeyRef and secretKeyRef";
            return Err(Problem::invalid("spec.endpoint.tls.caFrom", message));
        }
    };
    let certificate = tls.client_certificate.as_ref();
    Ok(TlsRef {
        authorities,
        client_certificate: certificate
            .map(|c| secret_name(&c.secret_ref.name, places.of("/endpoint/tls/clientCertificate"))),
        skip_verify: tls.insecure_skip_verify.unwrap_or(false),
    })
}

pub(super) fn secret_name(name: &str, namespace: &str) -> ObjectName {
    ObjectName::new(namespace, name)
}

pub(super) fn secret_key(reference: &SecretKeyRef, namespace: &str) -> SecretKey {
    SecretKey::new(namespace, &reference.name, &reference.key)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::layers::{Layer, Source};
    use crate::config::resolve_layers;

    /// Resolves a notification of a team over a layer of the platform.
    fn resolved(platform: &Value, team: &Value) -> Result<AuthRef, String> {
        let layer = |source, namespace: &str, value: &Value| Layer {
            source,
            namespace: namespace.to_owned(),
            remove: Vec::new(),
            value: value.as_object().cloned().unwrap(),
        };
        let layers = [layer(Source::Global, "platform", platform), layer(Source::Notification, "team-a", team)];
        let sending = resolve_layers(&layers, "team-a", "u", &Given::nothing()).sending;
        sending.map(|sending| sending.auth.unwrap()).map_err(|problem| problem.to_string())
    }

    fn app(fields: &Value) -> Value {
        let mut app = json!({"secretRef": {"name": "app"}});
        app.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
        json!({"endpoint": {"url": "https://api.github.com", "auth": {"githubApp": app}}})
    }

    #[test]
    fn a_github_app_has_permissions_and_a_repository() {
        let repository = json!({"owner": "acme", "repository": "web"});
        let team = |builtin: &str| json!({"triggers": [{"type": "Deployed"}], "template": {"builtin": builtin, "parameters": repository}});
        let status = team("github-commit-status");
        let with = |mut team: Value, fields: Value| {
            team.as_object_mut().unwrap().extend(app(&fields).as_object().cloned().unwrap());
            team
        };
        let field = "spec.endpoint.auth.githubApp";
        let other = json!({"triggers": [], "template": {"builtin": "generic"}});
        for (what, platform, team, expected) in [
            ("of the template", json!({}), with(status.clone(), json!({})), Ok(json!({"statuses": "write"}))),
            ("its own", json!({}), with(status.clone(), json!({"permissions": {"a": "read"}})), Ok(json!({"a": "read"}))),
            (
                "none, for a template of another namespace",
                app(&json!({})),
                status.clone(),
                Err(format!("{field}.permissions: is missing")),
            ),
            (
                "an empty list",
                json!({}),
                with(status.clone(), json!({"permissions": {}})),
                Err(format!("{field}.permissions: is missing")),
            ),
            ("another template", json!({}), with(other, json!({})), Err(format!("{field}.permissions: is missing"))),
            (
                "a glob that matches no repository",
                json!({}),
                with(status.clone(), json!({"repositories": ["acme"]})),
                Err(format!("{field}.repositories: \"acme\" is not a glob of OWNER/NAME")),
            ),
            (
                "no repository in the URL",
                json!({}),
                with(
                    json!({"triggers": [{"type": "Deployed"}], "template": {"inline": {"body": "{}"}}}),
                    json!({"permissions": {"a": "read"}}),
                ),
                Err("spec.endpoint.url: endpoint.auth.githubApp needs /repos/OWNER/NAME in the path".to_owned()),
            ),
        ] {
            match (resolved(&platform, &team), expected) {
                (Ok(AuthRef::GithubApp(app)), Ok(expected)) => assert_eq!(json!(app.permissions), expected, "{what}"),
                (Err(error), Err(words)) => assert!(error.starts_with(&words), "{what}: {error}"),
                (found, _) => panic!("{what}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_token_endpoint_is_a_url_with_https() {
        for (url, expected) in [
            ("https://login.example.com/token", None),
            ("http://dex.auth.svc/token", None),
            ("http://login.example.com/token", Some("http is not encrypted")),
            ("https://me:pw@login.example.com/token", Some("is not a URL, or has user info")),
            ("https:///login", Some("is not a URL, or has user info")),
            ("ftp://login.example.com/token", Some("is not a URL, or has user info")),
        ] {
            let client = json!({"tokenUrl": url, "secretRef": {"name": "client"}});
            let endpoint = json!({"url": "https://a.example", "auth": {"oauth2": client}});
            let team = json!({"triggers": [], "endpoint": endpoint, "template": {"builtin": "generic"}});
            let found = resolved(&json!({}), &team);
            let is_expected = match (&found, expected) {
                (Ok(AuthRef::OAuth2(client)), None) => client.token_url.as_str() == url,
                (Err(error), Some(words)) => error.contains(words) && error.contains("spec.endpoint.auth.oauth2.tokenUrl"),
                _ => false,
            };
            assert!(is_expected, "{url}: {found:?}");
        }
    }

    /// The namespace of the ServiceAccount is that of the layer that sets the whole object.
    #[test]
    fn a_client_has_a_secret_or_a_service_account() {
        let endpoint = |client: Value| json!({"endpoint": {"url": "https://a.example", "auth": {"oauth2": client}}});
        let with = |mut client: Value| {
            client["tokenUrl"] = json!("https://login.example.com/token");
            endpoint(client)
        };
        let (secret, account) = (json!({"name": "client"}), json!({"name": "notifier", "audience": "api://x"}));
        let field = "spec.endpoint.auth.oauth2";
        for (what, platform, team, expected) in [
            ("of the team", json!({}), with(json!({"serviceAccount": account, "clientId": "7"})), Ok("team-a/notifier")),
            ("of the platform", with(json!({"serviceAccount": account})), json!({}), Ok("platform/notifier")),
            (
                "a client with a secret, replaced as a whole",
                with(json!({"secretRef": secret, "clientAuthentication": "Body"})),
                with(json!({"serviceAccount": account})),
                Ok("team-a/notifier"),
            ),
            ("both", json!({}), with(json!({"secretRef": secret, "serviceAccount": account})), Err("set exactly one of")),
            ("neither", json!({}), with(json!({})), Err("set exactly one of")),
            (
                "an ID for a Secret",
                json!({}),
                with(json!({"secretRef": secret, "clientId": "7"})),
                Err("clientId is only for"),
            ),
            (
                "a place for a secret that there is not",
                json!({}),
                with(json!({"serviceAccount": account, "clientAuthentication": "Body"})),
                Err("clientAuthentication is only for"),
            ),
            (
                "an account of another namespace",
                json!({}),
                with(json!({"serviceAccount": {"name": "../../team-b/serviceaccounts/a", "audience": "api://x"}})),
                Err("serviceAccount.name: is not the name"),
            ),
            (
                "an assertion as a parameter",
                json!({}),
                with(json!({"serviceAccount": account, "parameters": {"client_assertion": "x"}})),
                Err("are set by Relaybook"),
            ),
        ] {
            let mut team = team;
            team["triggers"] = json!([]);
            team["template"] = json!({"builtin": "generic"});
            match (resolved(&platform, &team), expected) {
                (Ok(AuthRef::Workload(found)), Ok(expected)) => assert_eq!(found.account.to_string(), expected, "{what}"),
                (Err(error), Err(words)) => assert!(error.contains(words) && error.contains(field), "{what}: {error}"),
                (found, _) => panic!("{what}: {found:?}"),
            }
        }
    }
}
