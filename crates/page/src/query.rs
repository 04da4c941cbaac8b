//! The part of a URL that selects what a screen shows: its path and its query. Pure.
//!
//! Every filter is in the URL, so an address is a permanent link to what a person sees. A value that cannot be used is named on the page, and
//! the rest applies.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use relaybook_api::values::names::{is_label, is_subdomain};
use relaybook_api::values::permalink;
use relaybook_api::values::permalink::encoded;

/// Maximum length of a text that is searched for, in characters.
const LONGEST_TEXT: usize = 256;
/// Maximum length of a query.
pub(super) const LONGEST_QUERY: usize = 4096;

/// A screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Screen {
    /// All pipelines.
    Overview,
    /// One pipeline, by namespace and name.
    Pipeline(String, String),
    /// One delivery.
    Delivery(String, String),
    /// One notification.
    Notification(String, String),
    /// The receivers by origin.
    Receivers,
    /// The deliveries that are pending.
    Pending,
    /// The deliveries that were parked.
    Parked,
    /// The clusters.
    Clusters,
    /// The search by revision.
    Search,
}

impl Screen {
    /// Returns the screen with this path.
    pub(super) fn of(path: &str) -> Option<Self> {
        let part = |text: &str| {
            let text = percent_encoding::percent_decode_str(text).decode_utf8().ok()?.into_owned();
            is_subdomain(&text).then_some(text)
        };
        let parts: Vec<_> = path.strip_prefix('/')?.split('/').collect();
        Some(match *parts.as_slice() {
            [""] => Self::Overview,
            ["receivers"] => Self::Receivers,
            ["pending"] => Self::Pending,
            ["parked"] => Self::Parked,
            ["clusters"] => Self::Clusters,
            ["search"] => Self::Search,
            ["pipelines", namespace, name] => Self::Pipeline(part(namespace)?, part(name)?),
            ["deliveries", namespace, name] => Self::Delivery(part(namespace)?, part(name)?),
            ["notifications", namespace, name] => Self::Notification(part(namespace)?, part(name)?),
            _ => return None,
        })
    }

    /// Returns the path of the screen.
    pub(super) fn path(&self) -> String {
        match self {
            Self::Overview => "/".to_owned(),
            Self::Receivers => "/receivers".to_owned(),
            Self::Pending => "/pending".to_owned(),
            Self::Parked => "/parked".to_owned(),
            Self::Clusters => "/clusters".to_owned(),
            Self::Search => "/search".to_owned(),
            Self::Pipeline(namespace, name) => permalink::pipeline(namespace, name),
            Self::Delivery(namespace, name) => permalink::delivery(namespace, name),
            Self::Notification(namespace, name) => permalink::notification(namespace, name),
        }
    }
}

/// Which pipelines the overview shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shown {
    /// All.
    #[default]
    All,
    /// Those that need attention.
    Wrong,
    /// Those with a failed target.
    Failed,
    /// Those that cannot be followed, or with a notification that cannot be sent.
    NotReady,
    /// Those with a target that is gone, drifted or unknown.
    Unclear,
    /// Those with a target that is updating.
    InProgress,
    /// Those of which every target is ready.
    Current,
}

impl Shown {
    /// All choices, with the text in the URL and the label.
    pub(super) const ALL: [(Self, &'static str, &'static str); 7] = [
        (Self::All, "all", "All"),
        (Self::Wrong, "wrong", "Needs attention"),
        (Self::Failed, "failed", "Failed"),
        (Self::NotReady, "not-ready", "Other problems"),
        (Self::Unclear, "unclear", "Gone, drifted or unknown"),
        (Self::InProgress, "in-progress", "In progress"),
        (Self::Current, "current", "Current"),
    ];

    fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, name, _)| *name == text).map(|(shown, _, _)| shown)
    }

    /// Returns the text in the URL.
    pub(super) fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(shown, _, _)| *shown == self).map_or("all", |(_, name, _)| name)
    }
}

/// What the pipelines of the overview are grouped by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Group {
    /// Nothing.
    #[default]
    None,
    /// The label `team`.
    Team,
    /// The namespace.
    Namespace,
    /// The kind of the application objects.
    Kind,
}

impl Group {
    /// All choices, with the text in the URL and the label.
    pub(super) const ALL: [(Self, &'static str, &'static str); 4] = [
        (Self::None, "none", "None"),
        (Self::Team, "team", "Team"),
        (Self::Namespace, "namespace", "Namespace"),
        (Self::Kind, "kind", "Kind"),
    ];

    fn of(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, name, _)| *name == text).map(|(group, _, _)| group)
    }

    /// Returns the text in the URL.
    pub(super) fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(group, _, _)| *group == self).map_or("none", |(_, name, _)| name)
    }
}

/// The time that a timeline shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Range {
    /// Its start. `None`: the oldest that is known.
    pub(super) from: Option<Timestamp>,
    /// Its end. `None`: now.
    pub(super) to: Option<Timestamp>,
}

/// The choices of a time range, with their labels. The first one has no limit.
pub(super) const RANGES: [(&str, &str); 6] =
    [("", "All"), ("15m", "15 min"), ("1h", "1 h"), ("6h", "6 h"), ("24h", "24 h"), ("168h", "7 d")];

/// The query of a URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    /// The namespace to show. `None`: all.
    pub(super) namespace: Option<String>,
    /// The text to search for.
    pub(super) text: String,
    /// Which pipelines to show.
    pub(super) shown: Shown,
    /// What they are grouped by.
    pub(super) group: Group,
    /// The page of a list, from 0.
    pub(super) page: usize,
    /// The token of the next page of a list of the API server.
    pub(super) after: Option<String>,
    /// The choice of [`RANGES`], or empty.
    pub(super) range: String,
    /// The start of the time range.
    pub(super) from: Option<Timestamp>,
    /// The end of the time range.
    pub(super) to: Option<Timestamp>,
    /// What cannot be used, as sentences.
    pub(super) wrong: Vec<String>,
}

impl Query {
    /// Reads the query of a URL.
    pub(super) fn read(text: &str) -> Self {
        let mut query = Self::default();
        if text.len() > LONGEST_QUERY {
            query.wrong.push(format!("The filters are longer than {LONGEST_QUERY} bytes, so none applies."));
            return query;
        }
        for (name, value) in url::form_urlencoded::parse(text.as_bytes()).filter(|(_, value)| !value.is_empty()) {
            query.set(&name, &value);
        }
        if query.from.zip(query.to).is_some_and(|(from, to)| from >= to) {
            query.wrong.push("from is not before to, so neither applies.".to_owned());
            (query.from, query.to) = (None, None);
        }
        query
    }

    fn set(&mut self, name: &str, value: &str) {
        let mut wrong = |what: &str| self.wrong.push(format!("{name} is not {what}, so it does not apply."));
        let time = || value.parse::<Timestamp>().ok();
        match name {
            "namespace" if is_namespace(value) => self.namespace = Some(value.to_owned()),
            "namespace" => wrong("the name of a namespace"),
            "q" if value.chars().count() <= LONGEST_TEXT => value.trim().clone_into(&mut self.text),
            "q" => wrong("a text of at most 256 characters"),
            "state" => match Shown::of(value) {
                Some(shown) => self.shown = shown,
                None => wrong("one of all, wrong, failed, not-ready, unclear, in-progress and current"),
            },
            "group" => match Group::of(value) {
                Some(group) => self.group = group,
                None => wrong("one of team, namespace, kind and none"),
            },
            "page" => match value.parse::<usize>() {
                Ok(page @ 1..=100_000) => self.page = page - 1,
                _ => wrong("the number of a page"),
            },
            "after" if value.len() <= 2048 && value.is_ascii() => self.after = Some(value.to_owned()),
            "after" => wrong("the token of a page"),
            "range" if RANGES.iter().any(|(range, _)| *range == value) => value.clone_into(&mut self.range),
            "range" => wrong("one of 15m, 1h, 6h, 24h and 168h"),
            "from" => match time() {
                Some(time) => self.from = Some(time),
                None => wrong("a time such as 2026-03-01T12:00:00Z"),
            },
            "to" => match time() {
                Some(time) => self.to = Some(time),
                None => wrong("a time such as 2026-03-01T12:00:00Z"),
            },
            // Proxies and chat programs add parameters of their own.
            _ => {}
        }
    }

    /// Returns the time range at this time.
    pub(super) fn range(&self, now: Timestamp) -> Range {
        let span = relaybook_api::duration(&self.range).and_then(|span| SignedDuration::try_from(span).ok());
        let from = span.and_then(|span| now.checked_sub(span).ok());
        Range { from: self.from.or(from), to: self.to }
    }

    /// Returns the path with this query, without the parts that have their default.
    pub(super) fn link(&self, path: &str) -> String {
        let page = (self.page > 0).then(|| (self.page + 1).to_string());
        let time = |time: Option<Timestamp>| time.map(|time| time.to_string());
        let all = [
            ("namespace", self.namespace.clone()),
            ("q", Some(self.text.clone())),
            ("state", Some(self.shown.name().to_owned()).filter(|_| self.shown != Shown::All)),
            ("group", Some(self.group.name().to_owned()).filter(|_| self.group != Group::None)),
            ("range", Some(self.range.clone())),
            ("from", time(self.from)),
            ("to", time(self.to)),
            ("page", page),
            ("after", self.after.clone()),
        ];
        let mut link = path.to_owned();
        let given = all.into_iter().filter_map(|(name, value)| Some((name, value.filter(|value| !value.is_empty())?)));
        for (index, (name, value)) in given.enumerate() {
            let separator = if index == 0 { '?' } else { '&' };
            // A write to a string cannot fail.
            let _ = write!(link, "{separator}{name}={}", encoded(&value));
        }
        link
    }

    /// Returns the flag of the namespace for a command.
    pub(super) fn scope(&self) -> String {
        self.namespace.as_ref().map_or_else(|| "-A".to_owned(), |namespace| format!("-n {namespace}"))
    }

    /// Returns a query with only the namespace, for links to other screens.
    pub(super) fn elsewhere(&self) -> Self {
        Self { namespace: self.namespace.clone(), ..Self::default() }
    }
}

/// An empty text: all namespaces.
fn is_namespace(text: &str) -> bool {
    text.is_empty() || is_label(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_screen_or_nothing() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let (ns, name) = pair("team-a", "shop.eu");
        for (path, screen) in [
            ("/", Some(Screen::Overview)),
            ("/parked", Some(Screen::Parked)),
            ("/pending", Some(Screen::Pending)),
            ("/pipelines/team-a/shop.eu", Some(Screen::Pipeline(ns.clone(), name.clone()))),
            ("/pipelines/team%2Da/shop.eu", Some(Screen::Pipeline(ns, name))),
            ("/pipelines/team-a", None),
            ("/pipelines/team-a/", None),
            ("/pipelines/../secrets", None),
            ("/pipelines/a%2fb/c", None),
            ("/pipelines/a/%00", None),
            ("/pipelines/A/b", None),
            ("/pipelines/a/b/c", None),
            ("//evil.example", None),
            ("", None),
        ] {
            assert_eq!(Screen::of(path), screen, "{path}");
        }
    }

    #[test]
    fn a_query_is_read_back_from_its_link() {
        let text = "namespace=team-a&q=a%26b%20%C3%A9&state=failed&group=team&range=6h&from=2026-03-01T12:00:00Z&page=3&after=a%2Bb%3D";
        let query = Query::read(text);
        assert!(query.wrong.is_empty(), "{:?}", query.wrong);
        assert_eq!((query.text.as_str(), query.page, query.after.as_deref()), ("a&b é", 2, Some("a+b=")));
        let link = query.link("/");
        assert_eq!(Query::read(link.strip_prefix("/?").unwrap()), query);
        assert_eq!(Query::default().link("/clusters"), "/clusters");
        assert_eq!(query.elsewhere().link("/"), "/?namespace=team-a");
    }

    #[test]
    fn a_filter_that_cannot_be_used_is_named() {
        for (text, name) in [
            ("namespace=Team", "namespace"),
            ("state=broken", "state"),
            ("group=colour", "group"),
            ("page=0", "page"),
            ("page=x", "page"),
            ("range=2y", "range"),
            ("from=yesterday", "from"),
            ("from=2026-03-02T00:00:00Z&to=2026-03-01T00:00:00Z", "from"),
        ] {
            let query = Query::read(text);
            assert!(query.wrong.len() == 1 && query.wrong[0].starts_with(name), "{text}: {:?}", query.wrong);
            assert_eq!(Query { wrong: Vec::new(), ..query }, Query::default(), "{text}");
        }
        assert_eq!(Query::read("utm_source=chat&namespace="), Query::default());
        assert!(Query::read(&"a=b&".repeat(2000)).wrong[0].contains("4096"));
    }

    #[test]
    fn a_range_ends_now() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let from = Query::read("range=1h").range(now).from.unwrap();
        assert_eq!(from.to_string(), "2026-03-01T11:00:00Z");
        assert_eq!(Query::default().range(now), Range::default());
    }
}
