//! The pieces of HTML that all screens share: the frame of a page, states, times, revisions, messages. Pure.
//!
//! Every text that comes from elsewhere is escaped by the templates. Nothing here writes a text without that.

use maud::{DOCTYPE, Markup, html};

use relaybook_text::cut_chars;

use crate::query::{Query, Screen};
use crate::screens::asset;
use crate::trouble::Trouble;
use relaybook_api::{Outcome, Status, Time};
use relaybook_tools::diagnosis::Finding;

/// Maximum number of characters of a revision in a table.
const REVISION: usize = 24;

/// What the frame of a page needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// The title, without the name of the product.
    pub(crate) title: String,
    /// The cluster that the page shows. Empty for somebody who is not signed in.
    pub(crate) place: String,
    pub(crate) screen: Option<Screen>,
    pub(crate) query: Query,
    /// The name of the caller. `None`: nobody is signed in, or the API server does not say.
    pub(crate) name: Option<String>,
    pub(crate) is_signed_in: bool,
    pub(crate) has_cookie: bool,
    /// The token of forms.
    pub(crate) form_token: String,
    /// Whether the page shows changes as they happen.
    pub(crate) is_live: bool,
    /// The flags that the commands on the page need.
    pub(crate) flags: String,
    pub(crate) now: Time,
}

/// Whether something needs attention, by colour. The words beside it say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Busy,
    Warn,
    Bad,
    Quiet,
}

impl Tone {
    /// Returns the CSS class.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Busy => "busy",
            Self::Warn => "warn",
            Self::Bad => "bad",
            Self::Quiet => "quiet",
        }
    }

    /// Returns the position in a list: what needs attention comes first.
    pub(crate) const fn rank(self) -> u8 {
        match self {
            Self::Bad => 0,
            Self::Warn => 1,
            Self::Busy => 2,
            Self::Good => 3,
            Self::Quiet => 4,
        }
    }

    /// Returns the tone of a status.
    pub(crate) const fn of_status(status: Option<Status>) -> Self {
        match status {
            Some(Status::Current) => Self::Good,
            Some(Status::InProgress) => Self::Busy,
            Some(Status::Failed) => Self::Bad,
            Some(Status::NotFound | Status::Terminating | Status::Unknown) => Self::Warn,
            None => Self::Quiet,
        }
    }

    /// Returns the tone of an outcome. `None`: the delivery is pending.
    pub(crate) const fn of_outcome(outcome: Option<Outcome>, has_failed: bool) -> Self {
        match outcome {
            Some(Outcome::Delivered) => Self::Good,
            Some(Outcome::Parked) => Self::Bad,
            Some(Outcome::Canceled | Outcome::Superseded) => Self::Quiet,
            None if has_failed => Self::Warn,
            None => Self::Busy,
        }
    }
}

/// Returns the word for a status, as the API has it.
pub(crate) const fn status_word(status: Option<Status>) -> &'static str {
    match status {
        Some(Status::Current) => "Current",
        Some(Status::InProgress) => "InProgress",
        Some(Status::Failed) => "Failed",
        Some(Status::NotFound) => "NotFound",
        Some(Status::Terminating) => "Terminating",
        Some(Status::Unknown) => "Unknown",
        None => "Not observed",
    }
}

/// Returns the word for an outcome, as the API has it. `None`: the delivery is pending.
pub(crate) const fn outcome_words(outcome: Option<Outcome>) -> &'static str {
    match outcome {
        Some(Outcome::Delivered) => "Delivered",
        Some(Outcome::Parked) => "Parked",
        Some(Outcome::Canceled) => "Canceled",
        Some(Outcome::Superseded) => "Superseded",
        None => "Pending",
    }
}

/// A word on the colour of its tone.
pub(crate) fn badge(tone: Tone, words: &str) -> Markup {
    html! { span class=(format!("badge {}", tone.class())) { (words) } }
}

/// A point in time as an age, with the time itself as the title. The script keeps the age current, and shows the zone of the reader.
pub(crate) fn age(time: Time, now: Time) -> Markup {
    html! { time datetime=(time.to_string()) title=(utc(time)) data-age="" { (age_words(time, now)) } }
}

/// How long something has been so, with the time itself as the title.
pub(crate) fn lasting(since: Time, now: Time) -> Markup {
    let seconds = now.as_second().saturating_sub(since.as_second()).max(0);
    html! { time datetime=(since.to_string()) title=(utc(since)) data-lasting="" { "for " (span(seconds)) } }
}

/// A point in time, in UTC. The script shows the zone of the reader.
pub(crate) fn moment(time: Time) -> Markup {
    html! { time datetime=(time.to_string()) title=(utc(time)) data-moment="" { (utc(time)) } }
}

/// A time of a day, in UTC. The script shows the zone of the reader.
pub(crate) fn clock(time: Time) -> Markup {
    html! { time datetime=(time.to_string()) title=(utc(time)) data-clock="" { (time.strftime("%H:%M:%S").to_string()) } }
}

/// A day and a time without the year, in UTC. The script shows the zone of the reader.
pub(crate) fn day(time: Time) -> Markup {
    html! { time datetime=(time.to_string()) title=(utc(time)) data-day="" { (time.strftime("%m-%d %H:%M").to_string()) } }
}

/// Returns a time in UTC for people.
pub(crate) fn utc(time: Time) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Returns how long ago a time is, or how far ahead.
pub(crate) fn age_words(time: Time, now: Time) -> String {
    let seconds = now.as_second().saturating_sub(time.as_second());
    if seconds < 0 { format!("in {}", span(-seconds)) } else { format!("{} ago", span(seconds)) }
}

/// Returns a number of seconds in its two largest units at most.
pub(crate) fn span(seconds: i64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Returns a number with a noun, whose plural has an `s`.
pub(crate) fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Returns a duration in milliseconds for people.
pub(crate) fn millis(millis: i64) -> String {
    if millis < 1000 { format!("{millis} ms") } else { format!("{}.{} s", millis / 1000, millis % 1000 / 100) }
}

/// Returns a revision with short hashes, for a table.
pub(crate) fn short_revision(revision: &str) -> String {
    let hash = |name: &str, digits: usize| {
        let (before, after) = revision.split_once(name)?;
        let is_hash = after.len() > digits && after.bytes().all(|c| c.is_ascii_hexdigit());
        is_hash.then(|| format!("{before}{name}{}", &after[..digits]))
    };
    let short = hash("sha1:", 7).or_else(|| hash("sha256:", 12));
    let is_commit = revision.len() == 40 && revision.bytes().all(|c| c.is_ascii_hexdigit());
    let short = short.or_else(|| is_commit.then(|| revision[..7].to_owned())).unwrap_or_else(|| revision.to_owned());
    cut_chars(&short, REVISION).into_owned()
}

/// A revision, with its full text as the title, and a link to the search for it.
pub(crate) fn revision(text: &str) -> Markup {
    if text.is_empty() {
        return html! { span.none { "—" } };
    }
    html! { a.revision href=(relaybook_api::values::permalink::search(text)) title=(text) { (short_revision(text)) } }
}

/// A message about something that cannot be shown.
pub(crate) fn trouble(trouble: &Trouble) -> Markup {
    html! { p.notice.warn role="status" { (trouble.sentence()) } }
}

/// A table that can be wider than the window. The name distinguishes its region from others.
pub(crate) fn scroll(name: &str, table: &Markup) -> Markup {
    html! { div.scroll tabindex="0" role="region" aria-label=(format!("Table: {name}")) { (table) } }
}

/// Returns a text as one argument for a POSIX shell. It gets quotes only if it needs them.
pub(crate) fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@+=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// The command that shows the same.
pub(crate) fn command(text: &str) -> Markup {
    html! {
        p.command { span.label { "The same on the command line" } code { (text) } }
    }
}

/// A number with a label.
pub(crate) fn figure(label: &str, value: &Markup) -> Markup {
    html! { div.figure { dt { (label) } dd { (value) } } }
}

/// Returns a text in which commands are between backticks.
pub(crate) fn with_code(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// What is wrong with the installation, above every screen.
#[must_use]
pub fn banners(findings: &[Finding]) -> Markup {
    html! {
        @for finding in findings {
            div.banner role="alert" { p { (finding.message) } p { (with_code(&finding.remedy)) } }
        }
    }
}

/// A whole page.
pub(crate) fn page(frame: &Frame, banners: &Markup, content: &Markup) -> Markup {
    let elsewhere = frame.query.elsewhere();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (frame.title) @if !frame.place.is_empty() { " · " (frame.place) } " · Relaybook" }
                link rel="stylesheet" href=(asset::STYLE.path());
                link rel="icon" href=(asset::ICON.path()) type="image/svg+xml";
                @if frame.is_signed_in { script src=(asset::SCRIPT.path()) defer {} }
            }
            // After an action, the address in the browser is not that of the screen.
            body data-live[frame.is_live && frame.is_signed_in] data-now=(frame.now.to_string())
                data-address=[frame.screen.as_ref().map(|screen| frame.query.link(&screen.path()))] {
                a.skip href="#content" { "Skip to the content" }
                header.top {
                    a.brand href=(elsewhere.link("/")) { (flag()) "Relaybook" }
                    @if !frame.place.is_empty() { span.place title="The cluster that this page shows" { (frame.place) } }
                    @if frame.is_signed_in { (navigation(frame, &elsewhere)) }
                }
                main #content tabindex="-1" {
                    div #done role="status" {}
                    div #live {
                        (banners)
                        @for wrong in &frame.query.wrong { p.notice.warn role="status" { (wrong) } }
                        (content)
                    }
                }
                footer {
                    @if !frame.flags.is_empty() { p { "The commands on this page need these flags: " code { (frame.flags) } } }
                    p { "Relaybook " (env!("CARGO_PKG_VERSION")) " · " span #zone { "Times are in UTC." } }
                    @if frame.is_signed_in { p #connection role="status" {} }
                }
            }
        }
    }
}

fn navigation(frame: &Frame, elsewhere: &Query) -> Markup {
    let screens = [
        (Screen::Overview, "Overview"),
        (Screen::Receivers, "Receivers"),
        (Screen::Pending, "Pending"),
        (Screen::Parked, "Parked"),
        (Screen::Clusters, "Clusters"),
    ];
    html! {
        nav aria-label="Screens" {
            ul {
                @for (screen, label) in &screens {
                    li {
                        a href=(elsewhere.link(&screen.path())) aria-current=[(frame.screen.as_ref() == Some(screen)).then_some("page")] { (label) }
                    }
                }
            }
        }
        form.search role="search" action="/search" {
            @if let Some(namespace) = &frame.query.namespace { input type="hidden" name="namespace" value=(namespace); }
            label.hidden for="search" { "Revision" }
            input #search type="search" name="q" placeholder="Revision" maxlength="256"
                value=(if frame.screen == Some(Screen::Search) { frame.query.text.as_str() } else { "" });
            button { "Search" }
        }
        div.who {
            @if let Some(name) = &frame.name { span title="The API server decides with this name what you see" { (name) } }
            @if frame.has_cookie {
                form method="post" action="/sign-out" {
                    input type="hidden" name="token" value=(frame.form_token);
                    button.plain { "Sign out" }
                }
            }
        }
    }
}

/// The sign of the product.
fn flag() -> Markup {
    html! {
        svg.flag viewBox="0 0 24 24" width="22" height="22" aria-hidden="true" {
            path d="M4 2v20" class="pole" {}
            path d="M5 4l15 4.5L5 13z" class="cloth" {}
        }
    }
}

/// The field and the button with which a namespace is selected.
pub(crate) fn namespace_field(query: &Query) -> Markup {
    html! {
        label { span { "Namespace" }
            input type="text" name="namespace" value=(query.namespace.as_deref().unwrap_or_default()) placeholder="all"
                maxlength="63" autocapitalize="off" spellcheck="false";
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_are_shortened_and_complete_in_the_title() {
        let sha1 = "5f3d2c1b0a9e8d7c6b5a49382716051423324150";
        let sha256 = "a".repeat(64);
        for (revision, short) in [
            (format!("main@sha1:{sha1}"), "main@sha1:5f3d2c1".to_owned()),
            (format!("sha256:{sha256}"), "sha256:aaaaaaaaaaaa".to_owned()),
            (sha1.to_owned(), "5f3d2c1".to_owned()),
            ("1.4.2".to_owned(), "1.4.2".to_owned()),
            ("x".repeat(30), format!("{}…", "x".repeat(23))),
            ("é".repeat(30), format!("{}…", "é".repeat(23))),
            ("sha1:".to_owned(), "sha1:".to_owned()),
        ] {
            assert_eq!(short_revision(&revision), short);
        }
        let shown = super::revision("<b>\"&").into_string();
        assert!(shown.contains("title=\"&lt;b&gt;&quot;&amp;\"") && shown.contains("q=%3Cb%3E%22%26"), "{shown}");
    }

    #[test]
    fn ages_have_one_unit() {
        let at = |second| Time::from_second(second).unwrap();
        for (then, words) in [(1000, "0 s ago"), (941, "59 s ago"), (400, "10 min ago"), (1030, "in 30 s")] {
            assert_eq!(age_words(at(then), at(1000)), words);
        }
        assert_eq!(
            (span(7200), span(172_800), millis(950), millis(1250)),
            ("2 h".into(), "2 d".into(), "950 ms".into(), "1.2 s".into())
        );
    }
}
