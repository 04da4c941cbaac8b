//! What is wrong, in the words of `relaybook status`: the cause, and what a person can do about it. Pure.

use maud::{Markup, html};

use crate::screens::parts::{Tone, badge, with_code};
use relaybook_tools::diagnosis::{Finding, Level};

/// Returns the colour of a finding.
pub(crate) const fn tone(level: Level) -> Tone {
    match level {
        Level::Problem => Tone::Bad,
        Level::Warning => Tone::Warn,
    }
}

/// Returns the reason, the cause and the remedy of a finding.
pub(crate) fn words(finding: &Finding) -> Markup {
    html! {
        @if !finding.reason.is_empty() { (badge(tone(finding.level), &finding.reason)) " " }
        span.message { (with_code(&finding.message)) }
        span.sub { "Remedy: " (with_code(&finding.remedy)) }
    }
}

/// Returns a finding as a paragraph of its own. `link`: a link to what it is about.
pub(crate) fn notice(finding: &Finding, link: Option<&Markup>) -> Markup {
    html! {
        p class=(format!("notice {}", tone(finding.level).class())) {
            @if let Some(link) = link { (link) ": " }
            (words(finding))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_tools::diagnosis::Kind;

    #[test]
    fn a_finding_has_its_reason_its_cause_and_its_remedy() {
        let finding = Finding {
            level: Level::Warning,
            kind: Kind::Notification,
            namespace: "team-a".to_owned(),
            name: "chat".to_owned(),
            reason: "Suspended".to_owned(),
            message: "is suspended: <b>".to_owned(),
            remedy: "`relaybook resume notification/chat -n team-a`".to_owned(),
            since: None,
        };
        let html = notice(&finding, None).into_string();
        for part in [
            "class=\"notice warn\"",
            ">Suspended<",
            "is suspended: &lt;b&gt;",
            "Remedy: <code>relaybook resume notification/chat -n team-a</code>",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        let html = words(&Finding { reason: String::new(), level: Level::Problem, ..finding }).into_string();
        assert!(!html.contains("badge"), "{html}");
    }
}
