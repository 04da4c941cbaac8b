//! Addresses of Providers. Pure.
//!
//! In: an address as it is written. Out: the URL of the API of a Git server with the parameters of a repository, or the parts of a URL.

use super::receivers::Forge;

/// A repository, as the templates know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repository {
    /// The URL of the server's API, without the path that the template appends.
    pub(super) url: String,
    /// Parameters of the template.
    pub(super) parameters: Vec<(&'static str, String)>,
}

/// The parts of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    pub(super) scheme: &'a str,
    /// Whether a user or a password is before the host.
    pub(super) has_user: bool,
    /// Host and port.
    pub(super) host: &'a str,
    /// What follows: path, query and fragment.
    pub(super) rest: &'a str,
}

impl<'a> Parts<'a> {
    /// Splits a URL.
    pub(super) fn of(url: &'a str) -> Option<Self> {
        let (scheme, after) = url.split_once("://")?;
        let (authority, rest) = after.split_at(after.find(['/', '?', '#']).unwrap_or(after.len()));
        let (has_user, host) = authority.rsplit_once('@').map_or((false, authority), |(_, host)| (true, host));
        let is_host = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-_:[]".contains(c));
        is_host.then_some(Self { scheme, has_user, host, rest })
    }

    /// Returns the URL without user and password.
    pub(super) fn without_user(self) -> String {
        format!("{}://{}{}", self.scheme, self.host, self.rest)
    }

    fn is_web(self) -> bool {
        ["https", "http"].contains(&self.scheme)
    }
}

/// Whether a URL is one of an HTTP server.
pub(super) fn is_url(url: &str) -> bool {
    Parts::of(url).is_some_and(Parts::is_web)
}

/// Reads the address of a repository.
pub(super) fn repository(address: &str, forge: Forge) -> Option<Repository> {
    let parts = Parts::of(address)?;
    if !parts.is_web() && parts.scheme != "ssh" {
        return None;
    }
    let path = parts.rest.split(['?', '#']).next()?.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    let segments: Vec<&str> = path.split('/').collect();
    let is_plain = |segment: &&str| {
        !["", ".", ".."].contains(segment) && segment.chars().all(|c| c.is_ascii_alphanumeric() || "._-~".contains(c))
    };
    if !segments.iter().all(is_plain) {
        return None;
    }
    // The port of SSH is not that of the API.
    let host = if parts.is_web() { parts.host } else { parts.host.split(':').next()? };
    let origin = format!("{}://{host}", if parts.is_web() { parts.scheme } else { "https" });
    let own = |name, value: &str| (name, value.to_owned());
    let (url, parameters) = match (forge, segments.as_slice()) {
        (Forge::Github, [owner, repository]) => {
            let url = if host == "github.com" { "https://api.github.com".to_owned() } else { format!("{origin}/api/v3") };
            (url, vec![own("owner", owner), own("repository", repository)])
        }
        (Forge::Gitlab, [_, ..]) => (origin, vec![own("project", &segments.join("/"))]),
        (Forge::Gitea, [owner, repository]) => (origin, vec![own("owner", owner), own("repository", repository)]),
        (Forge::Bitbucket, [workspace, repository]) => {
            let link = format!("{origin}/{workspace}/{repository}");
            let url = if host == "bitbucket.org" { "https://api.bitbucket.org".to_owned() } else { return None };
            (url, vec![own("workspace", workspace), own("repository", repository), own("link", &link)])
        }
        (Forge::BitbucketServer, [before @ .., "scm", project, repository]) => {
            let before: String = before.iter().flat_map(|segment| ["/", *segment]).collect();
            let link = format!("{origin}{before}/projects/{project}/repos/{repository}");
            let parameters = vec![own("project", project), own("repository", repository), own("link", &link)];
            (format!("{origin}{before}"), parameters)
        }
        (Forge::AzureDevops, [organization, project, "_git", repository]) => {
            let names = [("organization", organization), ("project", project), ("repository", repository)];
            (origin, names.into_iter().map(|(name, value)| own(name, value)).collect())
        }
        _ => return None,
    };
    Some(Repository { url, parameters })
}

/// Returns the form of an address of this server, for messages.
pub(super) const fn form(forge: Forge) -> &'static str {
    match forge {
        Forge::Github => "https://github.com/OWNER/REPOSITORY",
        Forge::Gitlab => "https://gitlab.com/GROUP/PROJECT, or https://gitlab.com/NUMBER",
        Forge::Gitea => "https://gitea.example.com/OWNER/REPOSITORY",
        Forge::Bitbucket => "https://bitbucket.org/WORKSPACE/REPOSITORY",
        Forge::BitbucketServer => "https://bitbucket.example.com/scm/PROJECT/REPOSITORY",
        Forge::AzureDevops => "https://dev.azure.com/ORGANIZATION/PROJECT/_git/REPOSITORY",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_repositories_give_the_api_and_the_parameters() {
        use Forge::{AzureDevops, Bitbucket, BitbucketServer, Gitea, Github, Gitlab};
        for (address, forge, expected) in [
            ("https://github.com/acme/podinfo", Github, "https://api.github.com owner=acme repository=podinfo"),
            ("https://github.com/acme/podinfo.git/", Github, "https://api.github.com owner=acme repository=podinfo"),
            ("ssh://git@github.com:22/acme/pod.info", Github, "https://api.github.com owner=acme repository=pod.info"),
            ("https://ghe.example.com/acme/podinfo", Github, "https://ghe.example.com/api/v3 owner=acme repository=podinfo"),
            ("https://gitlab.com/1234", Gitlab, "https://gitlab.com project=1234"),
            ("https://gitlab.example.com:8443/a/b/c", Gitlab, "https://gitlab.example.com:8443 project=a/b/c"),
            ("https://gitea.example.com/acme/podinfo", Gitea, "https://gitea.example.com owner=acme repository=podinfo"),
            (
                "https://bitbucket.org/acme/podinfo",
                Bitbucket,
                "https://api.bitbucket.org workspace=acme repository=podinfo link=https://bitbucket.org/acme/podinfo",
            ),
            (
                "https://bb.example.com/git/scm/PRJ/podinfo.git",
                BitbucketServer,
                "https://bb.example.com/git project=PRJ repository=podinfo link=https://bb.example.com/git/projects/PRJ/repos/podinfo",
            ),
            (
                "https://dev.azure.com/acme/platform/_git/podinfo",
                AzureDevops,
                "https://dev.azure.com organization=acme project=platform repository=podinfo",
            ),
            ("https://github.com/acme", Github, ""),
            ("https://github.com/a/b/c", Github, ""),
            ("git@github.com:acme/podinfo", Github, ""),
            ("https://github.com/a/{{b}}", Github, ""),
            ("https://bitbucket.example.com/acme/podinfo", Bitbucket, ""),
            ("https://dev.azure.com/acme/platform/podinfo", AzureDevops, ""),
            ("https:///a/b", Github, ""),
        ] {
            let found = repository(address, forge).map(|Repository { url, parameters }| {
                let parameters: Vec<String> = parameters.iter().map(|(name, value)| format!(" {name}={value}")).collect();
                format!("{url}{}", parameters.concat())
            });
            assert_eq!(found.unwrap_or_default(), expected, "{address}");
        }
    }

    #[test]
    fn the_user_of_a_url_is_found_and_removed() {
        let parts = Parts::of("https://me:p@ss@alerts.example.com:9093/api?x=1").unwrap();
        assert!(parts.has_user && is_url("http://a") && !is_url("ftp://a") && !is_url("a/b") && !is_url("https://"));
        assert_eq!(parts.without_user(), "https://alerts.example.com:9093/api?x=1");
        assert!(!Parts::of("https://example.com/@me").unwrap().has_user);
    }
}
