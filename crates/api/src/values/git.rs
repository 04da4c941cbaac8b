//! The address of a Git repository.
//!
//! In: a text from an application object or from a user, which can contain anything. Out: the repository at its host ([`GitAddress`]), or
//! the text as it may be stored ([`recorded`]): short, and without credentials. Both exist only for addresses with plain names, so a part of an
//! address needs no escaping in a URL.

/// Maximum length of an address that is stored, in bytes.
pub const MAX_ADDRESS: usize = 256;
/// Maximum length of an address with credentials, in bytes.
const MAX_GIVEN: usize = 1024;
/// Maximum number of parts of the path: GitLab allows 20 levels of groups.
const MAX_PARTS: usize = 21;
/// Pattern of the addresses that users write: without credentials, with at least two parts of a path.
pub const ADDRESS_PATTERN: &str = r"^(https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?/|ssh://(git@)?[A-Za-z0-9.-]+(:[0-9]{1,5})?/|git@[A-Za-z0-9.-]+:)[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+){1,20}/?$";

/// A Git repository at a host. Two addresses of the same repository are equal, whether they are for HTTPS or SSH.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GitAddress {
    host: String,
    path: String,
}

impl GitAddress {
    /// Finds the repository in `https://HOST/OWNER/NAME.git`, `ssh://git@HOST/OWNER/NAME` or `git@HOST:OWNER/NAME`. The owner can have
    /// several parts. The port of HTTP is a part of the host, and that of SSH is not.
    #[must_use]
    pub fn parse(address: &str) -> Option<Self> {
        if address.len() > MAX_GIVEN {
            return None;
        }
        let (authority, path, has_web_port) = match address.split_once("://") {
            Some(("https" | "http", rest)) => rest.split_once('/').map(|(authority, path)| (authority, path, true))?,
            Some(("ssh", rest)) => rest.split_once('/').map(|(authority, path)| (authority, path, false))?,
            Some(_) => return None,
            None => address.split_once(':').map(|(authority, path)| (authority, path, false))?,
        };
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_ascii_lowercase();
        let (name, port) = host.split_once(':').unwrap_or((&host, ""));
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        if name.is_empty() || !name.chars().all(is_name) || port.len() > 5 || !port.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let host = match port {
            "" | "443" => name.to_owned(),
            port if has_web_port => format!("{name}:{port}"),
            _ => name.to_owned(),
        };
        let path = path.trim_matches('/');
        let path = path.strip_suffix(".git").unwrap_or(path);
        let parts = path.split('/');
        let is_plain = |part: &str| {
            let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '~' | '-');
            !matches!(part, "" | "." | "..") && part.chars().all(is_safe)
        };
        let is_path = (2..=MAX_PARTS).contains(&parts.clone().count()) && parts.clone().all(is_plain);
        is_path.then(|| Self { host, path: path.to_owned() })
    }

    /// The host in lower case, with its port for HTTP unless that is 443.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Owner and name, separated by `/`. Each part has only letters, digits, `.`, `_`, `~` and `-`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether the owner has only one part, as at all forges except GitLab.
    #[must_use]
    pub fn has_one_owner(&self) -> bool {
        self.path.matches('/').count() == 1
    }
}

/// Returns an address without user name and password. The user `git` of SSH stays.
#[must_use]
pub fn without_credentials(address: &str) -> String {
    let (scheme, rest) = address.find("://").map_or(("", address), |at| address.split_at(at + 3));
    match rest.rsplit_once('@') {
        None => address.to_owned(),
        Some(("git", _)) if !scheme.starts_with("http") => address.to_owned(),
        Some((_, rest)) => format!("{scheme}{rest}"),
    }
}

/// Returns an address as it may be stored. Empty: it is not the address of a Git repository.
#[must_use]
pub fn recorded(address: &str) -> String {
    if address.len() > MAX_GIVEN {
        return String::new();
    }
    let text = without_credentials(address);
    if text.len() <= MAX_ADDRESS && GitAddress::parse(&text).is_some() { text } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_found_in_each_form_of_its_address() {
        for (address, host, path) in [
            ("https://github.com/acme/shop.git", "github.com", "acme/shop"),
            ("https://GitHub.com/acme/shop/", "github.com", "acme/shop"),
            ("https://github.com:443/acme/shop", "github.com", "acme/shop"),
            ("http://git.example.com:8443/acme/team/shop.git", "git.example.com:8443", "acme/team/shop"),
            ("https://user:pass@github.com/acme/shop", "github.com", "acme/shop"),
            ("https://user:p@ss@github.com/acme/shop", "github.com", "acme/shop"),
            ("ssh://git@git.example.com:2222/acme/shop.git", "git.example.com", "acme/shop"),
            ("git@github.com:acme/shop.git", "github.com", "acme/shop"),
            ("git@github.com:/acme/shop.git", "github.com", "acme/shop"),
            ("git@bitbucket.org:~me/my_shop.x", "bitbucket.org", "~me/my_shop.x"),
        ] {
            let found = GitAddress::parse(address).unwrap();
            assert_eq!((found.host(), found.path()), (host, path), "{address}");
        }
        let same = ["https://github.com/acme/shop.git", "git@github.com:acme/shop"].map(GitAddress::parse);
        assert_eq!(same[0], same[1]);
    }

    #[test]
    fn a_hostile_address_is_no_repository() {
        let long = format!("https://github.com/acme/{}", "x".repeat(10 * 1024 * 1024));
        let deep = format!("https://gitlab.com/{}", "a/".repeat(40));
        for address in [
            "",
            "shop",
            "https://github.com",
            "https://github.com/shop",
            "https://charts.example.com/shop",
            "oci://ghcr.io/acme/shop",
            "file:///etc/passwd",
            "javascript:alert(1)//acme/shop",
            "javascript://github.com/acme/shop",
            "https://github.com/acme/../shop",
            "https://github.com/./acme/shop",
            "https://github.com/acme/sh%2Fop",
            "https://github.com/acme/shop?a=b",
            "https://github.com/acme/shop#x",
            "https://github.com\\@evil.example/acme/shop",
            "https://user:pa/ss@github.com/acme/shop",
            "https://github.com/acme/sh\nop",
            "https://github.com/acme/sh\u{202e}op",
            "https://git hub.com/acme/shop",
            "https://[::1]/acme/shop",
            "https://github.com:port/acme/shop",
            "https://github.com:999999/acme/shop",
            "https:///acme/shop",
            "@:acme/shop",
            &deep,
            &long,
        ] {
            assert_eq!((GitAddress::parse(address), recorded(address)), (None, String::new()), "{address:.80}");
        }
    }

    #[test]
    fn credentials_are_removed() {
        for (address, stored) in [
            ("https://github.com/acme/shop.git", "https://github.com/acme/shop.git"),
            ("https://user:t0ken@github.com/acme/shop.git", "https://github.com/acme/shop.git"),
            ("https://t0ken@github.com/acme/shop.git", "https://github.com/acme/shop.git"),
            ("https://git@github.com/acme/shop.git", "https://github.com/acme/shop.git"),
            ("https://user:t0@ken@github.com/acme/shop", "https://github.com/acme/shop"),
            ("ssh://user:t0ken@github.com/acme/shop", "ssh://github.com/acme/shop"),
            ("ssh://git@github.com/acme/shop", "ssh://git@github.com/acme/shop"),
            ("git@github.com:acme/shop.git", "git@github.com:acme/shop.git"),
        ] {
            assert_eq!(recorded(address), stored);
        }
        // The text is shown although it is not an address of a Git repository.
        assert_eq!(without_credentials("https://user:t0/ken@charts.example.com"), "https://charts.example.com");
        assert_eq!(without_credentials("oci://ghcr.io/acme/charts"), "oci://ghcr.io/acme/charts");
        let token = format!("https://x:{}@github.com/acme/shop", "t".repeat(300));
        assert_eq!(recorded(&token), "https://github.com/acme/shop");
        assert_eq!(recorded(&format!("https://github.com/acme/{}", "x".repeat(MAX_ADDRESS))), "");
    }
}
