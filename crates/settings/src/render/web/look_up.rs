//! Where the commits of revisions can be looked up.
//!
//! In: the forges of the global configuration. Then the repository of a revision, which an application object can name, and the hash of its commit.
//! Out: the forge, the repository there and the Secret ([`LookUp`]), if the global configuration names the host and allows the repository.

use std::collections::BTreeMap;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::FieldError;
use relaybook_api::ObjectName;
use relaybook_api::global::{ForgeHost, ForgeLookUp};
use relaybook_api::notification::credentials::SecretKey;
use relaybook_api::promotion::ForgeType;
use relaybook_api::values::git::GitAddress;

/// A commit that can be looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookUp {
    /// The kind of the forge.
    pub type_: ForgeType,
    /// The URL of the repository: `https://HOST/OWNER/NAME`.
    pub url: String,
    /// Base of the API. `None`: it is derived from the URL.
    pub api_url: Option<String>,
    /// The Secret with the credentials.
    pub secret: ObjectName,
    /// The CA certificates to trust. `None`: those of the system.
    pub authorities: Option<SecretKey>,
    /// The whole hash of the commit.
    pub hash: String,
}

/// A forge at which commits are looked up.
#[derive(Clone, Debug)]
pub(super) struct LookUpForge {
    type_: ForgeType,
    repositories: GlobSet,
    api_url: Option<String>,
    secret: ObjectName,
    authorities: Option<SecretKey>,
}

/// Compiles the forges at which commits are looked up, by host. `namespace`: that of the Secrets.
pub(super) fn compile(forges: &[ForgeHost], namespace: &str) -> Result<BTreeMap<String, LookUpForge>, FieldError> {
    let mut all = BTreeMap::new();
    for (index, forge) in forges.iter().enumerate() {
        let Some(look_up) = &forge.look_up else { continue };
        let in_field = |(field, message): FieldError| (format!("forges[{index}].lookUp{field}"), message);
        let made = LookUpForge::compile(forge.type_, look_up, namespace).map_err(in_field)?;
        all.insert(forge.host.clone(), made);
    }
    Ok(all)
}

impl LookUpForge {
    fn compile(type_: ForgeType, look_up: &ForgeLookUp, namespace: &str) -> Result<Self, FieldError> {
        if matches!(type_, ForgeType::BitbucketCloud | ForgeType::BitbucketServer) {
            let message = "commits can be looked up only at gitea, github and gitlab; remove lookUp";
            return Err((String::new(), message.to_owned()));
        }
        if look_up.api_url.as_deref().is_some_and(|url| url::Url::parse(url).is_err()) {
            return Err((".apiUrl".to_owned(), "does not parse; check host and port".to_owned()));
        }
        let mut set = GlobSetBuilder::new();
        for (index, glob) in look_up.repositories.iter().enumerate() {
            // The names of forges are not case-sensitive.
            let glob = GlobBuilder::new(glob).literal_separator(true).case_insensitive(true).build();
            set.add(glob.map_err(|e| (format!(".repositories[{index}]"), format!("not a glob: {}", e.kind())))?);
        }
        let repositories = set.build().map_err(|e| (".repositories".to_owned(), format!("too large: {}", e.kind())))?;
        let key = look_up.ca_from.as_ref().map(|ca| &ca.secret_key_ref);
        Ok(Self {
            type_,
            repositories,
            api_url: look_up.api_url.clone(),
            secret: ObjectName::new(namespace, &look_up.secret_ref.name),
            authorities: key.map(|key| SecretKey::new(namespace, &key.name, &key.key)),
        })
    }

    /// Returns the look-up of a commit, if the repository is allowed.
    pub(super) fn of(&self, at: &GitAddress, hash: &str) -> Option<LookUp> {
        let can_be_there = self.type_ == ForgeType::Gitlab || at.has_one_owner();
        (can_be_there && self.repositories.is_match(at.path())).then(|| LookUp {
            type_: self.type_,
            url: format!("https://{}/{}", at.host(), at.path()),
            api_url: self.api_url.clone(),
            secret: self.secret.clone(),
            authorities: self.authorities.clone(),
            hash: hash.to_owned(),
        })
    }

    pub(super) fn secrets(&self) -> impl Iterator<Item = ObjectName> {
        std::iter::once(self.secret.clone()).chain(self.authorities.as_ref().map(SecretKey::secret))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Web;
    use super::*;
    use crate::render::SampleContext;
    use relaybook_api::TransitionType;

    fn web(forges: Value) -> Result<Web, FieldError> {
        let forges: Vec<ForgeHost> = serde_json::from_value(forges).unwrap();
        Web::compile(&forges, &BTreeMap::new(), "relaybook-system")
    }

    fn look_up(more: &Value) -> Value {
        let mut look_up = json!({"secretRef": {"name": "forge"}, "repositories": ["acme/*"]});
        look_up.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        look_up
    }

    #[test]
    fn only_repositories_that_the_global_configuration_allows_are_looked_up() {
        let groups = look_up(&json!({"repositories": ["acme/**", "other/[ab]"]}));
        let web = web(json!([
            {"host": "github.com", "type": "github", "lookUp": look_up(&json!({}))},
            {"host": "git.example.com:8443", "type": "gitlab", "lookUp": groups},
            {"host": "code.example.com", "type": "gitea"},
            {"host": "gitea.example.com", "type": "gitea", "lookUp": look_up(&json!({"repositories": ["**"]}))},
        ]))
        .unwrap();
        let hash = "a".repeat(40);
        for (address, revision, url) in [
            ("https://github.com/acme/web.git", &*hash, Some("https://github.com/acme/web")),
            ("git@github.com:Acme/web", &format!("main@sha1:{hash}"), Some("https://github.com/Acme/web")),
            ("https://github.com/acme/web", "6.5.0", None),
            ("https://github.com/acme/web", "", None),
            ("https://github.com/acme2/web", &hash, None),
            ("https://github.com/other/web", &hash, None),
            ("https://github.com/acme/team/web", &hash, None),
            ("http://git.example.com:8443/acme/team/web", &hash, Some("https://git.example.com:8443/acme/team/web")),
            ("https://git.example.com:8443/other/b", &hash, Some("https://git.example.com:8443/other/b")),
            ("https://git.example.com:8443/other/c", &hash, None),
            ("https://git.example.com/acme/web", &hash, None),
            ("https://code.example.com/acme/web", &hash, None),
            ("https://gitea.example.com/below/acme/web", &hash, None),
            ("https://169.254.169.254/acme/web", &hash, None),
            ("https://github.com.evil.example/acme/web", &hash, None),
            ("https://github.com@169.254.169.254/acme/web", &hash, None),
            ("https://github.com/acme/../web", &hash, None),
            ("", &hash, None),
        ] {
            let context = SampleContext { new: revision.to_owned(), ..SampleContext::sample(Default::default()) };
            let mut spec = context.delivery(TransitionType::Deployed);
            spec.subject.target.as_mut().unwrap().source = None;
            spec.to.repository = address.to_owned();
            let found = web.look_up(&spec);
            assert_eq!(found.as_ref().map(|found| &*found.url), url, "{address} {revision}");
            if let Some(found) = found {
                assert_eq!((found.hash, found.secret), (hash.clone(), ObjectName::new("relaybook-system", "forge")));
            }
        }
        assert_eq!(web.secrets().collect::<Vec<_>>().len(), 3);
        let none = super::super::Web::default();
        assert_eq!(none.look_up(&SampleContext::sample(Default::default()).delivery(TransitionType::Deployed)), None);
    }

    #[test]
    fn settings_come_from_the_namespace_of_the_global_configuration() {
        let more = json!({"apiUrl": "https://api.example.com", "caFrom": {"secretKeyRef": {"name": "ca", "key": "ca.crt"}}});
        let web = web(json!([{"host": "github.com", "type": "github", "lookUp": look_up(&more)}])).unwrap();
        let names: Vec<_> = web.secrets().map(|name| name.to_string()).collect();
        assert_eq!(names, ["relaybook-system/forge", "relaybook-system/ca"]);
        let mut spec = SampleContext::sample(Default::default()).delivery(TransitionType::Deployed);
        spec.to.repository = "https://github.com/acme/podinfo".to_owned();
        let found = web.look_up(&spec).unwrap();
        assert_eq!(found.api_url.as_deref(), Some("https://api.example.com"));
        assert_eq!(found.authorities, Some(SecretKey::new("relaybook-system", "ca", "ca.crt")));
    }

    #[test]
    fn an_invalid_look_up_is_refused_with_its_field() {
        for (type_, more, field, word) in [
            ("bitbucket-cloud", json!({}), "forges[0].lookUp", "gitea, github and gitlab"),
            ("github", json!({"repositories": ["acme/*", "[x"]}), "forges[0].lookUp.repositories[1]", "glob"),
            ("github", json!({"apiUrl": "https://a:b:c"}), "forges[0].lookUp.apiUrl", "parse"),
        ] {
            let (at, message) =
                web(json!([{"host": "h.example.com", "type": type_, "lookUp": look_up(&more)}])).unwrap_err();
            assert!(at == field && message.contains(word), "{at}: {message}");
        }
    }
}
