//! A test of a Notification: the request to the controller, and its result.
//!
//! In: the Notification, and what the test is about. Out: the annotation `relaybook.dev/test`, and the result that the controller writes to
//! `status.lastTest`. It needs get and patch on the Notification. The controller sends the test, with its own credentials and from its own
//! network, so a person needs no permission on Secrets or Deliveries.

use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use relaybook_api::notification::{LastTest, TEST, TestRequest, TestResult};
use relaybook_api::{Notification, TransitionType, now};

/// How long to wait until a controller has the result: one request of 20 s, and a second one that closes an alert.
pub const LONGEST: Duration = Duration::from_mins(1);
/// How often the result is read.
const CHECK: Duration = Duration::from_millis(300);

/// What a test is about.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The pipeline, as `NAME` or `NAMESPACE/NAME`.
    pub pipeline: Option<String>,
    /// The target.
    pub target: Option<String>,
    /// The type of the transition.
    pub type_: Option<TransitionType>,
    /// Whether the person accepts that the receiver cannot distinguish the test from the truth, or acts on it.
    pub confirmed: bool,
}

/// Why a test has no result.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// The Notification does not exist.
    #[error(
        "Notification {0} does not exist; a cluster-wide notification is tested through a Notification of the same name with an empty spec, in the namespace of a pipeline"
    )]
    Missing(String),
    /// The Notification cannot be read or changed.
    #[error("Notification {0} cannot be tested")]
    Call(String, #[source] kube::Error),
    /// The request cannot be written as JSON.
    #[error("the request of the test cannot be written")]
    Json(#[from] serde_json::Error),
    /// Another test was requested before this one had a result.
    #[error(
        "another test of Notification {0} was requested meanwhile, so this one has no result. It may have been sent; test again"
    )]
    Replaced(String),
    /// No controller has answered.
    #[error(
        "the test of Notification {0} has no result after {1} s; it is withdrawn, but it may have been sent: see `relaybook check`"
    )]
    Unanswered(String, u64),
}

/// Requests a test. Returns its id.
pub async fn request(api: &Api<Notification>, name: &str, about: About) -> Result<String, TestError> {
    let About { pipeline, target, type_, confirmed } = about;
    let id = format!("{:08x}", fastrand::u32(..));
    let request = TestRequest { id: id.clone(), time: now(), pipeline, target, type_, confirmed };
    let patch = json!({"metadata": {"annotations": {TEST: serde_json::to_string(&request)?}}});
    match api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(id),
        Err(kube::Error::Api(status)) if status.is_not_found() => Err(TestError::Missing(name.to_owned())),
        Err(error) => Err(TestError::Call(name.to_owned(), error)),
    }
}

/// Waits for the result of a test, and removes its annotation.
pub async fn result(api: &Api<Notification>, name: &str, id: &str, longest: Duration) -> Result<LastTest, TestError> {
    let end = Instant::now() + longest;
    loop {
        let found = api.get_opt(name).await.map_err(|error| TestError::Call(name.to_owned(), error))?;
        let found = found.ok_or_else(|| TestError::Missing(name.to_owned()))?;
        let value = found.metadata.annotations.as_ref().and_then(|all| all.get(TEST));
        let requested = value.and_then(|value| TestRequest::parse(value).ok()).map(|request| request.id);
        if let Some(last) = found.status.and_then(|status| status.last_test).filter(|last| last.id == id) {
            forget(api, name, requested.as_deref() == Some(id)).await;
            return Ok(last);
        }
        if requested.as_deref().is_some_and(|other| other != id) {
            return Err(TestError::Replaced(name.to_owned()));
        }
        if Instant::now() >= end {
            forget(api, name, requested.is_some()).await;
            return Err(TestError::Unanswered(name.to_owned(), longest.as_secs()));
        }
        sleep(CHECK).await;
    }
}

/// Removes the annotation of this test. If it stays, the controller still knows its id.
async fn forget(api: &Api<Notification>, name: &str, is_own: bool) {
    if is_own {
        let patch = json!({"metadata": {"annotations": {TEST: null}}});
        let _ = api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    }
}

/// Returns the result in sentences, one for each line.
#[must_use]
pub fn lines(notification: &str, last: &LastTest) -> Vec<String> {
    let about = match (&last.type_, &last.subject, &last.pipeline) {
        (Some(type_), Some(subject), Some(pipeline)) => {
            format!(" with {} of {subject} (Pipeline {pipeline})", type_.as_str())
        }
        _ => String::new(),
    };
    let result = match last.result {
        TestResult::Accepted => format!("the receiver accepted it: {}", last.message),
        TestResult::Failed => format!("it failed: {}", last.message),
        TestResult::Refused | TestResult::Unconfirmed => format!("nothing was sent: {}", last.message),
    };
    let mut lines = vec![format!("Test of {notification}{about}: {result}")];
    if let Some(mark) = &last.mark {
        lines.push(format!("How the receiver can see that it is a test: {mark}."));
    }
    if let Some(delivery) = &last.delivery {
        let (namespace, name) = delivery.split_once('/').unwrap_or(("", delivery));
        lines.push(format!("Record: delivery/{name} -n {namespace}, which is kept for 1 hour."));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_say_what_was_sent_and_where_the_record_is() {
        let last = LastTest {
            id: "7f3a9c2b".into(),
            time: now(),
            result: TestResult::Accepted,
            message: "200 after 143 ms: ok".into(),
            pipeline: Some("team-a/web".into()),
            subject: Some("prod/in-cluster/web".into()),
            type_: Some(TransitionType::Failed),
            delivery: Some("team-a/chat-test-7f3a9c2b".into()),
            status_code: Some(200),
            mark: Some("the headline begins with \"TEST: \"".into()),
        };
        assert_eq!(
            lines("chat", &last),
            [
                "Test of chat with Failed of prod/in-cluster/web (Pipeline team-a/web): the receiver accepted it: 200 after 143 ms: ok",
                "How the receiver can see that it is a test: the headline begins with \"TEST: \".",
                "Record: delivery/chat-test-7f3a9c2b -n team-a, which is kept for 1 hour.",
            ]
        );
        let refused = LastTest {
            result: TestResult::Refused,
            message: "Notification chat is suspended; resume it first".into(),
            delivery: None,
            mark: None,
            type_: None,
            ..last
        };
        let expected = "Test of chat: nothing was sent: Notification chat is suspended; resume it first";
        assert_eq!(lines("chat", &refused), [expected]);
    }
}
