//! What an example of an answer would mean for a delivery. Pure.
//!
//! In: the text of an answer, as a body or as `curl -i` prints it; a preview. Out: one sentence, from the rules that a delivery follows.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Preview, PreviewError};
use relaybook_egress::{AttemptResult, Verdict, classify};
use relaybook_settings::answer::{Answer, LONGEST_BODY};

/// An example of an answer.
#[derive(Clone, Debug)]
pub struct ExampleAnswer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl ExampleAnswer {
    /// Reads an answer. A text that does not begin with a status line is the body of an answer with the status 200.
    ///
    /// # Errors
    /// The status line, or a header, is not valid.
    pub fn parse(text: &str) -> Result<Self, PreviewError> {
        if !text.starts_with("HTTP/") {
            return Ok(Self { status: 200, headers: HeaderMap::new(), body: text.to_owned() });
        }
        let text = text.replace("\r\n", "\n");
        let (mut head, mut body) = text.split_once("\n\n").unwrap_or((&text, ""));
        // `curl -i` also prints the heads of a proxy and of `100 Continue`.
        while body.starts_with("HTTP/") {
            (head, body) = body.split_once("\n\n").unwrap_or((body, ""));
        }
        let mut lines = head.lines();
        let first = lines.next().unwrap_or_default();
        let invalid = |line: &str| PreviewError::Answer(format!("{line:?} is not a line of HTTP"));
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.filter(|status| (100..=999).contains(status)).ok_or_else(|| invalid(first))?;
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(':').ok_or_else(|| invalid(line))?;
            let name: HeaderName = name.trim().parse().map_err(|_| invalid(line))?;
            headers.append(name, HeaderValue::from_str(value.trim()).map_err(|_| invalid(line))?);
        }
        Ok(Self { status, headers, body: body.to_owned() })
    }

    /// Returns what the answer means for a delivery of this preview, if it is the first one.
    #[must_use]
    pub fn meaning(&self, preview: &Preview) -> String {
        let end = self.body.len().min(LONGEST_BODY);
        let answer = Answer { status: self.status, headers: &self.headers, body: &self.body.as_bytes()[..end] };
        let result = AttemptResult::of_answer(preview.success.as_ref(), &answer);
        let line = result.error().unwrap_or_else(|| self.status.to_string());
        match classify(&result, 0) {
            Verdict::Delivered => format!("{line}: Delivered"),
            Verdict::Canceled { reason } => format!("{line}: Canceled, {}", reason.as_str()),
            Verdict::Parked { reason } => format!("{line}: Parked, {}", reason.as_str()),
            Verdict::Retry { reason, .. } | Verdict::Again { reason } | Verdict::Blocked { reason } => {
                format!("{line}: retried, {}", reason.as_str())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::preview::{LayeredNotification, previews};
    use relaybook_api::TransitionType;
    use relaybook_settings::config::{Given, Global};
    use relaybook_settings::render::SampleContext;

    fn preview() -> Preview {
        let object = json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification",
            "metadata": {"name": "deploys", "namespace": "team-a"},
            "spec": {"endpoint": {"url": "https://slack.com/api/chat.postMessage"}, "template": {"builtin": "slack"}, "triggers": []},
        });
        let layered = LayeredNotification::without_pipeline(&Global::default(), &serde_json::from_value(object).unwrap());
        let sample = SampleContext::sample(("deploys".to_owned(), "team-a".to_owned()));
        previews(&layered, &[TransitionType::Deployed], &Given::nothing(), &sample).unwrap().remove(0)
    }

    #[test]
    fn the_answers_of_slack_have_the_meaning_that_slack_documents() {
        let error = |error: &str| format!(r#"{{"ok": false, "error": "{error}"}}"#);
        let later = format!("HTTP/1.1 200 OK\r\nRetry-After: 30\r\n\r\n{}", error("ratelimited"));
        for (answer, expected) in [
            ("ok".to_owned(), "200: Delivered"),
            (r#"{"ok": true, "ts": "1405894322.002768"}"#.to_owned(), "200: Delivered"),
            // Receivers that accept the messages of Slack have other answers.
            (String::new(), "200: Delivered"),
            (r#"{"success": true}"#.to_owned(), "200: Delivered"),
            ("HTTP/2 204\n\n".to_owned(), "204: Delivered"),
            ("HTTP/1.1 100 Continue\n\nHTTP/2 204\n\n".to_owned(), "204: Delivered"),
            (format!("HTTP/2 503\n\n{}", error("over_capacity")), "503 Service Unavailable: retried, ReceiverError"),
            (r#"{"ok": false}"#.to_owned(), "200 OK, which counts as 422 Unprocessable Entity: Parked, ReceiverRejected"),
            ("{\"ok\": fal".to_owned(), "200: Delivered"),
            (error("rate_limited"), "200 OK, which counts as 429 Too Many Requests: retried, ReceiverError"),
            ("HTTP/2 404 Not Found\n\nno_service".to_owned(), "404 Not Found: retried, ReceiverNotFound"),
            (error("channel_not_found"), "200 OK, which counts as 422 Unprocessable Entity: Parked, ReceiverRejected"),
            (error("invalid_auth"), "200 OK, which counts as 401 Unauthorized: retried, CredentialsRejected"),
            (later, "200 OK, which counts as 429 Too Many Requests: retried, ReceiverError"),
            (error("fatal_error"), "200 OK, which counts as 503 Service Unavailable: retried, ReceiverError"),
        ] {
            assert_eq!(ExampleAnswer::parse(&answer).unwrap().meaning(&preview()), expected, "{answer}");
        }
    }

    #[test]
    fn an_answer_without_a_status_or_with_an_invalid_header_is_an_error() {
        for answer in ["HTTP/1.1\n\n", "HTTP/1.1 2000 OK\n\n", "HTTP/1.1 200 OK\nno header\n\n"] {
            let error = ExampleAnswer::parse(answer).unwrap_err().to_string();
            assert!(error.contains("is not a line of HTTP"), "{error}");
        }
    }
}
