//! The effective notifications that layers result in. Values only.
//!
//! In: the effective notifications of Notifications ([`Based`]), of cluster-wide notifications ([`EffectiveClusterWide`]) and of the layers
//! of pipelines ([`Layered`]). The dispatcher puts them here. Out: the effective notification for a subject. Most pipelines have no layers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::config::EffectiveNotification;
use crate::config::global::Reach;

/// A Notification of a namespace.
#[derive(Clone, Debug)]
pub struct Based {
    /// The result for pipelines to which no cluster-wide notification with the same name applies.
    pub alone: Arc<EffectiveNotification>,
    /// The result with the cluster-wide notification of the same name as a layer below.
    pub over: Option<Arc<EffectiveNotification>>,
}

/// A cluster-wide notification, for pipelines without a Notification or layers for it.
#[derive(Clone, Debug)]
pub struct EffectiveClusterWide {
    /// The pipelines that it applies to.
    pub reach: Reach,
    /// The effective notification.
    pub effective: Arc<EffectiveNotification>,
}

impl Based {
    /// The results in `over` and `alone`.
    pub fn all(&self) -> impl Iterator<Item = &Arc<EffectiveNotification>> {
        self.over.iter().chain([&self.alone])
    }

    /// The effective notification for a pipeline with these labels. `cluster_wide` is what applies without this Notification.
    #[must_use]
    pub fn of<'a>(
        &'a self,
        cluster_wide: Option<&'a Arc<EffectiveNotification>>,
        labels: &BTreeMap<String, String>,
    ) -> &'a Arc<EffectiveNotification> {
        match (cluster_wide, &self.over) {
            (Some(_), Some(over)) if over.selects(labels) => over,
            // The Notification does not select this pipeline. The cluster-wide notification does.
            (Some(cluster_wide), Some(_)) => cluster_wide,
            _ => &self.alone,
        }
    }
}

impl From<EffectiveNotification> for Based {
    fn from(alone: EffectiveNotification) -> Self {
        Self { alone: Arc::new(alone), over: None }
    }
}

/// By name, the notifications for which a pipeline has layers.
#[derive(Clone, Debug, Default)]
pub struct Layered(BTreeMap<String, Arc<Overridden>>);

/// A notification for which a pipeline has layers. Targets with the same layers share one result.
#[derive(Clone, Debug, Default)]
pub struct Overridden {
    /// The result of the layer of the whole pipeline. `None`: there is no such layer, so subjects without a layer keep what applies without
    /// layers.
    pub rest: Option<Arc<EffectiveNotification>>,
    /// The results by subject: targets, and environments as a whole.
    pub subjects: HashMap<String, Arc<EffectiveNotification>>,
}

impl Layered {
    /// Whether the pipeline has no layers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Arc<Overridden>)> {
        self.0.iter()
    }

    /// The notification with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Arc<Overridden>> {
        self.0.get(name)
    }
}

impl FromIterator<(String, Arc<Overridden>)> for Layered {
    fn from_iter<T: IntoIterator<Item = (String, Arc<Overridden>)>>(iter: T) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl Overridden {
    /// The result of the layers for a subject.
    #[must_use]
    pub fn of(&self, subject: &str) -> Option<&Arc<EffectiveNotification>> {
        self.subjects.get(subject).or(self.rest.as_ref())
    }

    /// All results.
    pub fn all(&self) -> impl Iterator<Item = &Arc<EffectiveNotification>> {
        self.rest.iter().chain(self.subjects.values())
    }
}

/// A notification as it applies to one pipeline.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// The result of the Notification of the namespace, of the cluster-wide notification, or of both.
    pub base: Option<Arc<EffectiveNotification>>,
    /// The results with the pipeline's layers, or of a notification that only the pipeline has.
    pub layered: Option<Arc<Overridden>>,
}

impl Applied {
    /// The effective notification for a subject.
    #[must_use]
    pub fn of(&self, subject: &str) -> Option<&Arc<EffectiveNotification>> {
        let layered = self.layered.as_ref().and_then(|layered| layered.of(subject));
        layered.or(self.base.as_ref())
    }

    /// All effective notifications that apply to some subject.
    pub fn all(&self) -> impl Iterator<Item = &Arc<EffectiveNotification>> {
        let rest = self.layered.as_ref().and_then(|layered| layered.rest.as_ref()).or(self.base.as_ref());
        rest.into_iter().chain(self.layered.iter().flat_map(|layered| layered.subjects.values()))
    }

    /// The UID of the notification. Empty if nothing applies.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.all().next().map_or("", |n| &n.uid)
    }

    /// Whether it applies to a pipeline with these labels. If each result has an invalid selector or trigger, it counts as applying.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let understood = self.all().find_map(|n| n.intake.as_ref().ok());
        understood.is_none_or(|intake| intake.selector.selects(labels))
    }
}
