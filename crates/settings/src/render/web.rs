//! Web pages that messages link to: commits at forges, and pages that the global configuration names.
//!
//! In: the forges and the templates of links of the global configuration; the data of a transition, and the addresses of the Git repositories
//! that its revisions came from. Out: the fields `git` and `links` of the data, and where the commit can be looked up ([`LookUp`]). Every URL is
//! https and at a host that this program or the global configuration names. A page that is not known is an empty text, and never an error,
//! because a message is more important than a link.

mod look_up;

use std::collections::BTreeMap;
use std::fmt;

use super::data::schema::{DataSchema, ROOT};
use super::{Data, Parameters, UrlTemplate, Values};
pub use look_up::LookUp;
use look_up::LookUpForge;
use relaybook_api::global::ForgeHost;
use relaybook_api::promotion::ForgeType;
use relaybook_api::values::commit::commit;
use relaybook_api::values::git::GitAddress;
use relaybook_api::values::looked_up::LookUps;
use relaybook_api::{DeliverySpec, ObjectName};

/// The forges that everybody knows.
const KNOWN: [(&str, ForgeType); 4] = [
    ("github.com", ForgeType::Github),
    ("gitlab.com", ForgeType::Gitlab),
    ("bitbucket.org", ForgeType::BitbucketCloud),
    ("codeberg.org", ForgeType::Gitea),
];
/// Maximum length of the name of a link.
const MAX_NAME: usize = 32;
/// The field of the data with the links.
const LINKS: &str = "links";

/// The forges and the links of an installation, compiled.
#[derive(Clone, Default)]
pub struct Web {
    links: BTreeMap<String, UrlTemplate>,
    /// What users wrote. Two are equal if it is the same.
    forges: Vec<ForgeHost>,
    sources: BTreeMap<String, String>,
    /// The forges at which commits are looked up, by host.
    look_ups: BTreeMap<String, LookUpForge>,
}

/// An invalid field, and the message about it.
type FieldError = (String, String);

impl Web {
    /// Compiles the forges and the templates of links. `namespace`: that of the Secrets.
    pub fn compile(forges: &[ForgeHost], sources: &BTreeMap<String, String>, namespace: &str) -> Result<Self, FieldError> {
        for (index, forge) in forges.iter().enumerate() {
            let is_known = KNOWN.iter().any(|(host, type_)| *host == forge.host && *type_ != forge.type_);
            let (field, problem) = match forge.type_ {
                ForgeType::BitbucketServer => {
                    ("type", "links to pages of bitbucket-server are not supported; remove this forge")
                }
                _ if is_known => ("type", "this host has another kind of forge; remove this forge"),
                _ if forge.host.ends_with(":443") => ("host", "this is the default port; remove :443"),
                _ => continue,
            };
            return Err((format!("forges[{index}].{field}"), problem.to_owned()));
        }
        let mut links = BTreeMap::new();
        for (name, source) in sources {
            let template = link(name, source).map_err(|problem| (format!("{LINKS}.{name}"), problem))?;
            links.insert(name.clone(), template);
        }
        let look_ups = look_up::compile(forges, namespace)?;
        Ok(Self { links, forges: forges.to_vec(), sources: sources.clone(), look_ups })
    }

    /// Returns where the commit of a recorded transition can be looked up. `None`: the global configuration allows no question about it.
    #[must_use]
    pub fn look_up(&self, spec: &DeliverySpec) -> Option<LookUp> {
        let at = GitAddress::parse(address(spec))?;
        let hash = commit(&spec.to.revision)?;
        self.look_ups.get(at.host()).and_then(|forge| forge.of(&at, hash))
    }

    /// The Secrets with which commits are looked up.
    pub fn secrets(&self) -> impl Iterator<Item = ObjectName> {
        self.look_ups.values().flat_map(LookUpForge::secrets)
    }

    /// Adds to the data of a transition the pages of its commits, and the links of the installation. `spec`: the recorded transition.
    #[must_use]
    pub fn add_to(&self, mut data: Data, spec: &DeliverySpec) -> Data {
        let [source, source_before] = [address(spec), spec.from.repository.as_str()].map(GitAddress::parse);
        let [new, old] = [&data.revision, &data.previous_revision].map(|revision| commit(revision).map(str::to_owned));
        if let Some(new) = &new {
            data.git.url = source.as_ref().and_then(|at| self.commit(at, new)).unwrap_or_default();
        }
        if let (Some(at), Some(old)) = (&source_before, &old) {
            data.links.previous = self.commit(at, old).unwrap_or_default();
            // Commits of different repositories cannot be compared.
            let other = new.as_ref().filter(|new| *new != old && source.as_ref() == Some(at));
            data.links.compare = other.and_then(|new| self.compare(at, old, new)).unwrap_or_default();
        }
        data.git.sha = new.unwrap_or_default();
        data.links.named = self.named(&data);
        data
    }

    /// Returns the links of the installation that can be rendered.
    fn named(&self, data: &Data) -> BTreeMap<String, String> {
        if self.links.is_empty() {
            return BTreeMap::new();
        }
        let Ok(values) = Values::new(data, &Parameters::default()) else { return BTreeMap::new() };
        let rendered =
            |(name, link): (&String, &UrlTemplate)| Some((name.clone(), String::from(link.render(&values).ok()?)));
        self.links.iter().filter_map(rendered).collect()
    }

    /// Returns the kind of the forge of a repository, if it is known and the repository can be there.
    fn forge(&self, at: &GitAddress) -> Option<ForgeType> {
        let known = KNOWN.into_iter().find(|(host, _)| *host == at.host()).map(|(_, type_)| type_);
        let own = || self.forges.iter().find(|forge| forge.host == at.host()).map(|forge| forge.type_);
        known.or_else(own).filter(|type_| *type_ == ForgeType::Gitlab || at.has_one_owner())
    }

    /// Returns the page of a commit.
    fn commit(&self, at: &GitAddress, hash: &str) -> Option<String> {
        let part = match self.forge(at)? {
            ForgeType::Github | ForgeType::Gitea => "commit",
            ForgeType::Gitlab => "-/commit",
            ForgeType::BitbucketCloud => "commits",
            ForgeType::BitbucketServer => return None,
        };
        Some(format!("https://{}/{}/{part}/{hash}", at.host(), at.path()))
    }

    /// Returns the page that compares two commits.
    fn compare(&self, at: &GitAddress, old: &str, new: &str) -> Option<String> {
        let page = match self.forge(at)? {
            ForgeType::Github | ForgeType::Gitea => format!("compare/{old}...{new}"),
            ForgeType::Gitlab => format!("-/compare/{old}...{new}"),
            // The newer commit comes first, and a line break separates them.
            ForgeType::BitbucketCloud => format!("branches/compare/{new}%0D{old}"),
            ForgeType::BitbucketServer => return None,
        };
        Some(format!("https://{}/{}/{page}", at.host(), at.path()))
    }
}

impl PartialEq for Web {
    fn eq(&self, other: &Self) -> bool {
        self.forges == other.forges && self.sources == other.sources
    }
}

impl Eq for Web {}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").field("forges", &self.forges).field("links", &self.links).finish_non_exhaustive()
    }
}

/// Returns the address of the Git repository of the revision of a transition.
fn address(spec: &DeliverySpec) -> &str {
    let origin = spec.subject.target.as_ref().and_then(|target| target.source.as_ref());
    match &*spec.to.repository {
        "" => origin.map_or("", |origin| origin.repository.as_str()),
        recorded => recorded,
    }
}

/// Compiles the template of a link.
fn link(name: &str, source: &str) -> Result<UrlTemplate, String> {
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(|c| c.is_ascii_alphanumeric());
    if !is_name || name.len() > MAX_NAME {
        return Err(format!("the name of a link has at most {MAX_NAME} letters and digits, and begins with a letter"));
    }
    if ROOT.field(LINKS).and_then(DataSchema::names).is_some_and(|mut names| names.any(|known| known == name)) {
        return Err("the name has a meaning of its own; choose another name".to_owned());
    }
    let template = UrlTemplate::compile(source, &Parameters::default()).map_err(|error| error.to_string())?;
    if template.depends_on_forge(&Parameters::default(), LookUps::default()) {
        return Err("a link cannot use git.author, git.message, git.time and pullRequest".to_owned());
    }
    if template.scheme() == "https" { Ok(template) } else { Err("must begin with https://".to_owned()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::render::SampleContext;
    use relaybook_api::TransitionType;

    fn web(forges: serde_json::Value, links: serde_json::Value) -> Result<Web, FieldError> {
        let forges: Vec<ForgeHost> = serde_json::from_value(forges).unwrap();
        Web::compile(&forges, &serde_json::from_value(links).unwrap(), "relaybook-system")
    }

    /// The pages of a transition from one revision to another: of the new commit, of both, and of the old commit.
    fn pages(web: &Web, (before, old): (&str, &str), (source, new): (&str, &str)) -> [String; 3] {
        let context =
            SampleContext { old: old.to_owned(), new: new.to_owned(), ..SampleContext::sample(Default::default()) };
        let mut spec = context.delivery(TransitionType::Deployed);
        spec.subject.target.as_mut().unwrap().source = None;
        (spec.from.repository, spec.to.repository) = (before.to_owned(), source.to_owned());
        let none = crate::render::Texts::default();
        let data = web.add_to(Data::new("id", &spec, &none, &none, "n"), &spec);
        [data.git.url, data.links.compare, data.links.previous]
    }

    #[test]
    fn each_kind_of_forge_has_its_pages() {
        let forges = json!([{"host": "git.example.com", "type": "gitlab"}, {"host": "code.example.com:8443", "type": "gitea"},
            {"host": "ghe.example.com", "type": "github"}]);
        let web = web(forges, json!({})).unwrap();
        let (old, new) = ("a".repeat(40), "b".repeat(40));
        for (address, commit, compare) in [
            (
                "https://github.com/acme/shop.git",
                "https://github.com/acme/shop/commit/NEW",
                "https://github.com/acme/shop/compare/OLD...NEW",
            ),
            (
                "git@github.com:acme/shop.git",
                "https://github.com/acme/shop/commit/NEW",
                "https://github.com/acme/shop/compare/OLD...NEW",
            ),
            (
                "https://user:t0ken@gitlab.com/acme/team/shop.git",
                "https://gitlab.com/acme/team/shop/-/commit/NEW",
                "https://gitlab.com/acme/team/shop/-/compare/OLD...NEW",
            ),
            (
                "ssh://git@bitbucket.org/acme/shop",
                "https://bitbucket.org/acme/shop/commits/NEW",
                "https://bitbucket.org/acme/shop/branches/compare/NEW%0DOLD",
            ),
            (
                "https://codeberg.org/acme/shop",
                "https://codeberg.org/acme/shop/commit/NEW",
                "https://codeberg.org/acme/shop/compare/OLD...NEW",
            ),
            (
                "ssh://git@git.example.com:2222/acme/shop.git",
                "https://git.example.com/acme/shop/-/commit/NEW",
                "https://git.example.com/acme/shop/-/compare/OLD...NEW",
            ),
            (
                "http://code.example.com:8443/acme/shop",
                "https://code.example.com:8443/acme/shop/commit/NEW",
                "https://code.example.com:8443/acme/shop/compare/OLD...NEW",
            ),
            (
                "https://ghe.example.com/acme/shop",
                "https://ghe.example.com/acme/shop/commit/NEW",
                "https://ghe.example.com/acme/shop/compare/OLD...NEW",
            ),
            // Unknown, or not a repository of this kind of forge.
            ("https://other.example.com/acme/shop", "", ""),
            ("https://169.254.169.254/latest/meta-data", "", ""),
            ("https://github.com/acme/team/shop", "", ""),
            ("https://github.com.evil.example/acme/shop", "", ""),
            ("https://code.example.com/acme/shop", "", ""),
            ("javascript://github.com/acme/shop", "", ""),
            ("https://github.com/acme/../../shop", "", ""),
            ("", "", ""),
        ] {
            let expected = [commit, compare, commit];
            let mut expected = expected.map(|page| page.replace("NEW", &new).replace("OLD", &old));
            expected[2] = expected[2].replace(&new, &old);
            let revisions = [format!("main@sha1:{old}"), format!("main@sha1:{new}")];
            assert_eq!(pages(&web, (address, &revisions[0]), (address, &revisions[1])), expected, "{address}");
        }
    }

    #[test]
    fn commits_are_compared_only_in_one_repository() {
        let web = Web::default();
        let (a, b) = ("https://github.com/acme/a", "https://github.com/acme/b");
        let hashes = ["a".repeat(40), "b".repeat(40)];
        let (old, new) = (hashes[0].as_str(), hashes[1].as_str());
        let two = format!("{old},{new}");
        for (what, from, to, expected) in [
            ("one repository, in two forms", (a, old), ("git@github.com:acme/a.git", new), [true, true, true]),
            ("another repository", (a, old), (b, new), [true, false, true]),
            ("the first repository was not recorded", ("", old), (b, new), [true, false, false]),
            ("the repository is not known any more", (a, old), ("", new), [false, false, true]),
            ("the same commit", (a, old), (a, old), [true, false, true]),
            ("a first deployment", (a, ""), (a, new), [true, false, false]),
            ("a version", (a, "6.5.0"), (a, new), [true, false, false]),
            ("no commit", (a, old), (a, "6.5.1"), [false, false, true]),
            ("several commits", (a, old), (a, two.as_str()), [false, false, true]),
            ("a hostile revision", (a, old), (a, "../../x?y=https://evil.example"), [false, false, true]),
        ] {
            assert_eq!(pages(&web, from, to).map(|page| !page.is_empty()), expected, "{what}");
        }
    }

    #[test]
    fn links_of_the_installation_are_rendered_or_left_out() {
        let links = json!({
            "argo": "https://argocd.example.com/applications/{{target.namespace}}/{{target.app.name}}",
            "commit": "https://example.com/?c={{git.sha}}&d={{default links.argo \"none\"}}",
            "team": "https://example.com/{{default pipeline.labels.team \"nobody\"}}",
        });
        let web = web(json!([]), links).unwrap();
        let context = SampleContext { web: std::sync::Arc::new(web), ..SampleContext::sample(Default::default()) };
        let data = context.transition(TransitionType::Deployed);
        assert_eq!(data.links.named["argo"], "https://argocd.example.com/applications/podinfo/podinfo");
        assert_eq!(data.links.named["commit"], format!("https://example.com/?c={}&d=none", data.git.sha));
        assert_eq!(data.links.named["team"], "https://example.com/nobody");
        // A pipeline has no target, so a part of the path would be empty.
        let data = context.transition(TransitionType::PipelineReady);
        assert_eq!(data.links.named.keys().collect::<Vec<_>>(), ["commit", "team"]);
    }

    #[test]
    fn a_wrong_forge_or_link_is_refused_with_its_field() {
        let good = "https://example.com/";
        for (forges, links, field, word) in [
            (
                json!([{"host": "a.example", "type": "github"}, {"host": "b.example", "type": "bitbucket-server"}]),
                json!({}),
                "forges[1].type",
                "not supported",
            ),
            (json!([{"host": "github.com", "type": "gitea"}]), json!({}), "forges[0].type", "another kind"),
            (json!([{"host": "a.example:443", "type": "gitea"}]), json!({}), "forges[0].host", "remove :443"),
            (json!([]), json!({"compare": good}), "links.compare", "choose another name"),
            (json!([]), json!({"pipeline": good}), "links.pipeline", "choose another name"),
            (json!([]), json!({"a-b": good}), "links.a-b", "letters and digits"),
            (json!([]), json!({"1a": good}), "links.1a", "begins with a letter"),
            (json!([]), json!({"a": "http://example.com/"}), "links.a", "https://"),
            (json!([]), json!({"a": "javascript:alert(1)"}), "links.a", "https://"),
            (json!([]), json!({"a": "https://{{environment}}.example.com/"}), "links.a", "literal"),
            (json!([]), json!({"a": "https://user:pass@example.com/"}), "links.a", "user info"),
            (json!([]), json!({"a": "https://example.com/{{enviroment}}"}), "links.a", "did you mean"),
            (json!([]), json!({"a": "https://example.com/{{parameters.b}}"}), "links.a", "parameters"),
            (json!([]), json!({"a": "https://example.com/?by={{git.author}}"}), "links.a", "git.author"),
        ] {
            let (at, message) = web(forges, links).unwrap_err();
            assert!(at == field && message.contains(word), "{at}: {message}");
        }
        assert!(web(json!([{"host": "github.com", "type": "github"}]), json!({})).is_ok());
    }
}
