//! What the body of an approval must say, and whether it approves a promotion. Pure.
//!
//! In: a body whose signature is right, and the promotion that it names, as the API server has it now. Out: whether to approve it, or why
//! not. The caller has a key of the environment, so an error can name what waits there.

use serde::Deserialize;

use super::directory::Waiting;
use super::route::is_object_name;
use relaybook_api::promotion::Phase;
use relaybook_api::{ObjectName, Promotion, Time};

/// Maximum number of seconds between the time in the body and now. It limits how long a captured request can be repeated.
const VALID: i64 = 300;

/// The body of an approval. An unknown field is an error: somebody may believe that it restricts the approval.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Approval {
    /// Namespace of the pipeline.
    pub namespace: String,
    /// Name of the pipeline.
    pub pipeline: String,
    /// The environment to which the revision goes.
    pub environment: String,
    /// The revision.
    pub revision: String,
    /// Name of the Promotion.
    pub promotion: String,
    /// Uid of the Promotion. So the approval is for one occasion, not for the next one with the same revision.
    pub promotion_uid: String,
    /// When the approval was given.
    pub at: Time,
}

/// Returns the environment that a body names. Its keys decide whether the body is signed, so nothing else is read of an unsigned body.
pub(super) fn environment(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        environment: String,
    }
    serde_json::from_slice(body).ok().map(|Named { environment }| environment)
}

/// Why a body is not an approval.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Invalid {
    /// It is not JSON, or a field is missing, unknown or of another type.
    #[error("the body is not an approval: {0}")]
    Fields(String),
    /// A field names another pipeline than the path.
    #[error("{0} of the body differs from that of the path")]
    OtherPath(&'static str),
    /// The time is not close to now.
    #[error("at must be at most 5 minutes before or after {0}, the time of the controller")]
    Time(Time),
    /// The name is not that of an object.
    #[error("promotion is not the name of an object")]
    Name,
}

/// What to do about an approval.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict<'a> {
    /// Approve this promotion.
    Approve(&'a Promotion),
    /// It is approved already.
    AlreadyApproved,
    /// It does not wait for an approval. The message is for the caller.
    NotWaiting(String),
}

impl Approval {
    /// Reads the body of a request to approve a promotion of this pipeline.
    pub fn read(body: &[u8], pipeline: &ObjectName, now: Time) -> Result<Self, Invalid> {
        // A list with the values in order would be accepted, too.
        if !body.trim_ascii_start().starts_with(b"{") {
            return Err(Invalid::Fields("it is not a JSON object".to_owned()));
        }
        let approval: Self = serde_json::from_slice(body).map_err(|error| Invalid::Fields(error.to_string()))?;
        if approval.namespace != pipeline.namespace {
            return Err(Invalid::OtherPath("namespace"));
        }
        if approval.pipeline != pipeline.name {
            return Err(Invalid::OtherPath("pipeline"));
        }
        if now.duration_since(approval.at).as_secs().abs() > VALID {
            return Err(Invalid::Time(now));
        }
        if !is_object_name(&approval.promotion) {
            return Err(Invalid::Name);
        }
        Ok(approval)
    }

    /// Decides what to do. `uid`: of the pipeline. `waiting`: the promotion to this environment that waits for an approval, according to the
    /// status of the pipeline, which can be a moment old. `promotion`: the promotion with the name in the body, if it exists.
    pub fn decide<'a>(&self, uid: &str, waiting: Option<&Waiting>, promotion: Option<&'a Promotion>) -> Verdict<'a> {
        let found = match promotion {
            None => Err(format!("promotion {} does not exist", self.promotion)),
            Some(promotion) => self.differs(uid, promotion).map_or(Ok(promotion), Err),
        };
        let found = found.and_then(|promotion| {
            let phase = promotion.status.as_ref().and_then(|status| status.phase);
            let has_failed = matches!(phase, Some(Phase::Withdrawn | Phase::Failed | Phase::Closed));
            let is_other = waiting.is_some_and(|waiting| waiting.promotion_uid != self.promotion_uid);
            match phase {
                Some(Phase::Pending) if !promotion.spec.approved => Ok(Verdict::Approve(promotion)),
                _ if promotion.spec.approved && !has_failed && !is_other => Ok(Verdict::AlreadyApproved),
                _ => Err(phase_of(promotion, phase)),
            }
        });
        found.unwrap_or_else(|why| Verdict::NotWaiting(format!("{why}; {}", self.waits(waiting))))
    }

    /// Returns how a promotion differs from what is approved.
    fn differs(&self, uid: &str, promotion: &Promotion) -> Option<String> {
        let (spec, name) = (&promotion.spec, &self.promotion);
        if spec.pipeline_ref.uid != uid {
            return Some(format!("promotion {name} belongs to another pipeline"));
        }
        if promotion.metadata.uid.as_ref() != Some(&self.promotion_uid) {
            return Some(format!("promotion {name} has another uid"));
        }
        if spec.environment != self.environment {
            return Some(format!("promotion {name} is for environment {}", spec.environment));
        }
        if spec.revision != self.revision {
            return Some(format!("promotion {name} has revision {}", spec.revision));
        }
        promotion.metadata.deletion_timestamp.as_ref().map(|_| format!("promotion {name} is being deleted"))
    }

    fn waits(&self, waiting: Option<&Waiting>) -> String {
        let environment = &self.environment;
        match waiting {
            None => format!("nothing waits for an approval in {environment}"),
            Some(Waiting { revision, promotion, promotion_uid }) => format!(
                "{environment} waits for an approval of revision {revision}: promotion {promotion}, promotionUid {promotion_uid}"
            ),
        }
    }
}

fn phase_of(promotion: &Promotion, phase: Option<Phase>) -> String {
    let name = promotion.metadata.name.as_deref().unwrap_or_default();
    match phase {
        None => format!("promotion {name} has not started yet"),
        Some(phase) => format!("promotion {name} is {}", phase.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(text: &str) -> Time {
        text.parse().unwrap()
    }

    fn pipeline() -> ObjectName {
        ObjectName::new("team-a", "podinfo")
    }

    fn body() -> Value {
        json!({"namespace": "team-a", "pipeline": "podinfo", "environment": "prod", "revision": "main@sha1:5f3d/2c",
            "promotion": "podinfo-prod-7f3a-1", "promotionUid": "u", "at": "2026-01-31T12:00:00Z"})
    }

    fn read(body: &Value, now: &str) -> Result<Approval, Invalid> {
        Approval::read(body.to_string().as_bytes(), &pipeline(), at(now))
    }

    #[test]
    fn an_unsigned_body_names_an_environment_or_none() {
        for (body, expected) in [
            (body().to_string().as_str(), Some("prod")),
            (r#"{"environment": "prod"}"#, Some("prod")),
            (r#"{"until": [[{}]], "environment": "a\u0062"}"#, Some("ab")),
            (r#"{"environment": "prod", "environment": "qa"}"#, None),
            (r#"{"environment": 1}"#, None),
            (r#"{"environment": "prod"} x"#, None),
            (r#""prod""#, None),
            ("{}", None),
            ("", None),
            ("[".repeat(64 * 1024).as_str(), None),
            (format!("{{\"a\": {}", "[".repeat(64 * 1024)).as_str(), None),
        ] {
            assert_eq!(environment(body.as_bytes()).as_deref(), expected, "{}", &body[..body.len().min(99)]);
        }
    }

    #[test]
    fn an_approval_must_name_everything_and_a_time_within_five_minutes() {
        let with = |name: &str, value: Value| {
            let mut body = body();
            body[name] = value;
            body
        };
        let without = |name: &str| {
            let mut body = body();
            body.as_object_mut().unwrap().remove(name);
            body
        };
        for now in ["2026-01-31T12:00:00Z", "2026-01-31T12:05:00Z", "2026-01-31T11:55:00Z"] {
            assert_eq!(read(&body(), now).unwrap().revision, "main@sha1:5f3d/2c");
        }
        for now in ["2026-01-31T12:05:01Z", "2026-01-31T11:54:59Z", "2027-01-31T12:00:00Z"] {
            assert_eq!(read(&body(), now), Err(Invalid::Time(at(now))));
        }
        for (body, words) in [
            (with("namespace", json!("team-b")), "namespace of the body differs"),
            (with("pipeline", json!("podinfo2")), "pipeline of the body differs"),
            (with("promotion", json!("../secrets/x")), "not the name of an object"),
            (with("promotion", json!("")), "not the name of an object"),
            (with("at", json!("yesterday")), "not an approval"),
            (with("at", json!(1_769_860_800)), "not an approval"),
            (with("revision", json!(6.5)), "not an approval"),
            (with("until", json!("2026-02-01T12:00:00Z")), "unknown field `until`"),
            (without("promotionUid"), "missing field `promotionUid`"),
            (without("promotion"), "missing field `promotion`"),
            (without("at"), "missing field `at`"),
            (json!(["team-a", "podinfo", "prod", "1", "a", "u", "2026-01-31T12:00:00Z"]), "not a JSON object"),
            (Value::Null, "not an approval"),
        ] {
            let error = read(&body, "2026-01-31T12:00:00Z").unwrap_err().to_string();
            assert!(error.contains(words), "{body}: {error}");
        }
        for text in ["", "{", "approve", r#"{"namespace": "team-a", "namespace": "team-b"}"#] {
            assert!(Approval::read(text.as_bytes(), &pipeline(), at("2026-01-31T12:00:00Z")).is_err(), "{text}");
        }
        let twice = body().to_string().replacen('{', r#"{"environment": "dev","#, 1);
        let error = Approval::read(twice.as_bytes(), &pipeline(), at("2026-01-31T12:00:00Z")).unwrap_err();
        assert!(error.to_string().contains("duplicate field"), "{error}");
    }

    fn promotion(over: &Value) -> Promotion {
        let mut object = json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Promotion",
            "metadata": {"name": "podinfo-prod-7f3a-1", "namespace": "team-a", "uid": "u"},
            "spec": {"pipelineRef": {"name": "podinfo", "uid": "p"}, "environment": "prod", "from": "staging",
                "revision": "main@sha1:5f3d/2c", "occasion": 1},
            "status": {"phase": "Pending"},
        });
        json_patch::merge(&mut object, over);
        serde_json::from_value(object).unwrap()
    }

    fn verdict(over: &Value, waiting: Option<&Waiting>) -> String {
        let (approval, promotion) = (read(&body(), "2026-01-31T12:00:00Z").unwrap(), promotion(over));
        match approval.decide("p", waiting, Some(&promotion)) {
            Verdict::Approve(found) => {
                assert_eq!(*found, promotion);
                "approve".to_owned()
            }
            Verdict::AlreadyApproved => "already".to_owned(),
            Verdict::NotWaiting(why) => why,
        }
    }

    #[test]
    fn only_the_named_promotion_is_approved_and_only_while_it_waits() {
        let waiting = |promotion: &str, uid: &str| Waiting {
            revision: "7".to_owned(),
            promotion: promotion.to_owned(),
            promotion_uid: uid.to_owned(),
        };
        let (own, other) = (waiting("podinfo-prod-7f3a-1", "u"), waiting("podinfo-prod-7f3a-2", "v"));
        let phase = |phase: &str| json!({"status": {"phase": phase}});
        let approved = |phase: &str| json!({"status": {"phase": phase}, "spec": {"approved": true}});
        for (over, waiting, expected) in [
            (json!({}), Some(&own), "approve"),
            // The status of the pipeline can be late.
            (json!({}), None, "approve"),
            (json!({}), Some(&other), "approve"),
            (approved("Pending"), Some(&own), "already"),
            (approved("Requested"), None, "already"),
            (approved("Merged"), None, "already"),
            (approved("Finished"), None, "already"),
            (approved("Finished"), Some(&other), "is Finished; prod waits for an approval of revision 7"),
            (approved("Withdrawn"), None, "is Withdrawn; nothing waits for an approval in prod"),
            (approved("Failed"), None, "is Failed; nothing waits"),
            (phase("Requested"), None, "is Requested; nothing waits"),
            (phase("Finished"), Some(&other), "promotion podinfo-prod-7f3a-2, promotionUid v"),
            (json!({"status": null}), None, "has not started yet"),
            (json!({"metadata": {"uid": "v"}}), None, "has another uid"),
            (json!({"spec": {"pipelineRef": {"uid": "q"}}}), None, "belongs to another pipeline"),
            (json!({"spec": {"environment": "dev"}}), None, "is for environment dev"),
            (json!({"spec": {"revision": "main@sha1:5f3d"}}), None, "has revision main@sha1:5f3d"),
            (json!({"metadata": {"deletionTimestamp": "2026-01-31T12:00:00Z"}}), None, "is being deleted"),
        ] {
            let found = verdict(&over, waiting);
            assert!(found.contains(expected), "{over}: {found}");
        }
        let approval = read(&body(), "2026-01-31T12:00:00Z").unwrap();
        let Verdict::NotWaiting(why) = approval.decide("p", None, None) else { panic!("it does not exist") };
        assert!(why.contains("does not exist"), "{why}");
    }
}
