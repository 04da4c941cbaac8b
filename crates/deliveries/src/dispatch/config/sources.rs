//! The sources from which effective notifications are compiled, and the compilation itself.
//!
//! In: the current objects, and the texts of ConfigMaps. Out: effective notifications, together with their sources. The sources are the key
//! of a result: it must be compiled again if they differ from the current ones.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt as _;

use super::config_maps::ConfigMaps;
use relaybook_api::delivery::GLOBAL;
use relaybook_api::pipeline::target::TargetInfo;
use relaybook_api::values::refs::ConfigMapKey;
use relaybook_api::{Notification, ObjectName, PipelineSpec};
use relaybook_settings::config::global::{GlobalParts, is_same};
use relaybook_settings::config::layers::{self, Layer};
use relaybook_settings::config::snapshot::Based;
use relaybook_settings::config::{EffectiveNotification, Given, Text, resolve, resolve_layers};

/// The texts that were read from keys of ConfigMaps.
pub(super) type Texts = Vec<(ConfigMapKey, Text)>;

/// A pipeline that has layers, or a layer namespace.
pub(super) struct Site {
    pub(super) uid: String,
    pub(super) place: ObjectName,
    pub(super) generation: Option<i64>,
    /// The labels decide which notifications apply. A change of labels does not change the generation.
    pub(super) labels: BTreeMap<String, String>,
    pub(super) spec: PipelineSpec,
    /// Its targets. Those of `targetsFrom` change without the generation.
    pub(super) targets: Vec<TargetInfo>,
}

impl Site {
    /// Returns the namespace of the Notifications that are layers of the pipeline.
    pub(super) fn layer_namespace(&self) -> Option<&str> {
        self.spec.other_layer_namespace(&self.place.namespace)
    }

    /// Whether the pipeline has a layer of its own for this notification.
    pub(super) fn has_layer(&self, name: &str) -> bool {
        layers::all(&self.spec).any(|layer| layer.name == name)
    }
}

/// The objects from which a notification is compiled. Two values are equal if they refer to the same objects in memory. Equal parts of the
/// global configuration are the same object (`Global::reuse`), so a comparison of pointers is one of content.
#[derive(Clone, Default)]
pub(super) struct Sources {
    pub(super) global: GlobalParts,
    pub(super) notification: Option<Arc<Notification>>,
    /// The Notification of the layer namespace of the pipeline.
    pub(super) laid: Option<Arc<Notification>>,
    /// The pipeline, for its layers.
    pub(super) site: Option<Arc<Site>>,
}

impl PartialEq for Sources {
    fn eq(&self, other: &Self) -> bool {
        self.global == other.global
            && is_same(self.notification.as_ref(), other.notification.as_ref())
            && is_same(self.laid.as_ref(), other.laid.as_ref())
            && is_same(self.site.as_ref(), other.site.as_ref())
    }
}

impl Sources {
    /// Returns the uid of the notification to which a pipeline's layers over these sources belong. If there is no such notification,
    /// returns the uid of the pipeline.
    pub(super) fn uid(&self) -> &str {
        if self.global.cluster_wide.is_some() {
            return GLOBAL;
        }
        let notification = self.notification.as_ref().and_then(|n| n.metadata.uid.as_deref());
        notification.or(self.site.as_ref().map(|site| site.uid.as_str())).unwrap_or_default()
    }

    /// Returns the namespace whose budget compiles the layers of a pipeline: that of the layer that another namespace added.
    pub(super) fn payer(&self) -> &str {
        let laid = self.laid.as_ref().and_then(|n| n.metadata.namespace.as_deref());
        laid.or(self.site.as_ref().map(|site| site.place.namespace.as_str())).unwrap_or_default()
    }

    pub(super) fn layers(&self) -> Vec<Layer> {
        let laid = self.laid.as_deref().map(Layer::of_layer_namespace);
        self.global.layers(self.notification.as_deref()).into_iter().chain(laid).collect()
    }
}

/// Whether any of these texts has changed.
pub(super) fn are_stale(config_maps: &ConfigMaps, texts: &Texts) -> bool {
    texts.iter().any(|(key, text)| config_maps.text(key) != *text)
}

/// A compiler that records which texts of ConfigMaps it reads.
pub(super) struct Compiler<'a> {
    pub(super) config_maps: &'a ConfigMaps,
    pub(super) allow_http: bool,
    pub(super) texts: RefCell<Texts>,
}

impl Compiler<'_> {
    /// Resolves these layers for pipelines of this namespace; see [`resolve_layers`].
    pub(super) fn layers(&self, layers: &[Layer], namespace: &str, uid: &str) -> EffectiveNotification {
        self.with(|given| resolve_layers(layers, namespace, uid, given))
    }

    /// Compiles a Notification alone, and over the cluster-wide notification of the same name.
    pub(super) fn notification(&self, sources: &Sources, notification: &Notification) -> Based {
        let (namespace, uid) = (notification.namespace().unwrap_or_default(), notification.uid().unwrap_or_default());
        let over = sources.global.cluster_wide.is_some();
        let over = over.then(|| Arc::new(self.layers(&sources.layers(), &namespace, GLOBAL)));
        let alone = match sources.global.clone().only_if(|_| false).layers(Some(notification)).as_slice() {
            [_] => self.with(|given| resolve(notification, given)),
            layers => self.layers(layers, &namespace, &uid),
        };
        Based { alone: Arc::new(alone), over }
    }

    fn with<T>(&self, compile: impl FnOnce(&Given<'_>) -> T) -> T {
        let text = |key: &ConfigMapKey| -> Text {
            let text = self.config_maps.text(key);
            let mut texts = self.texts.borrow_mut();
            if !texts.iter().any(|known| *known == (key.clone(), text.clone())) {
                texts.push((key.clone(), text.clone()));
            }
            text
        };
        compile(&Given { allow_http: self.allow_http, text: &text })
    }
}
