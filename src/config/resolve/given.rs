//! What a notification is understood with, besides itself: what the cluster holds, and where its references lead.

use std::sync::Arc;

use crate::api::values::refs::ConfigMapKey;
use crate::config::layers::Folded;
use crate::render::{Hidden, Parameters};

/// What a notification is understood with, besides itself.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    /// The operator's word: `http` is allowed to any host.
    pub allow_http: bool,
    /// What a key of a ConfigMap holds.
    pub text: &'a dyn Fn(&ConfigMapKey) -> Text,
}

impl Given<'_> {
    /// Without a cluster: `http` only to services, and no ConfigMaps.
    #[must_use]
    pub fn nothing() -> Self {
        Self { allow_http: false, text: &|_| Text::NoConfigMap }
    }
}

/// What a key of a ConfigMap holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// Not known yet.
    Unknown,
    /// It cannot be read.
    Unreadable,
    /// There is no such ConfigMap.
    NoConfigMap,
    /// It has no such key.
    NoKey,
    /// This.
    Found(Arc<str>),
}

/// In which namespace references resolve.
pub(in crate::config) struct Places<'a> {
    /// What several layers come to, where there are several.
    pub(in crate::config) folded: Option<&'a Folded>,
    /// Parameters that no template of this namespace may see.
    pub(in crate::config) hidden: Hidden,
    /// That of the Notification, or of the pipeline.
    pub(in crate::config) namespace: &'a str,
}

impl<'a> Places<'a> {
    /// That of the reference at this JSON Pointer.
    pub(in crate::config) fn of(&self, pointer: &str) -> &'a str {
        self.folded.and_then(|folded| folded.namespace(pointer)).unwrap_or(self.namespace)
    }

    /// The parameters as the template at this JSON Pointer sees them.
    pub(in crate::config) fn seen_at(&self, pointer: &str, parameters: &Parameters) -> Parameters {
        if self.of(pointer) == self.namespace { parameters.shared() } else { parameters.clone() }
    }

    /// That of whoever wrote the URL.
    pub(in crate::config) fn home(&self) -> &'a str {
        let of = |pointer| self.folded.and_then(|folded| folded.namespace(pointer));
        of("/endpoint/url").or_else(|| of("/endpoint/urlFrom")).unwrap_or(self.namespace)
    }
}
