//! The context for resolving a notification: content of the cluster, and the namespaces of its references.

use std::sync::Arc;

use crate::config::layers::{Folded, Source};
use crate::render::{Hidden, Parameters, Visibility};
use relaybook_api::values::refs::ConfigMapKey;

/// The context for resolving a notification.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    /// Whether the operator allows `http` to any host.
    pub allow_http: bool,
    /// Returns the content of a key of a ConfigMap.
    pub text: &'a dyn Fn(&ConfigMapKey) -> Text,
}

impl Given<'_> {
    /// A context without a cluster: `http` is allowed only to Services, and there are no ConfigMaps.
    #[must_use]
    pub fn nothing() -> Self {
        Self { allow_http: false, text: &|_| Text::NoConfigMap }
    }
}

/// The content of a key of a ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// Not known yet.
    Unknown,
    /// The ConfigMap cannot be read.
    Unreadable,
    /// There is no such ConfigMap.
    NoConfigMap,
    /// The ConfigMap has no such key.
    NoKey,
    /// This content.
    Found(Arc<str>),
}

/// The namespaces in which references resolve.
pub(crate) struct Places<'a> {
    /// The merged layers. `None`: a Notification is resolved without layers.
    pub(crate) folded: Option<&'a Folded>,
    /// Parameters that no template of this namespace is allowed to see, and those that no template of the layer namespace is allowed to see.
    pub(crate) hidden: [Hidden; 2],
    /// The namespace of the Notification, or of the pipeline.
    pub(crate) namespace: &'a str,
}

impl<'a> Places<'a> {
    /// The namespace of the reference at this JSON Pointer.
    pub(crate) fn of(&self, pointer: &str) -> &'a str {
        self.folded.and_then(|folded| folded.namespace(pointer)).unwrap_or(self.namespace)
    }

    /// The parameters as the template at this JSON Pointer sees them.
    pub(crate) fn seen_at(&self, pointer: &str, parameters: &Parameters) -> Parameters {
        let visibility = match self.folded.and_then(|folded| folded.author(pointer)) {
            Some(Source::LayerNamespace(_)) => Visibility::LayerNamespace,
            _ if self.of(pointer) == self.namespace => Visibility::Pipeline,
            _ => Visibility::All,
        };
        parameters.seen_with(visibility)
    }

    /// The namespace of the layer that set the URL. Deliveries are never kept in the layer namespace of the pipeline, but in that of the
    /// pipeline: its author decides which of them there are, and for how long.
    pub(crate) fn home(&self) -> &'a str {
        let set = |pointer: &&str| self.folded.is_some_and(|folded| folded.author(pointer).is_some());
        let url = ["/endpoint/url", "/endpoint/urlFrom"].into_iter().find(set).unwrap_or_default();
        match self.folded.and_then(|folded| folded.author(url)) {
            Some(Source::LayerNamespace(_)) | None => self.namespace,
            Some(_) => self.of(url),
        }
    }
}
