//! What the settings of a repository mean for its requests: the API of the forge, the credentials, and whose budget is used. Pure.

use std::sync::Arc;

use url::Url;

use super::values::always;
use relaybook_api::ObjectName;
use relaybook_api::notification::credentials::{Authorities, SecretKey, TlsRef};
use relaybook_api::promotion::{GitRepository, PullRequestStrategy};
use relaybook_core::promotion::progress::Problem;
use relaybook_egress::AppScope;
use relaybook_forge::{Kind, Repository};

/// The folder with the workflows of GitHub.
const WORKFLOWS: &str = ".github/workflows";

/// Returns the origin of the API of a strategy.
pub(super) fn origin(of: &PullRequestStrategy) -> Option<String> {
    Some(forge_repository(of).ok()?.api().origin().ascii_serialization())
}

pub(super) fn parsed(url: &str) -> Result<Url, Problem> {
    Url::parse(url)
        .map_err(|error| always("UrlInvalid", &format!("the URL of the repository or of the API is not valid: {error}")))
}

/// The namespace whose budget a request uses, and its Secret.
pub(super) type Payer = (String, Option<ObjectName>);

/// Returns whose budget the requests to the forge of a repository use.
pub(super) fn payer(namespace: &str, repository: &GitRepository) -> Payer {
    (namespace.to_owned(), secret(namespace, repository))
}

/// Returns the API of the repository of a pull request.
pub(super) fn forge_repository(of: &PullRequestStrategy) -> Result<Repository, Problem> {
    let (url, api) = (parsed(&of.repository.url)?, of.api_url.as_deref().map(parsed).transpose()?);
    Repository::new(Kind::from(of.type_), &url, api.as_ref()).map_err(|error| always("UrlInvalid", &error.to_string()))
}

/// Returns what a token of a GitHub App is for: one repository, with the permissions that a promotion needs. `None`: the forge has no such apps.
pub(super) fn scope(at: &Repository, repository: &GitRepository) -> Option<Arc<AppScope>> {
    let [owner, name] = at.path() else { return None };
    let (api, owner, name) = (at.api().as_str().trim_end_matches('/').to_owned(), owner.clone(), name.clone());
    let mut permissions = vec!["contents", "pull_requests"];
    // GitHub refuses a push that changes a workflow without this permission.
    permissions.extend(repository.paths.iter().any(|path| path.starts_with(WORKFLOWS)).then_some("workflows"));
    let permissions = permissions.into_iter().map(|name| (name.to_owned(), "write".to_owned())).collect();
    let repository = relaybook_api::values::repository::Repository { api, owner, name };
    (at.kind() == Kind::Github).then(|| Arc::new(AppScope { repository, permissions }))
}

/// Returns the Secret with the credentials.
pub(super) fn secret(namespace: &str, repository: &GitRepository) -> Option<ObjectName> {
    let secret = repository.secret_ref.as_ref()?;
    Some(ObjectName::new(namespace, &secret.name))
}

pub(super) fn tls(namespace: &str, repository: &GitRepository) -> TlsRef {
    let Some(tls) = &repository.tls else { return TlsRef::default() };
    let authorities = tls.ca_from.as_ref().map_or(Authorities::System, |ca| {
        let key = &ca.secret_key_ref;
        Authorities::Secret(SecretKey::new(namespace, &key.name, &key.key))
    });
    let client_certificate = tls.client_certificate.as_ref().map(|of| ObjectName::new(namespace, &of.secret_ref.name));
    TlsRef { authorities, client_certificate, skip_verify: false }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_of_an_app_is_for_the_repository_of_the_pull_request() {
        for (type_, url, paths, expected) in [
            (
                "github",
                "https://github.com/acme/deploy.git",
                &["apps/prod"][..],
                Some(("https://api.github.com", "acme/deploy", "contents pull_requests")),
            ),
            (
                "github",
                "https://ghe.example.com/acme/deploy",
                &["apps", ".github/workflows/a.yaml"],
                Some(("https://ghe.example.com/api/v3", "acme/deploy", "contents pull_requests workflows")),
            ),
            ("gitea", "https://git.example.com/acme/deploy.git", &["apps"], None),
        ] {
            let of: PullRequestStrategy =
                serde_json::from_value(json!({"type": type_, "url": url, "paths": paths, "interval": "1m"})).unwrap();
            let scope = scope(&forge_repository(&of).unwrap(), &of.repository);
            let found = scope.as_ref().map(|scope| {
                let permissions: Vec<_> = scope.permissions.keys().map(String::as_str).collect();
                (scope.repository.api.as_str(), scope.repository.to_string(), permissions.join(" "))
            });
            let found = found.as_ref().map(|(api, name, permissions)| (*api, name.as_str(), permissions.as_str()));
            assert_eq!(found, expected, "{type_}, {url}");
        }
    }
}
