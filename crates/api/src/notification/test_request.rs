//! A test of a Notification: the request of a user, and its result.
//!
//! In: the annotation [`TEST`] of a Notification, which holds a [`TestRequest`] as JSON. Out: `status.lastTest`. A user who may patch a
//! Notification can change its text and its triggers anyway, so a test adds only the time at which something is sent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::values::transition::TransitionType;

/// The annotation that requests a test. A new `id` requests a new test.
pub const TEST: &str = concat!(group!(), "/test");

/// What the annotation [`TEST`] contains, as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TestRequest {
    /// Identifies the test: 4 to 32 lowercase letters and digits. The controller does nothing for an id that it knows.
    pub id: String,
    /// When the user requested the test. A request that is older than 10 minutes is refused, because it comes from a backup or from Git.
    pub time: Time,
    /// The pipeline: `NAME`, or `NAMESPACE/NAME`. If absent, the first one that the Notification applies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// The target, as `status` and audit name it. If absent, the first one with a matching trigger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The type of the transition. If absent, the first one that a trigger matches.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<TransitionType>,
    /// Whether the user accepts that the receiver cannot distinguish the test from the truth, or acts on it.
    #[serde(default)]
    pub confirmed: bool,
}

impl TestRequest {
    /// Parses the value of the annotation. The error says what is wrong with it.
    pub fn parse(value: &str) -> Result<Self, String> {
        let request: Self = serde_json::from_str(value).map_err(|error| error.to_string())?;
        let is_id = (4..=32).contains(&request.id.len())
            && request.id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if is_id { Ok(request) } else { Err("id must be 4 to 32 lowercase letters and digits".to_owned()) }
    }
}

words! {
    /// The result of a test.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    pub enum TestResult {
        /// The receiver answered 2xx.
        Accepted,
        /// A request was sent, and the receiver did not answer 2xx. Or Relaybook stopped during the test, and it is not known.
        Failed,
        /// Nothing was sent.
        Refused,
        /// Nothing was sent, because the user must confirm the test first.
        Unconfirmed,
    }
}

/// The last test of a Notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastTest {
    /// The id of the request.
    pub id: String,
    /// When the result was known.
    #[schemars(with = "String")]
    pub time: Time,
    /// The result.
    pub result: TestResult,
    /// The answer of the receiver, or why nothing was sent, without secrets.
    pub message: String,
    /// The pipeline that the sample is about, `NAMESPACE/NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// The subject of the sample, such as `prod/in-cluster/web`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The type of the sample.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<TransitionType>,
    /// The namespace and the name of the Delivery that records the test. It is kept for one hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<String>,
    /// The HTTP status of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_code: Option<u16>,
    /// How the receiver can see that it was a test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_needs_an_id_a_time_and_no_unknown_field() {
        let at = r#""time":"2026-01-01T00:00:00Z""#;
        for (value, expected) in [
            (format!(r#"{{"id":"7f3a9c2b",{at}}}"#), Ok(())),
            (format!(r#"{{"id":"7f3a9c2b",{at},"type":"Failed","target":"prod/c/x","confirmed":true}}"#), Ok(())),
            (format!(r#"{{"id":"abc",{at}}}"#), Err("id must be 4 to 32")),
            (format!(r#"{{"id":"ABCDEF",{at}}}"#), Err("id must be 4 to 32")),
            (format!(r#"{{"id":"{}",{at}}}"#, "a".repeat(33)), Err("id must be 4 to 32")),
            (r#"{"id":"7f3a9c2b"}"#.to_owned(), Err("missing field `time`")),
            (format!(r#"{{"id":"7f3a9c2b",{at},"url":"https://a"}}"#), Err("unknown field `url`")),
            (format!(r#"{{"id":"7f3a9c2b",{at},"type":"Deploy"}}"#), Err("unknown variant `Deploy`")),
            ("yes".to_owned(), Err("expected")),
        ] {
            match (TestRequest::parse(&value), expected) {
                (Ok(_), Ok(())) => {}
                (Err(error), Err(words)) if error.contains(words) => {}
                (found, _) => panic!("{value}: {found:?}"),
            }
        }
    }
}
