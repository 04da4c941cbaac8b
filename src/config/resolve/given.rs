//! The context for resolving a notification: content of the cluster, and the namespaces of its references.

use std::sync::Arc;

use crate::api::values::refs::ConfigMapKey;
use crate::config::layers::Folded;
use crate::render::{Hidden, Parameters};

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
pub(in crate::config) struct Places<'a> {
    /// The merged layers. `None`: a Notification is resolved without layers.
    pub(in crate::config) folded: Option<&'a Folded>,
    /// Parameters that no template of this namespace is allowed to see.
    pub(in crate::config) hidden: Hidden,
    /// The namespace of the Notification, or of the pipeline.
    pub(in crate::config) namespace: &'a str,
}

impl<'a> Places<'a> {
    /// The namespace of the reference at this JSON Pointer.
    pub(in crate::config) fn of(&self, pointer: &str) -> &'a str {
        self.folded.and_then(|folded| folded.namespace(pointer)).unwrap_or(self.namespace)
    }

    /// The parameters as the template at this JSON Pointer sees them.
    pub(in crate::config) fn seen_at(&self, pointer: &str, parameters: &Parameters) -> Parameters {
        if self.of(pointer) == self.namespace { parameters.shared() } else { parameters.clone() }
    }

    /// The namespace of the layer that set the URL.
    pub(in crate::config) fn home(&self) -> &'a str {
        let of = |pointer| self.folded.and_then(|folded| folded.namespace(pointer));
        of("/endpoint/url").or_else(|| of("/endpoint/urlFrom")).unwrap_or(self.namespace)
    }
}
