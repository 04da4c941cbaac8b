//! A test of a notification. The controller sends it; the page requests it, with the permissions of the caller, and waits for its result.

use std::time::Duration;

use kube::Api;

use super::Reader;
use crate::read::call::in_time;
use crate::trouble::{Trouble, Wanted};
use relaybook_api::notification::TestResult;
use relaybook_api::values::names::{is_label, is_subdomain};
use relaybook_tools::send_test::{About, TestError, request, result};

/// How long the page waits for the result.
const LONGEST: Duration = Duration::from_secs(30);

/// What became of a test.
pub(crate) enum Tested {
    /// The person must confirm it first, because of this.
    Unconfirmed(String),
    /// It is over: whether the receiver accepted it, and the result in words.
    Over(bool, String),
}

impl Reader<'_> {
    /// Requests a test about a pipeline, and waits for its result.
    pub(crate) async fn test(
        &self,
        namespace: &str,
        name: &str,
        pipeline: &str,
        confirmed: bool,
    ) -> Result<Tested, Trouble> {
        let (home, of) = pipeline.split_once('/').unwrap_or((namespace, pipeline));
        if !is_label(home) || !is_subdomain(of) {
            return Err(Trouble::Other("This is not the name of a pipeline".to_owned()));
        }
        let api: Api<_> = Api::namespaced(self.caller.client.clone(), namespace);
        let about = About { pipeline: Some(format!("{home}/{of}")), confirmed, ..About::default() };
        let id = in_time(request(&api, name, about), |error| trouble(&error, "patch", namespace)).await?;
        let last = result(&api, name, &id, LONGEST).await.map_err(|error| trouble(&error, "get", namespace))?;
        let about =
            last.type_.zip(last.subject.as_ref()).map(|(type_, subject)| format!("for {} of {subject}", type_.as_str()));
        let about = about.unwrap_or_default();
        let record = last.delivery.as_ref().map(|delivery| format!(" The delivery {delivery} records it for 1 hour."));
        let mark = last.mark.as_ref().map(|mark| format!(" How the receiver can see that it is a test: {mark}."));
        let ends = format!("{}{}", mark.unwrap_or_default(), record.unwrap_or_default());
        Ok(match last.result {
            TestResult::Accepted => Tested::Over(true, format!("{about}: {}.{ends}", last.message)),
            TestResult::Failed => Tested::Over(false, format!("{about} failed: {}.{ends}", last.message)),
            TestResult::Refused => Tested::Over(false, format!("was not sent: {}.", last.message)),
            TestResult::Unconfirmed => Tested::Unconfirmed(last.message),
        })
    }
}

fn trouble(error: &TestError, verb: &'static str, namespace: &str) -> Trouble {
    match error {
        TestError::Call(_, cause) => Trouble::new(cause, &Wanted::new(verb, "notifications", Some(namespace))),
        other => Trouble::Other(other.to_string()),
    }
}
