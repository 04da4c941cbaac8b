//! The confirmation of a test that the receiver cannot recognize, or on which it acts. Pure.

use maud::{Markup, html};

use crate::screens::parts::figure;
use relaybook_api::values::permalink;

/// What a person confirms.
#[derive(Debug)]
pub(crate) struct UnconfirmedTest {
    /// The namespace in the address of the notification.
    pub(crate) namespace: String,
    pub(crate) notification: String,
    /// Namespace and name of the pipeline.
    pub(crate) pipeline: String,
    /// Why it must be confirmed.
    pub(crate) why: String,
    pub(crate) form_token: Option<String>,
}

impl UnconfirmedTest {
    /// Returns the content of the page.
    pub(crate) fn html(&self) -> Markup {
        let notification = permalink::notification(&self.namespace, &self.notification);
        html! {
            h1 { "Send this test?" }
            p.lead { "Nothing was sent yet." }
            dl.figures.wide {
                (figure("Notification", &html! { a href=(notification) { (self.namespace) "/" (self.notification) } }))
                (figure("Pipeline", &html! { (self.pipeline) }))
            }
            p.notice.warn { "Reason: " (self.why) "." }
            @if let Some(token) = &self.form_token {
                form.action method="post" action=(format!("{notification}/test")) {
                    input type="hidden" name="token" value=(token);
                    input type="hidden" name="pipeline" value=(self.pipeline);
                    label {
                        input type="checkbox" name="acts" value="yes" required;
                        span { "The receiver acts on it as on a real message" }
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

    #[test]
    fn the_confirmation_says_why_and_is_a_complete_form() {
        let view = UnconfirmedTest {
            namespace: "team-a".to_owned(),
            notification: "own".to_owned(),
            pipeline: "team-a/shop".to_owned(),
            why: "a test would <start> workflows".to_owned(),
            form_token: Some("f00".to_owned()),
        };
        let html = view.html().into_string();
        for words in [
            "a test would &lt;start&gt; workflows",
            "action=\"/notifications/team-a/own/test\"",
            "name=\"token\" value=\"f00\"",
            "name=\"pipeline\" value=\"team-a/shop\"",
            "name=\"acts\" value=\"yes\" required",
        ] {
            assert!(html.contains(words), "{words}: {html}");
        }
        let reads = UnconfirmedTest { form_token: None, ..view };
        assert!(!reads.html().into_string().contains("<form"));
    }
}
