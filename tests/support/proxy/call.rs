//! A call of the API server, and what it is about.

use bytes::Bytes;
use serde_json::Value;

/// One call, before it is made.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// Its query, without the question mark.
    pub query: String,
    /// Its body.
    pub body: Bytes,
}

impl Call {
    /// Whether a delivery is to be recorded.
    pub fn is_create_delivery(&self) -> bool {
        self.method == "POST" && self.object() == ["deliveries"]
    }

    /// Whether a delivery's status is to be written.
    pub fn is_delivery_status(&self) -> bool {
        self.method == "PATCH" && matches!(self.object()[..], ["deliveries", _, "status"])
    }

    /// Whether a delivery is to be settled.
    pub fn is_outcome(&self) -> bool {
        self.is_delivery_status() && self.json()["status"]["outcome"].is_string()
    }

    /// Whether the dispatcher's part of a pipeline's status is to be written.
    pub fn is_cursors(&self) -> bool {
        self.is_patch_of_pipeline() && self.touches_dispatched()
    }

    /// Whether the pipeline controller's part is.
    pub fn is_pipeline_status(&self) -> bool {
        self.is_patch_of_pipeline() && !self.touches_dispatched()
    }

    /// Whether it is about a Lease.
    pub fn is_lease(&self) -> bool {
        self.object().first() == Some(&"leases")
    }

    /// Whether it is about objects of this resource, in some namespace.
    pub fn concerns(&self, resource: &str) -> bool {
        self.object().first() == Some(&resource)
    }

    /// Whether the status of a notification is to be written.
    pub fn is_notification_status(&self) -> bool {
        self.method == "PATCH" && matches!(self.object()[..], ["notifications", _, "status"])
    }

    /// The right that it takes, as far as calls are told apart by it: the name of an object is left out of the path.
    pub fn right(&self) -> String {
        let mut words: Vec<_> = self.path.split('/').collect();
        let namespaced = words.iter().position(|word| *word == "namespaces");
        if let Some(name) = namespaced.and_then(|at| words.get_mut(at + 3)) {
            *name = "-";
        }
        let selector = self.query.split('&').find(|pair| pair.starts_with("fieldSelector=")).unwrap_or_default();
        let watch = if self.is_watch() { "WATCH" } else { "" };
        format!("{}{watch} {} {selector}", self.method, words.join("/"))
    }

    /// What it writes: an object, or the part of one that belongs to one controller.
    pub fn written(&self) -> String {
        let created =
            self.json()["metadata"]["name"].as_str().filter(|_| self.method == "POST").unwrap_or_default().to_owned();
        let part = if self.is_cursors() { "dispatched" } else { "" };
        format!("{} {} {created} {part}", self.method, self.path)
    }

    /// Whether it opens a watch.
    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|pair| pair == "watch=true")
    }

    fn is_patch_of_pipeline(&self) -> bool {
        self.method == "PATCH" && matches!(self.object()[..], ["pipelines", _, "status"])
    }

    fn touches_dispatched(&self) -> bool {
        let body = self.json();
        let mut paths = body.as_array().into_iter().flatten().filter_map(|step| step["path"].as_str());
        paths.any(|path| path.starts_with("/status/dispatched"))
    }

    /// Resource, name, subresource, as far as they are there: what follows the namespace.
    fn object(&self) -> Vec<&str> {
        let words = self.path.split('/').skip_while(|word| *word != "namespaces");
        words.skip(2).collect()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}
