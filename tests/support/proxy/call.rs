//! A call to the API server, and questions about its target.

use bytes::Bytes;
use serde_json::Value;

/// One call, before the proxy forwards it.
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
    /// Whether the call creates a Delivery.
    pub fn is_create_delivery(&self) -> bool {
        self.method == "POST" && self.object() == ["deliveries"]
    }

    /// Whether the call writes the status of a recorded Delivery.
    pub fn is_delivery_status(&self) -> bool {
        self.method == "PATCH" && matches!(self.object()[..], ["deliveries", _]) && self.json()["status"].is_object()
    }

    /// Whether the call settles a Delivery.
    pub fn is_outcome(&self) -> bool {
        (self.is_create_delivery() || self.is_delivery_status()) && self.json()["status"]["outcome"].is_string()
    }

    /// Whether the call writes the dispatcher's part of a pipeline's status.
    pub fn is_cursors(&self) -> bool {
        self.is_patch_of_pipeline() && self.touches_dispatched()
    }

    /// Whether the call writes the pipeline controller's part of a pipeline's status.
    pub fn is_pipeline_status(&self) -> bool {
        self.is_patch_of_pipeline() && !self.touches_dispatched()
    }

    /// Whether the call creates a Promotion.
    pub fn is_create_promotion(&self) -> bool {
        self.method == "POST" && self.object() == ["promotions"]
    }

    /// Whether the call writes the status of a Promotion.
    pub fn is_promotion_status(&self) -> bool {
        matches!(self.method.as_str(), "PATCH" | "PUT") && matches!(self.object()[..], ["promotions", _, "status"])
    }

    /// Whether the body of the call contains this text.
    pub fn says(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.body).contains(text)
    }

    /// Whether the call is about a Lease.
    pub fn is_lease(&self) -> bool {
        self.object().first() == Some(&"leases")
    }

    /// Whether the call is about objects of this resource, in any namespace.
    pub fn concerns(&self, resource: &str) -> bool {
        self.object().first() == Some(&resource)
    }

    /// Whether the call writes the status of a Notification.
    pub fn is_notification_status(&self) -> bool {
        self.method == "PATCH" && matches!(self.object()[..], ["notifications", _, "status"])
    }

    /// Returns a key for the permission that the call requires. Calls that differ only in the name of the object have the same key.
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

    /// Names what the call writes: an object, or the part of one that belongs to one controller.
    pub fn written(&self) -> String {
        let created =
            self.json()["metadata"]["name"].as_str().filter(|_| self.method == "POST").unwrap_or_default().to_owned();
        let part = if self.is_cursors() { "dispatched" } else { "" };
        format!("{} {} {created} {part}", self.method, self.path)
    }

    /// Whether the call opens a watch.
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

    /// Returns resource, name and subresource, as far as the path has them after the namespace.
    fn object(&self) -> Vec<&str> {
        let words = self.path.split('/').skip_while(|word| *word != "namespaces");
        words.skip(2).collect()
    }

    /// Returns its body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}
