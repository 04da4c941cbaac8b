//! The address of a Git repository.
//!
//! In: a text from an application object or from a user, which can contain anything. Out: the repository at its host ([`GitAddress`]), or
//! the text as it may be stored ([`recorded`]): short, and without credentials. Both exist only for addresses with plain names, so a part of an
//! address needs no escaping in a URL. Also removes credentials from the URLs in any text.

/// Maximum length of an address that is stored, in bytes.
pub const MAX_ADDRESS: usize = 256;
/// Maximum length of an address with credentials, in bytes.
pub const MAX_GIVEN: usize = 1024;
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
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let host = host.to_ascii_lowercase();
        let (name, port) = host.split_once(':').unwrap_or((&host, ""));
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        let is_port = port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit());
        // A browser reads a backslash as a slash, and would open another host.
        if name.is_empty() || !name.chars().all(is_name) || !is_port || user.contains('\\') {
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

/// Returns a text in which no URL has a user name, a password, a query or a fragment. The user `git` of SSH stays.
#[must_use]
pub fn without_credentials(text: &str) -> String {
    text.split_inclusive(char::is_whitespace).map(of_word).collect()
}

/// The same for a text without spaces, except one at its end. Without the query, it can also lose further URLs.
fn of_word(word: &str) -> String {
    let text = word.trim_end();
    let (mut shown, mut rest) = (String::with_capacity(word.len()), text);
    while let Some((before, after)) = rest.split_once("//") {
        shown.push_str(before);
        shown.push_str("//");
        let authority = after.split(['/', '?', '#']).next().unwrap_or_default();
        let is_host = authority.split_once(':').is_none_or(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        // A password can contain the characters that end the authority.
        let user = authority.rfind('@').or_else(|| if is_host { None } else { after.rfind('@') });
        let user = user.filter(|at| !(before.ends_with("ssh:") && after.get(..*at) == Some("git")));
        rest = user.map_or(after, |at| &after[at + 1..]);
    }
    shown.push_str(rest);
    let path = shown.find("://").map_or(shown.len(), |at| at + 3);
    let end = shown[path..].find(['?', '#']).map_or(shown.len(), |at| path + at);
    shown.truncate(end);
    shown + &word[text.len()..]
}

/// Returns an address as it may be shown: [`without_credentials`], also in the form `USER@HOST:PATH`.
#[must_use]
pub fn shown(address: &str) -> String {
    match address.rsplit_once('@') {
        Some((user, rest)) if user != "git" && !address.contains("//") => rest.to_owned(),
        _ => without_credentials(address),
    }
}

/// Returns an address as it may be stored. Empty: it is not the address of a Git repository.
#[must_use]
pub fn recorded(address: &str) -> String {
    let text = GitAddress::parse(address).map(|_| shown(address)).filter(|text| text.len() <= MAX_ADDRESS);
    text.unwrap_or_default()
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
            ("t0ken@github.com:acme/shop.git", "github.com:acme/shop.git"),
        ] {
            assert_eq!(recorded(address), stored);
        }
        // The text is shown although it is not an address of a Git repository.
        assert_eq!(shown("https://user:t0/ken@charts.example.com"), "https://charts.example.com");
        assert_eq!(shown("t0ken@example.com:charts"), "example.com:charts");
        assert_eq!(shown("oci://ghcr.io/acme/charts"), "oci://ghcr.io/acme/charts");
        assert_eq!(shown("https://git.example.com/@team/x/y.git"), "https://git.example.com/@team/x/y.git");
        let token = format!("https://x:{}@github.com/acme/shop", "t".repeat(300));
        assert_eq!(recorded(&token), "https://github.com/acme/shop");
        assert_eq!(recorded(&format!("https://github.com/acme/{}", "x".repeat(MAX_ADDRESS))), "");
    }

    #[test]
    fn urls_in_a_text_have_no_credentials() {
        for (text, want) in [
            ("https://git.example.com/shop.git", "https://git.example.com/shop.git"),
            ("https://user:sesame@git.example.com/shop.git", "https://git.example.com/shop.git"),
            ("https://user:a,b@c@git.example.com", "https://git.example.com"),
            ("https://user:p/w@git.example.com/x", "https://git.example.com/x"),
            ("https://user:p?w@git.example.com/x", "https://git.example.com/x"),
            ("https://git.example.com/x.git?private_token=a,b", "https://git.example.com/x.git"),
            ("https://git.example.com/x.git#token", "https://git.example.com/x.git"),
            ("https://a.example.com,https://u:p@b.example.com/x@1", "https://a.example.com,https://b.example.com/x@1"),
            ("https://u:p@a.example.com?b=c https://u:p@d.example.com", "https://a.example.com https://d.example.com"),
            ("ssh://git@git.example.com:22/shop", "ssh://git@git.example.com:22/shop"),
            ("git@git.example.com:shop.git", "git@git.example.com:shop.git"),
            ("see https://example.com or write to a@b.c", "see https://example.com or write to a@b.c"),
            ("main@sha1:5f3d2c1", "main@sha1:5f3d2c1"),
            ("is it? #red\n", "is it? #red\n"),
            ("a//b", "a//b"),
            ("//", "//"),
            ("", ""),
        ] {
            assert_eq!(without_credentials(text), want);
        }
    }
}
