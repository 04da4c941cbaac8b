//! Pure: the answers of the API server to a request that it does not carry out.
//!
//! In: what is wrong. Out: a code, and the `Status` with reason and message.

use serde_json::{Value, json};

use super::kind::Kind;

/// A refused request.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The HTTP status.
    pub code: u16,
    /// The machine-readable reason.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
    /// What is concerned.
    details: Value,
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: String) -> Self {
        Self { code, reason, message, details: Value::Null }
    }

    /// Returns what the API server answers with this code if the request is correct: missing permissions, a quota, an admission webhook, too
    /// many requests, or an outage.
    #[must_use]
    pub fn refused(code: u16) -> Self {
        let reason = match code {
            403 => "Forbidden",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "Unknown",
        };
        Self::new(code, reason, format!("the model refuses the request: {reason}"))
    }

    pub(super) fn unserved() -> Self {
        let message = "the server could not find the requested resource".to_owned();
        Self { details: json!({}), ..Self::new(404, "NotFound", message) }
    }

    pub(super) fn bad(message: &str) -> Self {
        Self::new(400, "BadRequest", message.to_owned())
    }

    /// The version of a watch or of a page is older than the history.
    pub(super) fn expired() -> Self {
        Self::new(410, "Expired", "too old resource version".to_owned())
    }

    pub(super) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", kind.qualified())).about(&kind.plural, kind, name)
    }

    pub(super) fn exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.qualified());
        Self::new(409, "AlreadyExists", message).about(&kind.plural, kind, name)
    }

    pub(super) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified());
        Self::new(409, "Conflict", message).about(&kind.plural, kind, name)
    }

    pub(super) fn invalid(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{}.{} \"{name}\" is invalid: {why}", kind.kind, kind.group);
        Self::new(422, "Invalid", message).about(&kind.kind, kind, name)
    }

    /// A replacement does not name the version that it replaces.
    pub(super) fn unversioned(kind: &Kind, name: &str) -> Self {
        let message = "metadata.resourceVersion: must be specified for an update";
        Self::invalid(kind, name, message).about(&kind.plural, kind, name)
    }

    /// A deletion is for another version or another object.
    pub(super) fn precondition(kind: &Kind, name: &str, field: &str) -> Self {
        Self::conflict(kind, name, &format!("Precondition failed: {field}")).about(&kind.kind, kind, name)
    }

    /// Another field manager has set these fields. The answer does not name the object.
    pub(super) fn contested(fields: &[String]) -> Self {
        let message = format!("Apply failed with {} conflicts: {}", fields.len(), fields.join(", "));
        Self { details: json!({}), ..Self::new(409, "Conflict", message) }
    }

    /// A JSON Patch cannot be applied, for example because a test failed. The answer does not name the object.
    pub(super) fn unprocessable(why: &str) -> Self {
        let message = format!("the server rejected our request due to an error in our request: {why}");
        Self { details: json!({}), ..Self::new(422, "Invalid", message) }
    }

    fn about(mut self, what: &str, kind: &Kind, name: &str) -> Self {
        self.details = json!({"name": name, "kind": what});
        if !kind.group.is_empty() {
            self.details["group"] = json!(kind.group);
        }
        self
    }

    /// Returns the body of the answer.
    #[must_use]
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}
