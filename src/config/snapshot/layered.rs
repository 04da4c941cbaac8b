//! What layers make of notifications. Values only.
//!
//! In: effective notifications, put here by the dispatcher: of Notifications ([`Based`]), cluster-wide ones ([`Everywhere`]), and
//! what pipelines lay over them ([`Layered`]). Out: the one that holds for a subject. Most pipelines say nothing of their own.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::config::EffectiveNotification;
use crate::config::global::Reach;

/// A Notification of a namespace.
#[derive(Clone, Debug)]
pub struct Based {
    /// As it is where no cluster-wide notification of its name is for the pipeline.
    pub alone: Arc<EffectiveNotification>,
    /// As it is over one.
    pub over: Option<Arc<EffectiveNotification>>,
}

/// A notification of the global configuration, where nobody else says anything of it.
#[derive(Clone, Debug)]
pub struct Everywhere {
    /// Which pipelines it is for.
    pub reach: Reach,
    /// What it comes to.
    pub effective: Arc<EffectiveNotification>,
}

impl Based {
    /// Both.
    pub fn all(&self) -> impl Iterator<Item = &Arc<EffectiveNotification>> {
        self.over.iter().chain([&self.alone])
    }

    /// What holds for a pipeline with these labels, if `everywhere` is what there would be without it.
    #[must_use]
    pub fn of<'a>(
        &'a self,
        everywhere: Option<&'a Arc<EffectiveNotification>>,
        labels: &BTreeMap<String, String>,
    ) -> &'a Arc<EffectiveNotification> {
        match (everywhere, &self.over) {
            (Some(_), Some(over)) if over.selects(labels) => over,
            // It does not speak of this pipeline; the other does.
            (Some(everywhere), Some(_)) => everywhere,
            _ => &self.alone,
        }
    }
}

impl From<EffectiveNotification> for Based {
    fn from(alone: EffectiveNotification) -> Self {
        Self { alone: Arc::new(alone), over: None }
    }
}

/// By name: the notifications of which a pipeline says something.
#[derive(Clone, Debug, Default)]
pub struct Layered(BTreeMap<String, Arc<Overridden>>);

/// One of them. Targets for which the same layers hold share what these come to.
#[derive(Clone, Debug, Default)]
pub struct Overridden {
    /// The layer of the whole pipeline; `None`: it has none, and what it has no layer for keeps what applies without layers.
    pub rest: Option<Arc<EffectiveNotification>>,
    /// By subject: targets, and environments as a whole.
    pub subjects: HashMap<String, Arc<EffectiveNotification>>,
}

impl Layered {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// By name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Arc<Overridden>)> {
        self.0.iter()
    }

    /// One of them.
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
    /// What its layers say of a subject.
    #[must_use]
    pub fn of(&self, subject: &str) -> Option<&Arc<EffectiveNotification>> {
        self.subjects.get(subject).or(self.rest.as_ref())
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<EffectiveNotification>> {
        self.rest.iter().chain(self.subjects.values())
    }
}

/// A notification as one pipeline has it.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// The Notification of the namespace, the cluster-wide one, or the first over the second.
    pub base: Option<Arc<EffectiveNotification>>,
    /// What the pipeline makes of it, or its own.
    pub layered: Option<Arc<Overridden>>,
}

impl Applied {
    /// What holds for a subject.
    #[must_use]
    pub fn of(&self, subject: &str) -> Option<&Arc<EffectiveNotification>> {
        let layered = self.layered.as_ref().and_then(|layered| layered.of(subject));
        layered.or(self.base.as_ref())
    }

    /// All that hold for some subject.
    pub fn all(&self) -> impl Iterator<Item = &Arc<EffectiveNotification>> {
        let rest = self.layered.as_ref().and_then(|layered| layered.rest.as_ref()).or(self.base.as_ref());
        rest.into_iter().chain(self.layered.iter().flat_map(|layered| layered.subjects.values()))
    }

    /// Whose it is.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.all().next().map_or("", |n| &n.uid)
    }

    /// Whether it applies to a pipeline with these labels; one whose selector cannot be understood is taken to.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let understood = self.all().find_map(|n| n.intake.as_ref().ok());
        understood.is_none_or(|intake| intake.selector.selects(labels))
    }
}
