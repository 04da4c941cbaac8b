//! Whether the custom resource definitions as they are installed are those of this version.
//!
//! In: what the API server publishes of its schemas, which every account may read
//! ([OpenAPI v3](https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-v3)).
//! Out: nothing until they [`fit`]; meanwhile a log line says what is missing, and what to do.
//!
//! A field that the API server does not know is dropped without a word, such as a cursor, or what has been settled. So a version
//! that is newer than its definitions does nothing at all: the one before it, which knows them, goes on. Older ones may also be put
//! beneath a version that runs, as by a roll-back; so it looks again now and then, and ends when they no longer fit.

pub mod fit;

use std::time::Duration;

use http::header::{ACCEPT, ETAG, HeaderValue, IF_NONE_MATCH};
use http::{Request, StatusCode};
use kube::client::Body;
use kube::{Client, Resource as _};
use serde_json::Value;
use tokio::time::timeout;

use crate::api::Pipeline;
use crate::telemetry::chain;
use fit::missing;

/// Until the definitions fit, they are read again so often.
const AGAIN: Duration = Duration::from_secs(2);
/// Once they fit, they are asked for so often; an answer that has not changed is next to nothing.
const NOW_AND_THEN: Duration = Duration::from_secs(15);
/// The API server answers within this, or is asked again.
const DEADLINE: Duration = Duration::from_secs(5);
/// So often in a row the right to look must be refused, half a minute in all: an API server that starts refuses everybody.
const REFUSALS: u32 = 15;
/// So many missing fields are named.
const NAMED: usize = 5;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// They have all that this version needs.
    Fit,
    /// Nobody may look, which is as well as can be had.
    Hidden,
    /// Fields are missing: why they do not fit, in words for people.
    Not(String),
    /// There are none of some kinds, and nothing is wrong with the others: in words for people.
    Gone(String),
    /// The API server cannot be asked.
    Unknown(String),
}

/// Waits until the definitions fit. Says what is wrong when it first is, and when it is something else. Gives what goes on looking.
pub async fn fits(client: &Client) -> Looks {
    let (mut looks, mut said, mut refused) = (Looks::new(client), Found::Fit, 0);
    loop {
        let found = looks.look().await;
        if found != said {
            match &found {
                Found::Fit => {}
                Found::Hidden => {
                    tracing::warn!("the schemas of the API server may not be read, so the definitions are not checked");
                }
                Found::Not(words) | Found::Gone(words) => tracing::error!("nothing is done: {words}"),
                Found::Unknown(error) => {
                    tracing::warn!(error, "the API server cannot be asked for its schemas; trying again");
                }
            }
        }
        refused = if found == Found::Hidden { refused + 1 } else { 0 };
        if found == Found::Fit || refused == REFUSALS {
            return looks;
        }
        said = found;
        tokio::time::sleep(AGAIN).await;
    }
}

/// Looks again and again, and reads only what is new.
pub struct Looks {
    client: Client,
    /// What was found in the answer with this mark.
    last: Option<(HeaderValue, Found)>,
}

impl Looks {
    /// Has not looked yet.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone(), last: None }
    }

    /// Waits until definitions that did fit no longer do: says why. Where a kind is not there at all, nothing of it can be written
    /// either, so nothing is lost by waiting until it is back.
    pub async fn misfit(mut self) -> String {
        let mut doubt = false;
        loop {
            tokio::time::sleep(NOW_AND_THEN).await;
            match self.look().await {
                // One of several API servers may still publish what was there before an upgrade.
                Found::Not(words) if doubt => return words,
                found => doubt = matches!(found, Found::Not(_)),
            }
        }
    }

    /// Looks once.
    pub async fn look(&mut self) -> Found {
        let slow = || Err(kube::Error::Service("no answer in time".into()));
        timeout(DEADLINE, self.ask()).await.unwrap_or_else(|_| slow()).unwrap_or_else(|e| Found::Unknown(chain(&e)))
    }

    async fn ask(&mut self) -> kube::Result<Found> {
        let path = format!("/openapi/v3/apis/{}/{}", Pipeline::group(&()), Pipeline::version(&()));
        let mut request = Request::get(path).header(ACCEPT, "application/json");
        if let Some((mark, _)) = &self.last {
            request = request.header(IF_NONE_MATCH, mark);
        }
        let request = request.body(Body::empty()).map_err(kube::Error::HttpError)?;
        let answer = self.client.send(request).await?;
        let mark = answer.headers().get(ETAG).cloned();
        match answer.status() {
            StatusCode::OK => {
                let published = answer.into_body().collect_bytes().await?;
                let published = serde_json::from_slice(&published).map_err(kube::Error::SerdeError)?;
                let found = judge(&missing(&crate::api::crds(), &published));
                self.last = mark.map(|mark| (mark, found.clone()));
                Ok(found)
            }
            StatusCode::NOT_MODIFIED => {
                Ok(self.last.as_ref().map_or(Found::Unknown("nothing was changed".to_owned()), |(_, found)| found.clone()))
            }
            StatusCode::NOT_FOUND => Ok(judge(&missing(&crate::api::crds(), &Value::Null))),
            StatusCode::FORBIDDEN => Ok(Found::Hidden),
            other => Ok(Found::Unknown(format!("it answers {other}"))),
        }
    }
}

fn judge(missing: &[String]) -> Found {
    let (named, more) = missing.split_at(missing.len().min(NAMED));
    if named.is_empty() {
        return Found::Fit;
    }
    // What is missing of a kind that is there has a path.
    let found = if missing.iter().any(|lost| lost.contains('.')) { Found::Not } else { Found::Gone };
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    found(format!(
        "the custom resource definitions as installed are not those of version {}; missing: {}{more}. Install them with \
         `pennant crds | kubectl apply --server-side --force-conflicts -f -`, and this goes on by itself",
        env!("CARGO_PKG_VERSION"),
        named.join(", "),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_has_a_bound_and_a_remedy() {
        assert_eq!(judge(&[]), Found::Fit);
        let many: Vec<String> = (0..9).map(|n| format!("K.f{n}")).collect();
        let Found::Not(words) = judge(&many) else { panic!("it does not fit") };
        assert!(words.contains("K.f0, K.f1, K.f2, K.f3, K.f4 and 4 more") && words.contains("kubectl apply"), "{words}");
    }

    #[test]
    fn a_kind_that_is_gone_is_another_matter_than_one_that_lacks_something() {
        let judged = |missing: &[&str]| judge(&missing.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(matches!(judged(&["Pipeline", "Delivery"]), Found::Gone(_)));
        assert!(matches!(judged(&["Pipeline.status.settled"]), Found::Not(_)));
        assert!(matches!(judged(&["Pipeline", "Delivery.spec.to"]), Found::Not(_)));
    }
}
