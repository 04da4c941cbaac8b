//! The path of a built-in template after the URL of a user. Pure.
//!
//! In: the URL, and the template's path. Out: the URL of the requests ([`Joined`]), and what users must know about it ([`note`]). Many services are behind a prefix, such as `/api/v3` of GitHub
//! Enterprise Server, and people also write the beginning of the path, such as `/api/v4`. Both keep their meaning: the prefix stays, and what
//! the URL already has is not repeated.

use serde_json::{Map, Value};

use super::defaults::URL;
use crate::render::{CredentialsKind, builtin};
use relaybook_api::notification::Builtin;

/// The URL of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Joined {
    /// The URL as it is. It has the whole path, a template, a query, or an empty segment.
    Own,
    /// The URL with the path of the template, or with the rest of this path.
    Appended(String),
    /// The URL has a query but no path.
    OnlyQuery,
}

/// Joins a URL and the path of a built-in template.
pub(crate) fn join(url: &str, path: &str) -> Joined {
    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    let end = authority.find(['/', '?', '#']).unwrap_or(authority.len());
    let own = &authority[end..];
    if end == 0 {
        return Joined::Own;
    }
    if !own.is_empty() && (!own.starts_with('/') || matches!(own.as_bytes().get(1), Some(b'?' | b'#'))) {
        return Joined::OnlyQuery;
    }
    if own.contains("{{") || own.contains("//") || own.contains(['?', '#']) {
        return Joined::Own;
    }
    let base = url.trim_end_matches('/');
    match present(own.trim_end_matches('/'), path) {
        Some(length) if length == path.len() => Joined::Own,
        length => Joined::Appended(format!("{base}{}", &path[length.unwrap_or_default()..])),
    }
}

/// Returns what a user must know about the URL of a merged spec: the field and a sentence. A prefix and the URL in a Secret do not show where
/// requests go.
#[must_use]
pub fn note(spec: &Map<String, Value>) -> Option<(&'static str, String)> {
    let name = serde_json::from_value::<Builtin>(spec.get("template")?.get("builtin")?.clone()).ok()?;
    let metadata = &builtin(name).metadata;
    let path = metadata.path.as_deref()?;
    let endpoint = |field: &str| spec.get("endpoint").and_then(|endpoint| endpoint.get(field));
    let Some(url) = endpoint("url").and_then(Value::as_str) else {
        let is_usual = metadata.credentials.kind == CredentialsKind::Url || endpoint("urlFrom").is_none();
        let words = || format!("the URL in the Secret is used as it is, so it must contain the path, such as {path}");
        return (!is_usual).then(|| ("spec.endpoint.urlFrom", words()));
    };
    let has_path = url.split_once("://").is_some_and(|(_, rest)| rest.trim_end_matches('/').contains('/'));
    match join(url, path) {
        Joined::Appended(whole) if has_path => {
            Some((URL, format!("requests go to {whole}; to send to {url} itself, end it with a question mark")))
        }
        _ => None,
    }
}

/// Returns how many bytes of the template's path the end of a literal path already has. `None`: it has nothing of it.
fn present(own: &str, path: &str) -> Option<usize> {
    let own: Vec<&str> = own.split('/').skip(1).collect();
    let theirs = segments(path);
    // Without a literal beginning, anything would match.
    let begins_literally = theirs.first().is_some_and(|first| !first.contains("{{"));
    (1..=theirs.len().min(own.len())).rev().find_map(|count| {
        let (ours, begun) = (&own[own.len() - count..], &theirs[..count]);
        let is_whole = count == theirs.len();
        if !(ours.iter().zip(begun).all(|(own, their)| fits(own, their)) && (is_whole || begins_literally)) {
            return None;
        }
        let before: usize = begun.iter().map(|segment| segment.len() + 1).sum();
        let last = begun.last()?;
        // Such as `alerts{{#if …}}/close{{/if}}` after `alerts`.
        let head = last.split("{{").next().unwrap_or_default();
        match ours.last() {
            Some(own) if !head.is_empty() && *own == head => Some(before - last.len() + head.len()),
            _ if is_whole => Some(path.len()),
            _ => Some(before),
        }
    })
}

/// Whether a literal segment can be a rendered segment of the template.
fn fits(own: &str, their: &str) -> bool {
    match their.split_once("{{") {
        Some((head, _)) => !own.is_empty() && own.starts_with(head),
        None => own == their,
    }
}

/// Returns the segments of a path with templates, without its query and without an empty last segment. A slash in a tag or in a block separates
/// nothing.
fn segments(path: &str) -> Vec<&str> {
    let (mut all, mut start, mut at, mut depth) = (Vec::new(), path.len().min(1), path.len().min(1), 0_usize);
    while let Some(rest) = path.get(at..).filter(|rest| !rest.is_empty()) {
        if let Some(tag) = rest.strip_prefix("{{") {
            depth = match tag.as_bytes().first() {
                Some(b'#') => depth + 1,
                Some(b'/') => depth.saturating_sub(1),
                _ => depth,
            };
            at += rest.find("}}").map_or(rest.len(), |end| end + 2);
            continue;
        }
        if depth == 0 && rest.starts_with('?') {
            break;
        }
        if depth == 0 && rest.starts_with('/') {
            all.push(&path[start..at]);
            start = at + 1;
        }
        at += rest.chars().next().map_or(1, char::len_utf8);
    }
    all.push(&path[start.min(at)..at]);
    if all.last().is_some_and(|last| last.is_empty()) {
        all.pop();
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const STATUS: &str = "/api/v1/repos/{{parameters.owner}}/{{parameters.repository}}/statuses/{{#if (eq type \"Removed\")}}\
        {{commit previousRevision}}{{else}}{{commit revision}}{{/if}}";
    const TENANT: &str = "/{{parameters.organization}}/{{parameters.project}}/_apis/statuses?api-version=7.1";
    const ALERTS: &str =
        "/v2/alerts{{#if (eq severity \"error\")}}{{else}}/{{sha256 parameters.key}}/close{{/if}}?identifierType=alias";

    #[test]
    fn the_path_of_a_template_is_appended_after_the_prefix_of_the_url() {
        let rest = |head: &str| STATUS.strip_prefix(head).unwrap().to_owned();
        for (url, path, expected) in [
            ("https://a.net", STATUS, Some(format!("https://a.net{STATUS}"))),
            ("https://a.net/", STATUS, Some(format!("https://a.net{STATUS}"))),
            ("https://a.net:8443/git", STATUS, Some(format!("https://a.net:8443/git{STATUS}"))),
            ("https://a.net/git/", STATUS, Some(format!("https://a.net/git{STATUS}"))),
            ("https://a.net/api/v3", STATUS, Some(format!("https://a.net/api/v3{STATUS}"))),
            ("https://a.net/api/v1", STATUS, Some(format!("https://a.net/api/v1{}", rest("/api/v1")))),
            ("https://a.net/git/api/v1/", STATUS, Some(format!("https://a.net/git/api/v1{}", rest("/api/v1")))),
            ("https://a.net/api", STATUS, Some(format!("https://a.net/api{}", rest("/api")))),
            (
                "https://a.net/api/v1/repos/acme/shop",
                STATUS,
                Some(format!(
                    "https://a.net/api/v1/repos/acme/shop{}",
                    rest("/api/v1/repos/{{parameters.owner}}/{{parameters.repository}}")
                )),
            ),
            ("https://a.net/git/api/v1/repos/acme/shop/statuses/0123", STATUS, None),
            ("https://a.net/repos/acme/shop/statuses/{{commit revision}}", STATUS, None),
            ("https://a.net/elsewhere?", STATUS, None),
            ("https://a.net/elsewhere?token=x", STATUS, None),
            ("https://a.net/api/v2/alerts", "/api/v2/alerts", None),
            ("https://a.net/alertmanager/api/v2/alerts/", "/api/v2/alerts", None),
            ("https://a.net/alertmanager", "/api/v2/alerts", Some("https://a.net/alertmanager/api/v2/alerts".to_owned())),
            ("https://a.net/tfs", TENANT, Some(format!("https://a.net/tfs{TENANT}"))),
            (
                "https://a.net/tfs/acme/shop/_apis/statuses",
                TENANT,
                Some("https://a.net/tfs/acme/shop/_apis/statuses?api-version=7.1".to_owned()),
            ),
            ("https://a.net/jsm/v2/alerts", ALERTS, Some(format!("https://a.net/jsm{ALERTS}"))),
            ("https://a.net/jsm", ALERTS, Some(format!("https://a.net/jsm{ALERTS}"))),
            ("https://a.net/v2/enqueue", "/v2/{{#if drifted}}change/{{/if}}enqueue", None),
            (
                "https://a.net/v2",
                "/v2/{{#if drifted}}change/{{/if}}enqueue",
                Some("https://a.net/v2/{{#if drifted}}change/{{/if}}enqueue".to_owned()),
            ),
        ] {
            let joined = join(url, path);
            assert_eq!(joined, expected.map_or(Joined::Own, Joined::Appended), "{url} {path}");
        }
        for url in ["https://a.net?x=y", "https://a.net/?x=y", "https://a.net/#x", "https://a.net#x"] {
            assert_eq!(join(url, STATUS), Joined::OnlyQuery, "{url}");
        }
        for url in ["https://", "https:///x", "nothing"] {
            assert_eq!(join(url, STATUS), Joined::Own, "{url}");
        }
    }

    /// How much of the path a user writes makes no difference.
    #[test]
    fn each_built_in_template_keeps_the_prefix_of_the_url() {
        let mut checked = 0;
        for name in Builtin::ALL {
            let Some(path) = &builtin(name).metadata.path else { continue };
            let whole = Joined::Appended(format!("https://a.net/some/prefix{path}"));
            let mut url = "https://a.net/some/prefix".to_owned();
            assert_eq!(join(&url, path), whole, "{}", name.as_str());
            let literal = segments(path).into_iter().take_while(|segment| !segment.contains("{{"));
            for segment in literal {
                url = format!("{url}/{segment}");
                let expected = if url == format!("https://a.net/some/prefix{path}") { Joined::Own } else { whole.clone() };
                assert_eq!(join(&url, path), expected, "{}: {url}", name.as_str());
                checked += 1;
            }
        }
        assert!(checked > 15, "{checked}");
    }

    #[test]
    fn a_prefix_and_a_url_in_a_secret_are_noted() {
        let from = json!({"urlFrom": {"secretKeyRef": {"name": "a", "key": "url"}}});
        let url = |url: &str| json!({"url": url});
        let noted = |spec: Value| note(spec.as_object().unwrap());
        for (name, endpoint, words) in [
            (
                "alertmanager",
                url("https://a.net/am"),
                Some("requests go to https://a.net/am/api/v2/alerts; to send to https://a.net/am itself"),
            ),
            ("alertmanager", url("https://a.net/api/v2"), Some("requests go to https://a.net/api/v2/alerts;")),
            ("alertmanager", url("https://a.net/"), None),
            ("alertmanager", url("https://a.net"), None),
            ("alertmanager", url("https://a.net/am?"), None),
            ("alertmanager", url("https://a.net/am/api/v2/alerts"), None),
            ("alertmanager", from.clone(), Some("must contain the path, such as /api/v2/alerts")),
            ("slack", from, None),
            ("slack", url("https://a.net/x"), None),
            ("alertmanager", json!({}), None),
        ] {
            let said = noted(json!({"template": {"builtin": name}, "endpoint": endpoint}));
            match words {
                None => assert_eq!(said, None, "{name} {endpoint}"),
                Some(words) => assert!(said.as_ref().is_some_and(|(_, said)| said.contains(words)), "{endpoint}: {said:?}"),
            }
        }
        assert_eq!(noted(json!({"template": {"builtin": "unknown"}, "endpoint": {"url": "https://a.net/x"}})), None);
        assert_eq!(noted(json!({})), None);
    }

    #[test]
    fn a_path_is_split_into_segments_outside_of_tags() {
        for (path, expected) in [
            ("/a/b", &["a", "b"][..]),
            ("/a/b/", &["a", "b"]),
            ("/a?b/c", &["a"]),
            ("/a{{#if b}}/c{{/if}}/d", &["a{{#if b}}/c{{/if}}", "d"]),
            ("/{{replace a \"/\" \"-\"}}/b", &["{{replace a \"/\" \"-\"}}", "b"]),
            ("/é/ü", &["é", "ü"]),
            ("/", &[]),
            ("/{{", &["{{"]),
        ] {
            assert_eq!(segments(path), expected, "{path}");
        }
    }
}
