//! The calls of `relaybook promotions`, `relaybook promote` and `relaybook approve`.
//!
//! In: a client with the permissions of the user. Out: the promotions of a namespace, one new Promotion, or one approval.
//! [`ask`](relaybook_core::promotion::ask) decides which.

use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde::Serialize;

use relaybook_api::promotion::{Phase, PullRequestState};
use relaybook_api::{Pipeline, Promotion, Time};
use relaybook_core::promotion::policy::strategy_name;
use relaybook_runtime::guarded::Guarded;
use relaybook_runtime::tenure::Unowned;
use relaybook_runtime::watch::api_in;

/// Page size of a list.
const PAGE: u32 = 500;

/// The list request failed.
#[derive(Debug, thiserror::Error)]
#[error("promotions cannot be listed")]
pub struct ListError(#[source] pub Box<kube::Error>);

/// Why a call did not do what the user requested.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// Another Promotion has this name.
    #[error("another Promotion has the name {0}; delete it, and try again")]
    Taken(String),
    /// The API server refused the create, or the call failed.
    #[error("promotion {0} cannot be created")]
    Create(String, #[source] Box<kube::Error>),
    /// The promotion was deleted or replaced after it was read.
    #[error(
        "nothing was approved, because promotion {0} was deleted in the meantime; `relaybook promotions` lists the others"
    )]
    Gone(String),
    /// The API server refused the patch, or the call failed.
    #[error("promotion {0} cannot be approved")]
    Approve(String, #[source] Box<kube::Error>),
    /// The patch could not be encoded as JSON, which cannot happen in practice.
    #[error("the approval could not be encoded as JSON")]
    Json(#[from] serde_json::Error),
}

/// Returns the promotions of a namespace, or of all namespaces.
pub async fn list(client: &Client, namespace: Option<&str>) -> Result<Vec<Promotion>, ListError> {
    selected(client, namespace, None).await
}

/// Lists the promotions of a pipeline, or all. Those of other pipelines are dropped with each page, so a large namespace needs little memory.
async fn selected(client: &Client, namespace: Option<&str>, uid: Option<&str>) -> Result<Vec<Promotion>, ListError> {
    let api = api_in::<Promotion>(client, namespace);
    let (mut params, mut all) = (ListParams::default().limit(PAGE), Vec::new());
    loop {
        let page = api.list(&params).await.map_err(|e| ListError(Box::new(e)))?;
        all.extend(page.items.into_iter().filter(|promotion| is_of(promotion, uid)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// Returns the promotions of a pipeline. They are selected by its uid, because a user can create one without labels.
pub async fn of_pipeline(client: &Client, pipeline: &Pipeline) -> Result<Vec<Promotion>, ListError> {
    let uid = pipeline.uid().unwrap_or_default();
    selected(client, Some(&pipeline.namespace().unwrap_or_default()), Some(&uid)).await
}

/// Whether a promotion belongs to the pipeline with this uid. `None`: to any.
fn is_of(promotion: &Promotion, uid: Option<&str>) -> bool {
    uid.is_none_or(|uid| promotion.spec.pipeline_ref.uid == uid)
}

/// Creates a promotion. If the same promotion exists, somebody else has created it, or the response to this call was lost. Both are
/// success.
pub async fn create(client: &Client, promotion: &Promotion) -> Result<(), CommandError> {
    let name = promotion.name_any();
    let api: Api<Promotion> = Api::namespaced(client.clone(), &promotion.namespace().unwrap_or_default());
    match api.create(&PostParams::default(), promotion).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            let found = api.get(&name).await.map_err(|e| CommandError::Create(name.clone(), Box::new(e)))?;
            if found.spec == promotion.spec { Ok(()) } else { Err(CommandError::Taken(name)) }
        }
        Err(error) => Err(CommandError::Create(name, Box::new(error))),
    }
}

/// Approves a promotion. The patch tests uid and revision, so it never approves another promotion of the same name.
pub async fn approve(client: &Client, promotion: &Promotion) -> Result<(), CommandError> {
    let name = promotion.name_any();
    let api: Api<Promotion> = Api::namespaced(client.clone(), &promotion.namespace().unwrap_or_default());
    let patch = Guarded::of(promotion.metadata.uid.as_deref())
        .test(["spec", "revision"], promotion.spec.revision.as_str().into())
        .put(["spec", "approved"], &true)?;
    match patch.try_write(Unowned::User.into(), &api, &name).await.map_err(kube::Error::from) {
        Ok(_) => Ok(()),
        // A failed test is 422 Invalid. If the object is gone, the answer is 404 NotFound.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.code == 422 => Err(CommandError::Gone(name)),
        Err(error) => Err(CommandError::Approve(name, Box::new(error))),
    }
}

/// One promotion, as the command line shows it to users and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Name of the Promotion.
    pub name: String,
    /// Namespace of the Promotion.
    pub namespace: String,
    /// Name of the pipeline.
    pub pipeline: String,
    /// The environment to which the revision goes.
    pub environment: String,
    /// The environment before it.
    pub from: String,
    /// The revision.
    pub revision: String,
    /// The revision at which the environment was last ready.
    pub previous: Option<String>,
    /// Where the promotion is. `None`: the controller has not read it yet.
    pub phase: Option<Phase>,
    /// Machine-readable reason for the phase.
    pub reason: String,
    /// Human-readable message.
    pub message: String,
    /// The strategy, such as `pullRequest`. Empty until the promotion is requested.
    pub strategy: String,
    /// URL of the pull request or of the commit.
    pub url: Option<String>,
    /// State of the pull request.
    pub pull_request: Option<PullRequestState>,
    /// Id of the commit that was pushed.
    pub commit: Option<String>,
    /// Whether it is approved.
    pub approved: bool,
    /// Number of attempts.
    pub attempts: i64,
    /// Serial of the change with which the environment before came to run the revision.
    pub occasion: i64,
    /// The number of the request of a person. 0: Relaybook started the promotion.
    pub request: i64,
    /// When the promotion was created.
    pub created: Option<Time>,
    /// When the last attempt started.
    pub last_attempted: Option<Time>,
    /// When the next attempt starts, if the last one failed.
    pub next_attempt: Option<Time>,
    /// When the phase last changed.
    pub last_step: Option<Time>,
}

impl From<Promotion> for Row {
    fn from(promotion: Promotion) -> Self {
        let (name, namespace) = (promotion.name_any(), promotion.namespace().unwrap_or_default());
        let created = promotion.metadata.creation_timestamp.map(|time| time.0);
        let (spec, status) = (promotion.spec, promotion.status.unwrap_or_default());
        Self {
            name,
            namespace,
            pipeline: spec.pipeline_ref.name,
            environment: spec.environment,
            from: spec.from,
            revision: spec.revision,
            previous: spec.previous,
            phase: status.phase,
            reason: status.reason,
            message: status.message,
            strategy: status.strategy.as_ref().map_or("", strategy_name).to_owned(),
            url: status.location,
            pull_request: status.pull_request.map(|request| request.state),
            commit: status.commit.map(|commit| commit.id),
            approved: spec.approved,
            attempts: status.attempts,
            occasion: spec.occasion,
            request: spec.request,
            created,
            last_attempted: status.last_attempted_time,
            next_attempt: status.next_attempt_time,
            last_step: status.steps.last().map(|step| step.time),
        }
    }
}

/// Sorts rows: the newest promotion first.
pub fn newest_first(rows: &mut [Row]) {
    rows.sort_by(|a, b| (b.created, b.occasion, b.request, &b.name).cmp(&(a.created, a.occasion, a.request, &a.name)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(name: &str, created: i64, occasion: i64, request: i64) -> Row {
        let promotion: Promotion = serde_json::from_value(json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Promotion",
            "metadata": {
                "name": name, "namespace": "team-a",
                "creationTimestamp": Time::from_second(created).unwrap().to_string(),
            },
            "spec": {
                "pipelineRef": {"name": "web", "uid": "u"}, "environment": "prod", "from": "staging", "revision": "2",
                "occasion": occasion, "request": request,
            },
        }))
        .unwrap();
        promotion.into()
    }

    #[test]
    fn promotions_of_another_pipeline_of_the_same_name_are_dropped() {
        let mut promotion = Promotion::new("a", relaybook_api::PromotionSpec::default());
        promotion.spec.pipeline_ref.uid = "u".to_owned();
        for (uid, expected) in [(None, true), (Some("u"), true), (Some("v"), false), (Some(""), false)] {
            assert_eq!(is_of(&promotion, uid), expected, "{uid:?}");
        }
    }

    #[test]
    fn the_newest_promotions_come_first() {
        let mut rows = vec![row("a", 10, 1, 0), row("b", 20, 2, 0), row("c", 20, 2, 1), row("d", 5, 3, 0)];
        newest_first(&mut rows);
        let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["c", "b", "a", "d"]);
    }

    #[test]
    fn a_row_has_the_fields_of_its_promotion() {
        let new = serde_json::to_value(row("a", 10, 1, 0)).unwrap();
        assert_eq!((&new["phase"], &new["request"], &new["pipeline"]), (&json!(null), &json!(0), &json!("web")));
        let mut promotion = Promotion::new("a", relaybook_api::PromotionSpec { approved: true, ..Default::default() });
        promotion.status = serde_json::from_value(json!({
            "phase": "Requested", "reason": "R", "attempts": 1, "step": 2, "location": "https://e.com/pulls/7",
            "pullRequest": {"number": 7, "state": "open"}, "commit": {"id": "1f2e3d4c5b6a", "branch": "b"},
            "strategy": {"pullRequest": {"type": "gitea", "url": "https://e.com/a/b"}},
            "steps": [
                {"step": 1, "phase": "Pending", "time": "2026-01-01T00:00:00Z"},
                {"step": 2, "phase": "Requested", "time": "2026-01-01T00:00:05Z"},
            ],
        }))
        .unwrap();
        let shown = serde_json::to_value(Row::from(promotion)).unwrap();
        assert_eq!((&shown["phase"], &shown["reason"]), (&json!("Requested"), &json!("R")));
        assert_eq!((&shown["strategy"], &shown["url"]), (&json!("pullRequest"), &json!("https://e.com/pulls/7")));
        assert_eq!((&shown["pullRequest"], &shown["commit"]), (&json!("open"), &json!("1f2e3d4c5b6a")));
        assert_eq!((&shown["approved"], &shown["lastStep"]), (&json!(true), &json!("2026-01-01T00:00:05Z")));
    }
}
