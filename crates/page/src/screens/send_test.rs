//! The confirmation of a test: what is sent where, before it is sent. Pure.

use maud::{Markup, html};

use crate::screens::parts::figure;
use relaybook_api::TransitionType;
use relaybook_api::values::permalink;
use relaybook_tools::preview::Marked;

/// The request has changed since the person saw it.
const CHANGED: &str = "The test has changed since you looked at it. Check it again.";
/// The box is not checked.
const UNCHECKED: &str = "Nothing was sent, because the box is not checked.";

/// What a person confirms.
#[derive(Debug)]
pub(crate) struct TestView {
    /// The namespace in the address of the notification.
    pub(crate) namespace: String,
    pub(crate) notification: String,
    /// Namespace and name of the pipeline.
    pub(crate) pipeline: String,
    pub(crate) type_: TransitionType,
    /// The name of the subject of the sample.
    pub(crate) about: String,
    pub(crate) method: &'static str,
    /// The receiver, without path and query.
    pub(crate) receiver: String,
    pub(crate) marked: Marked,
    /// The request, with possible credentials masked.
    pub(crate) request: String,
    pub(crate) form_token: Option<String>,
}

/// What a person has confirmed so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consent<'a> {
    /// The summary that the person saw. Empty: none.
    pub(crate) confirmed: &'a str,
    /// Whether the person knows that the receiver acts on the test.
    pub(crate) acts: bool,
}

/// What is missing before a test is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The person has seen nothing yet.
    All,
    /// This is wrong with the confirmation.
    Because(&'static str),
}

impl Consent<'_> {
    /// Checks whether this test was confirmed, as it is now.
    pub(crate) fn check(&self, view: &TestView) -> Result<(), Missing> {
        match self.confirmed {
            "" => Err(Missing::All),
            confirmed if confirmed != view.summary() => Err(Missing::Because(CHANGED)),
            _ if view.marked == Marked::Header && !self.acts => Err(Missing::Because(UNCHECKED)),
            _ => Ok(()),
        }
    }
}

impl TestView {
    /// Returns what is confirmed in one line. The data of the sample can change between two requests, so they are not part of it.
    pub(crate) fn summary(&self) -> String {
        let Self { type_, about, pipeline, .. } = self;
        format!("{}: {} for {about} of {pipeline}, with {}", self.goes(), type_.as_str(), self.template())
    }

    /// Returns where the request goes.
    fn goes(&self) -> String {
        format!("{} to {}", self.method, self.receiver)
    }

    fn template(&self) -> &'static str {
        match self.marked {
            Marked::Text(name) => name.as_str(),
            Marked::Header => "a template of your own",
        }
    }

    /// Returns the content of the page.
    pub(crate) fn html(&self, missing: Missing) -> Markup {
        let notification = permalink::notification(&self.namespace, &self.notification);
        html! {
            h1 { "Send this test?" }
            @if let Missing::Because(why) = missing { p.notice.bad role="alert" { (why) } }
            p.lead { "Nothing was sent yet." }
            dl.figures.wide {
                (figure("Notification", &html! { a href=(notification) { (self.namespace) "/" (self.notification) } }))
                (figure("Pipeline", &html! { (self.pipeline) }))
                (figure("Sample", &html! { (self.type_.as_str()) " for " (self.about) }))
                (figure("Request", &html! { (self.goes()) }))
                (figure("Template", &html! { (self.template()) }))
            }
            @match self.marked {
                Marked::Text(_) => p.notice { "The receiver shows this message to people. Its first line says TEST." },
                Marked::Header => p.notice.warn {
                    "Relaybook cannot mark the text of a template of your own. Only the header " code { "Relaybook-Test: true" }
                    " says that it is a test. The receiver acts on it as on a real message."
                },
            }
            section aria-labelledby="request" {
                h2 #request { "The request" }
                p.none { "Possible credentials are masked. When it is sent, it has another ID, and the revisions of that time." }
                pre.request tabindex="0" { (self.request) }
            }
            @if let Some(token) = &self.form_token {
                form.action method="post" action=(format!("{notification}/test")) {
                    input type="hidden" name="token" value=(token);
                    input type="hidden" name="pipeline" value=(self.pipeline);
                    input type="hidden" name="confirmed" value=(self.summary());
                    @if self.marked == Marked::Header {
                        label {
                            input type="checkbox" name="acts" value="yes" required;
                            span { (self.goes()) ": the receiver acts on it as on a real message" }
                        }
                    }
                    button { "Send this test" }
                    a href=(notification) { "Cancel" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::notification::Builtin;

    fn view(marked: Marked) -> TestView {
        TestView {
            namespace: "team-a".to_owned(),
            notification: "chat".to_owned(),
            pipeline: "team-a/shop".to_owned(),
            type_: TransitionType::Deployed,
            about: "prod/in-cluster/shop".to_owned(),
            method: "POST",
            receiver: "https://chat.example.com".to_owned(),
            marked,
            request: "{\"text\": \"<b>\"}".to_owned(),
            form_token: Some("f00".to_owned()),
        }
    }

    #[test]
    fn a_test_is_sent_only_if_the_person_confirmed_its_current_summary() {
        let (chat, own) = (view(Marked::Text(Builtin::Slack)), view(Marked::Header));
        let elsewhere = TestView { receiver: "https://other.example.com".to_owned(), ..view(Marked::Header) };
        let about = TestView { about: "dev/in-cluster/shop".to_owned(), ..view(Marked::Text(Builtin::Slack)) };
        let changed = Err(Missing::Because(CHANGED));
        for (view, confirmed, acts, expected) in [
            (&chat, String::new(), true, Err(Missing::All)),
            (&chat, chat.summary(), false, Ok(())),
            (&chat, own.summary(), true, changed),
            (&chat, about.summary(), false, changed),
            (&own, own.summary(), false, Err(Missing::Because(UNCHECKED))),
            (&own, own.summary(), true, Ok(())),
            (&own, elsewhere.summary(), true, changed),
            (&own, "yes".to_owned(), true, changed),
        ] {
            let consent = Consent { confirmed: &confirmed, acts };
            assert_eq!(consent.check(view), expected, "{confirmed:?} {acts}");
        }
    }

    #[test]
    fn the_confirmation_shows_receiver_and_content_and_is_a_complete_form() {
        let chat = view(Marked::Text(Builtin::Slack)).html(Missing::All).into_string();
        for words in [
            "POST to https://chat.example.com",
            "Deployed for prod/in-cluster/shop",
            "Its first line says TEST.",
            "&lt;b&gt;",
            "action=\"/notifications/team-a/chat/test\"",
            "name=\"token\" value=\"f00\"",
            "name=\"pipeline\" value=\"team-a/shop\"",
        ] {
            assert!(chat.contains(words), "{words}: {chat}");
        }
        assert!(!chat.contains("checkbox") && !chat.contains("role=\"alert\""), "{chat}");
        let own = view(Marked::Header).html(Missing::Because(UNCHECKED)).into_string();
        for words in [
            "Only the header <code>Relaybook-Test: true</code> says that it is a test. The receiver acts on it",
            "name=\"acts\" value=\"yes\" required",
            "POST to https://chat.example.com: the receiver acts on it as on a real message",
            UNCHECKED,
        ] {
            assert!(own.contains(words), "{words}: {own}");
        }
        let reads = TestView { form_token: None, ..view(Marked::Header) };
        assert!(!reads.html(Missing::All).into_string().contains("<form"));
    }
}
