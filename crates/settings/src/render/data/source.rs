//! Data about the object that a generated target comes from: a `GitRepo` or a `HelmOp` of Fleet.
//!
//! In: the object with the address of its repository. Out: the fields of `target.source`.

use serde::Serialize;

use relaybook_api::pipeline::source::TargetOrigin;

/// The object that a target comes from. All fields are empty if the target is written in the pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceData {
    /// Its kind: `GitRepo` or `HelmOp`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Address of its repository.
    pub repository: String,
    /// Path of the repository without its last part: the owner, or the groups.
    pub owner: String,
    /// Last part of the path of the repository, without `.git`.
    pub project: String,
}

impl SourceData {
    pub(super) fn new(origin: Option<&TargetOrigin>) -> Self {
        let Some(TargetOrigin { kind, name, repository }) = origin else { return Self::default() };
        let (owner, project) = place(repository).unwrap_or_default();
        Self { kind: kind.clone(), name: name.clone(), repository: repository.clone(), owner, project }
    }
}

/// Returns owner and name of a repository at a forge, from `https://HOST/OWNER/NAME.git`, `ssh://git@HOST/OWNER/NAME` or `git@HOST:OWNER/NAME`.
fn place(repository: &str) -> Option<(String, String)> {
    let path = match repository.split_once("://") {
        Some((_, rest)) => rest.split_once('/')?.1,
        None => repository.split_once(':')?.1,
    };
    let path = path.split(['?', '#']).next()?.trim_matches('/');
    let (owner, name) = path.strip_suffix(".git").unwrap_or(path).rsplit_once('/')?;
    (!owner.is_empty() && !name.is_empty()).then(|| (owner.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_and_name_are_read_from_the_url_of_a_repository() {
        for (repository, found) in [
            ("https://github.com/acme/shop.git", Some(("acme", "shop"))),
            ("https://github.com/acme/shop/", Some(("acme", "shop"))),
            ("https://user@gitlab.example.com:8443/acme/team/shop.git?a=b", Some(("acme/team", "shop"))),
            ("ssh://git@github.com/acme/shop", Some(("acme", "shop"))),
            ("git@github.com:acme/shop.git", Some(("acme", "shop"))),
            ("oci://ghcr.io/acme/charts/shop", Some(("acme/charts", "shop"))),
            ("https://charts.example.com", None),
            ("https://charts.example.com/shop", None),
            ("shop", None),
            ("", None),
        ] {
            let found = found.map(|(owner, name): (&str, &str)| (owner.to_owned(), name.to_owned()));
            assert_eq!(place(repository), found, "{repository}");
        }
    }
}
