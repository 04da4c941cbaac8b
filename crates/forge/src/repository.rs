//! Pure: where the API of a repository is.

use percent_encoding::percent_decode_str;
use url::Url;

use super::kind::Kind;

/// Maximum length of a URL, in bytes.
const MAX_URL: usize = 2048;
/// Maximum number of segments of a path: GitLab allows 20 levels of groups.
const MAX_SEGMENTS: usize = 32;

/// A repository at a forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    kind: Kind,
    /// Base of all requests, without a slash at the end.
    api: Url,
    /// The path below the base: owner and name; for GitLab also all groups.
    path: Vec<String>,
    /// The hosts whose pages are shown to users.
    hosts: [String; 2],
}

/// Why a URL is not that of a repository of the forge.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepositoryError {
    /// The scheme is neither https nor http, or there is no host.
    #[error("the URL of a repository and of an API begins with https:// or http:// and a host")]
    Scheme,
    /// The URL contains a user name or password.
    #[error("the URL contains credentials; put them into the Secret")]
    Credentials,
    /// The URL contains a query or a fragment, or is too long.
    #[error("the URL has a query or a fragment, or is longer than 2048 bytes")]
    Extra,
    /// The path is not that of a repository.
    #[error("the path of the URL is not {0}")]
    Path(&'static str),
}

impl Repository {
    /// Finds the API of a repository. `url` is the URL with which Git clones it. Without `api_url`, the base of the API is derived from it.
    /// If the forge is below a path of its host, `api_url` is required for GitHub and GitLab.
    pub fn new(kind: Kind, url: &Url, api_url: Option<&Url>) -> Result<Self, RepositoryError> {
        for url in std::iter::once(url).chain(api_url) {
            check(url)?;
        }
        let segments = segments(url).ok_or(RepositoryError::Path(shape(kind)))?;
        let below = api_url.map_or(0, |api| common_prefix(kind, &segments, api));
        let (above, path) = split(kind, segments, below).ok_or(RepositoryError::Path(shape(kind)))?;
        let mut api = api_url.cloned().unwrap_or_else(|| derived(kind, url, &above));
        let trimmed = api.path().trim_end_matches('/').to_owned();
        api.set_path(&trimmed);
        let hosts = [url, &api].map(|url| url.host_str().unwrap_or_default().to_owned());
        Ok(Self { kind, api, path, hosts })
    }

    /// Returns the kind of the forge.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the base of all requests. Credentials are only sent to its origin, and to that of the URL of the repository.
    #[must_use]
    pub const fn api(&self) -> &Url {
        &self.api
    }

    /// Returns the path of the repository: owner and name; for GitLab also all groups.
    #[must_use]
    pub fn path(&self) -> &[String] {
        &self.path
    }

    /// Returns a URL below the base of the API. Each segment is percent-encoded.
    pub(super) fn at<'s>(&self, segments: impl IntoIterator<Item = &'s str>) -> Url {
        let mut url = self.api.clone();
        // An http URL always has a path.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    /// Returns the owner, project or workspace, and the name.
    pub(super) fn owner_and_name(&self) -> (&str, &str) {
        match &self.path[..] {
            [owner, .., name] => (owner, name),
            _ => ("", ""),
        }
    }

    /// Returns a URL that users may see, or `None`: a forge must not be able to send them to another host.
    pub(super) fn shown(&self, url: Option<&str>) -> Option<String> {
        let text = url.filter(|url| url.len() <= MAX_URL)?;
        let url = Url::parse(text).ok()?;
        let host = url.host_str()?;
        let is_ours = self.hosts.iter().any(|ours| ours == host);
        let is_plain = url.username().is_empty() && url.password().is_none();
        (is_ours && is_plain && matches!(url.scheme(), "https" | "http")).then(|| url.into())
    }
}

fn check(url: &Url) -> Result<(), RepositoryError> {
    if !matches!(url.scheme(), "https" | "http") || url.host_str().is_none_or(str::is_empty) {
        return Err(RepositoryError::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(RepositoryError::Credentials);
    }
    if url.query().is_some() || url.fragment().is_some() || url.as_str().len() > MAX_URL {
        return Err(RepositoryError::Extra);
    }
    Ok(())
}

/// Returns what the path of a URL must be.
const fn shape(kind: Kind) -> &'static str {
    match kind {
        Kind::Gitea => "that of a repository: [PATH/]OWNER/NAME[.git]",
        Kind::Github => "that of a repository: OWNER/NAME[.git]",
        Kind::Gitlab => "that of a repository: GROUP/[SUBGROUP/…]NAME[.git]",
        Kind::BitbucketCloud => "that of a repository: WORKSPACE/NAME[.git]",
        Kind::BitbucketServer => "that of a repository: [PATH/]scm/PROJECT/NAME[.git]",
    }
}

/// Returns the decoded segments of a path, without `.git`. `None` if one of them could change the path of a request.
fn segments(url: &Url) -> Option<Vec<String>> {
    let path = url.path().trim_matches('/');
    let decoded = path.split('/').map(|segment| Some(percent_decode_str(segment).decode_utf8().ok()?.into_owned()));
    let mut segments: Vec<String> = decoded.collect::<Option<_>>()?;
    let last = segments.pop()?;
    segments.push(last.strip_suffix(".git").unwrap_or(&last).to_owned());
    let is_plain = |s: &String| {
        !s.is_empty() && s != "." && s != ".." && !s.contains(['/', '\\', '%']) && !s.contains(char::is_control)
    };
    (segments.len() <= MAX_SEGMENTS && segments.iter().all(is_plain)).then_some(segments)
}

/// The part of a base that is the same at each forge of a kind.
const fn suffix(kind: Kind) -> &'static str {
    match kind {
        Kind::Gitea => "/api/v1",
        Kind::Github => "/api/v3",
        Kind::Gitlab => "/api/v4",
        Kind::BitbucketCloud => "/2.0",
        Kind::BitbucketServer => "/rest/api/1.0",
    }
}

/// Returns how many segments of a repository's path are the path of the forge, which the URL of the API has as well.
fn common_prefix(kind: Kind, segments: &[String], api: &Url) -> usize {
    let Some(root) = api.path().trim_end_matches('/').strip_suffix(suffix(kind)) else { return 0 };
    let root: Vec<&str> = root.split('/').filter(|s| !s.is_empty()).collect();
    if segments.len() > root.len() && segments.iter().zip(&root).all(|(a, b)| a == b) { root.len() } else { 0 }
}

/// Splits a path into that of the forge and that of the repository. At least `below` segments belong to the forge.
fn split(kind: Kind, mut segments: Vec<String>, below: usize) -> Option<(Vec<String>, Vec<String>)> {
    let start = match kind {
        Kind::Gitlab => below,
        Kind::Gitea => segments.len().checked_sub(2)?,
        Kind::BitbucketServer => {
            let start = segments.len().checked_sub(2)?;
            if start == 0 || segments[start - 1] != "scm" {
                return None;
            }
            segments.remove(start - 1);
            start - 1
        }
        Kind::Github | Kind::BitbucketCloud => (segments.len() == below + 2).then_some(below)?,
    };
    let path = segments.split_off(start);
    (path.len() >= 2).then_some((segments, path))
}

/// Returns the base of the API of a forge at the host of a repository.
fn derived(kind: Kind, url: &Url, above: &[String]) -> Url {
    let mut api = url.clone();
    let public = match (kind, url.host_str()) {
        (Kind::Github, Some("github.com" | "www.github.com")) => Some("https://api.github.com"),
        (Kind::BitbucketCloud, Some("bitbucket.org" | "www.bitbucket.org")) => Some("https://api.bitbucket.org/2.0"),
        _ => None,
    };
    if let Some(public) = public.and_then(|public| Url::parse(public).ok()) {
        return public;
    }
    api.set_path("");
    if let Ok(mut path) = api.path_segments_mut() {
        path.pop_if_empty().extend(above).extend(suffix(kind).split('/').skip(1));
    }
    api
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(kind: Kind, url: &str, api: Option<&str>) -> Result<Repository, RepositoryError> {
        let api = api.map(|api| Url::parse(api).unwrap());
        Repository::new(kind, &Url::parse(url).unwrap(), api.as_ref())
    }

    #[test]
    fn the_api_is_derived_from_the_url() {
        use Kind::{BitbucketCloud, BitbucketServer, Gitea, Github, Gitlab};
        for (kind, url, api, base, path) in [
            (Github, "https://github.com/acme/web.git", None, "https://api.github.com/", "acme/web"),
            (Github, "https://github.com/acme/web/", None, "https://api.github.com/", "acme/web"),
            (Github, "https://ghes.example.com:8443/acme/web", None, "https://ghes.example.com:8443/api/v3", "acme/web"),
            (Github, "https://x.ghe.com/acme/web", Some("https://api.x.ghe.com"), "https://api.x.ghe.com/", "acme/web"),
            (Gitlab, "https://gitlab.com/acme/team/sub/web.git", None, "https://gitlab.com/api/v4", "acme/team/sub/web"),
            (
                Gitlab,
                "https://e.com/git/acme/web",
                Some("https://e.com/git/api/v4/"),
                "https://e.com/git/api/v4",
                "acme/web",
            ),
            (Gitlab, "https://e.com/acme/web", Some("https://api.e.com/api/v4"), "https://api.e.com/api/v4", "acme/web"),
            (Gitea, "http://gitea:3000/acme/web.git", None, "http://gitea:3000/api/v1", "acme/web"),
            (Gitea, "https://e.com/git/acme/web.git", None, "https://e.com/git/api/v1", "acme/web"),
            (Gitea, "https://e.com/acme/web.git.git", None, "https://e.com/api/v1", "acme/web.git"),
            (BitbucketCloud, "https://bitbucket.org/acme/web.git", None, "https://api.bitbucket.org/2.0", "acme/web"),
            (BitbucketServer, "https://e.com/scm/ACME/web.git", None, "https://e.com/rest/api/1.0", "ACME/web"),
            (BitbucketServer, "https://e.com/bb/scm/~jo/web.git", None, "https://e.com/bb/rest/api/1.0", "~jo/web"),
            (BitbucketServer, "https://e.com/scm/scm/web", None, "https://e.com/rest/api/1.0", "scm/web"),
        ] {
            let found = repository(kind, url, api).unwrap();
            assert_eq!((found.api().as_str(), found.path().join("/").as_str()), (base, path), "{kind} {url}");
        }
    }

    #[test]
    fn other_urls_are_refused() {
        use Kind::{BitbucketCloud, BitbucketServer, Gitea, Github, Gitlab};
        for (kind, url, expected) in [
            (Github, "ssh://git@github.com/acme/web", RepositoryError::Scheme),
            (Github, "file:///acme/web", RepositoryError::Scheme),
            (Github, "https://u:p@github.com/acme/web", RepositoryError::Credentials),
            (Github, "https://github.com/acme/web?a=b", RepositoryError::Extra),
            (Github, "https://github.com/acme", RepositoryError::Path(shape(Github))),
            (Github, "https://github.com/acme/web/tree/main", RepositoryError::Path(shape(Github))),
            (Gitlab, "https://gitlab.com/web", RepositoryError::Path(shape(Gitlab))),
            (Gitlab, "https://gitlab.com/acme%2Fother/web", RepositoryError::Path(shape(Gitlab))),
            (Gitea, "https://e.com/acme/%252e%252e", RepositoryError::Path(shape(Gitea))),
            (Gitea, "https://e.com/acme/..%00", RepositoryError::Path(shape(Gitea))),
            (Gitea, "https://e.com/acme/.git", RepositoryError::Path(shape(Gitea))),
            (Gitea, "https://e.com//acme//web", RepositoryError::Path(shape(Gitea))),
            (BitbucketCloud, "https://bitbucket.org/a/b/c", RepositoryError::Path(shape(BitbucketCloud))),
            (BitbucketServer, "https://e.com/projects/A/repos/b", RepositoryError::Path(shape(BitbucketServer))),
        ] {
            assert_eq!(repository(kind, url, None), Err(expected), "{kind} {url}");
        }
        let credentials = repository(Github, "https://github.com/a/b", Some("https://t@api.github.com"));
        assert_eq!(credentials, Err(RepositoryError::Credentials));
    }

    #[test]
    fn only_pages_of_the_forge_are_shown() {
        let found = repository(Kind::Github, "https://github.com/acme/web", None).unwrap();
        for (url, shown) in [
            ("https://github.com/acme/web/pull/1", true),
            ("https://api.github.com/repos/acme/web/pulls/1", true),
            ("http://github.com/acme/web/pull/1", true),
            ("https://github.com.evil.example/acme/web/pull/1", false),
            ("https://evil.example/github.com", false),
            ("https://github.com@evil.example/", false),
            ("https://token@github.com/", false),
            ("javascript:alert(1)//github.com", false),
            ("//github.com/acme", false),
            ("", false),
        ] {
            assert_eq!(found.shown(Some(url)).is_some(), shown, "{url}");
        }
        assert_eq!(found.shown(Some(&format!("https://github.com/{}", "a".repeat(3000)))), None);
        assert_eq!(found.shown(Some("https://github.com/a b\n")).as_deref(), Some("https://github.com/a%20b"));
        assert_eq!(found.shown(None), None);
    }

    #[test]
    fn segments_cannot_change_the_path_of_a_request() {
        let found = repository(Kind::Gitlab, "https://gitlab.com/acme/web", None).unwrap();
        let url = found.at(["projects", "acme/web", "a?b#c", "é"]);
        assert_eq!(url.as_str(), "https://gitlab.com/api/v4/projects/acme%2Fweb/a%3Fb%23c/%C3%A9");
    }
}
