//! Whether the custom resource definitions as they are installed are those of this version.
//!
//! In: what the API server publishes of its schemas, which every account may read
//! ([OpenAPI v3](https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-v3)).
//! Out: nothing until they [`fit`]; meanwhile a log line says what is missing, and what to do.
//!
//! A field that the API server does not know is dropped without a word, such as a cursor, or what has been settled. So a version
//! that is newer than its definitions does nothing at all: the one before it, which knows them, goes on.

pub mod fit;

use std::time::Duration;

use http::{Request, StatusCode};
use kube::{Client, Resource as _};
use serde_json::Value;
use tokio::time::timeout;

use crate::api::Pipeline;
use crate::telemetry::chain;
use fit::missing;

/// Until the definitions fit, they are read again so often.
const AGAIN: Duration = Duration::from_secs(2);
/// The API server answers within this, or is asked again.
const DEADLINE: Duration = Duration::from_secs(5);
/// So often in a row the right to look must be refused, half a minute in all: an API server that starts refuses everybody.
const REFUSALS: u32 = 15;
/// So many missing fields are named.
const NAMED: usize = 5;

/// What was found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// They have all that this version needs.
    Fit,
    /// Nobody may look, which is as well as can be had.
    Hidden,
    /// Why not, in words for people.
    Not(String),
    /// The API server cannot be asked.
    Unknown(String),
}

/// Waits until the definitions fit. Says what is wrong when it first is, and when it is something else.
pub async fn fits(client: &Client) {
    let (mut said, mut refused) = (Found::Fit, 0);
    loop {
        let found = look(client).await;
        if found != said {
            match &found {
                Found::Fit => {}
                Found::Hidden => {
                    tracing::warn!("the schemas of the API server may not be read, so the definitions are not checked");
                }
                Found::Not(words) => tracing::error!("nothing is done: {words}"),
                Found::Unknown(error) => {
                    tracing::warn!(error, "the API server cannot be asked for its schemas; trying again");
                }
            }
        }
        refused = if found == Found::Hidden { refused + 1 } else { 0 };
        if found == Found::Fit || refused == REFUSALS {
            return;
        }
        said = found;
        tokio::time::sleep(AGAIN).await;
    }
}

async fn look(client: &Client) -> Found {
    let path = format!("/openapi/v3/apis/{}/{}", Pipeline::group(&()), Pipeline::version(&()));
    let request = match Request::get(path).body(Vec::new()) {
        Ok(request) => client.request::<Value>(request),
        Err(error) => return Found::Unknown(chain(&error)),
    };
    match timeout(DEADLINE, request).await.unwrap_or(Err(kube::Error::Service("no answer in time".into()))) {
        Ok(published) => judge(&missing(&crate::api::crds(), &published)),
        Err(kube::Error::Api(status)) if status.code == StatusCode::NOT_FOUND => {
            judge(&missing(&crate::api::crds(), &Value::Null))
        }
        Err(kube::Error::Api(status)) if status.code == StatusCode::FORBIDDEN => Found::Hidden,
        Err(error) => Found::Unknown(chain(&error)),
    }
}

fn judge(missing: &[String]) -> Found {
    let (named, more) = missing.split_at(missing.len().min(NAMED));
    if named.is_empty() {
        return Found::Fit;
    }
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    Found::Not(format!(
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
        let many: Vec<String> = (0..9).map(|n| format!("f{n}")).collect();
        let Found::Not(words) = judge(&many) else { panic!("it does not fit") };
        assert!(words.contains("f0, f1, f2, f3, f4 and 4 more") && words.contains("kubectl apply"), "{words}");
    }
}
