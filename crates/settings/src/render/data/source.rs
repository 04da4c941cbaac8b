//! Data about the repository that the revision of a target comes from, and about the `GitRepo` or `HelmOp` of Fleet that names it.
//!
//! In: the address that was recorded with the change, and the object of Fleet with the address of its repository. Out: the fields of
//! `target.source`.

use serde::Serialize;

use relaybook_api::pipeline::source::TargetOrigin;
use relaybook_api::values::git::shown;

/// The repository of a target. All fields are empty if it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SourceData {
    /// Kind of the object of Fleet that the target comes from: `GitRepo` or `HelmOp`. Empty if it comes from none.
    pub kind: String,
    /// Name of that object.
    pub name: String,
    /// Address of the repository, without credentials and without a query.
    pub repository: String,
    /// Path of the repository without its last part: the owner, or the groups.
    pub owner: String,
    /// Last part of the path of the repository, without `.git`.
    pub project: String,
}

impl SourceData {
    /// `recorded`: the address that was recorded with the change. Empty: the object of Fleet can name one.
    pub(super) fn new(origin: Option<&TargetOrigin>, recorded: &str) -> Self {
        let TargetOrigin { kind, name, repository } = origin.cloned().unwrap_or_default();
        let repository = if recorded.is_empty() { shown(&repository) } else { recorded.to_owned() };
        let (owner, project) = place(&repository).unwrap_or_default();
        Self { kind, name, repository, owner, project }
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
    fn the_recorded_address_takes_precedence_over_that_of_fleet() {
        let of_fleet = TargetOrigin {
            kind: "GitRepo".to_owned(),
            name: "shop".to_owned(),
            repository: "https://user:t0ken@git.example.com/fleet/shop.git".to_owned(),
        };
        let recorded = "git@github.com:acme/web.git";
        for (origin, recorded, found) in [
            (None, "", ["", "", "", ""]),
            (None, recorded, ["", recorded, "acme", "web"]),
            (Some(&of_fleet), recorded, ["GitRepo", recorded, "acme", "web"]),
            (Some(&of_fleet), "", ["GitRepo", "https://git.example.com/fleet/shop.git", "fleet", "shop"]),
        ] {
            let data = SourceData::new(origin, recorded);
            assert_eq!([data.kind, data.repository, data.owner, data.project], found);
        }
    }

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
