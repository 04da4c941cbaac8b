//! The repository that a request to the API of GitHub is about.

use std::fmt;

use url::Url;

/// A repository, and the API that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// The URL of the API, without a slash at the end.
    pub api: String,
    /// The user or organization.
    pub owner: String,
    /// The name of the repository.
    pub name: String,
}

impl Repository {
    /// Finds the repository in the path of a request to the API: `/repos/OWNER/NAME/…`, after any prefix without `repos`
    /// (<https://docs.github.com/en/rest/repos/repos>).
    #[must_use]
    pub fn of(url: &Url) -> Option<Self> {
        let segments: Vec<&str> = url.path_segments()?.collect();
        let at = segments.iter().position(|segment| *segment == "repos")?;
        let [owner, name] = [segments.get(at + 1)?, segments.get(at + 2)?].map(|segment| (*segment).to_owned());
        let prefix: String = segments[..at].iter().flat_map(|segment| ["/", *segment]).collect();
        let is_valid = |text: &str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !text.is_empty() && text.bytes().all(is_part)
        };
        let api = format!("{}{prefix}", url.origin().ascii_serialization());
        (is_valid(&owner) && is_valid(&name)).then_some(Self { api, owner, name })
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_in_the_path_after_any_prefix() {
        for (url, expected) in [
            ("https://api.github.com/repos/acme/web/statuses/1", Some(("https://api.github.com", "acme", "web"))),
            ("https://ghe.example.com/api/v3/repos/acme/web", Some(("https://ghe.example.com/api/v3", "acme", "web"))),
            ("https://api.github.com/repos/acme", None),
            ("https://api.github.com/orgs/acme/x", None),
            ("https://api.github.com/repos//web/x", None),
            ("https://api.github.com/repos/acme/web%2F../x", None),
        ] {
            let found = Repository::of(&Url::parse(url).unwrap());
            let found = found.as_ref().map(|found| (found.api.as_str(), found.owner.as_str(), found.name.as_str()));
            assert_eq!(found, expected, "{url}");
        }
    }
}
