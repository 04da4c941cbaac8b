//! What a change means, as triggers and deliveries name it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a change means. Which change yields which type is [`crate::trigger`]'s to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum TransitionType {
    /// The target runs another revision than the one that it last ran.
    #[default]
    Deployed,
    /// The target has begun to move to a revision.
    Progressing,
    /// The target has tried to run a revision, and has failed.
    Failed,
    /// The target runs again what it last ran, after a failure; a rollback after a failure is this, too.
    Recovered,
    /// The application object is gone.
    Removed,
    /// The target runs something else than was declared.
    Drifted,
    /// The target runs again what was declared.
    DriftCorrected,
    /// A cluster has not answered for the grace period (`--cluster-grace`).
    ClusterOffline,
    /// A cluster answers again.
    ClusterOnline,
    /// All targets of the environment run one revision, which is new for it.
    EnvironmentReady,
    /// All environments of the pipeline run one revision, which is new for it.
    PipelineReady,
}

impl TransitionType {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 11] = [
        Self::Deployed,
        Self::Progressing,
        Self::Failed,
        Self::Recovered,
        Self::Removed,
        Self::Drifted,
        Self::DriftCorrected,
        Self::ClusterOffline,
        Self::ClusterOnline,
        Self::EnvironmentReady,
        Self::PipelineReady,
    ];

    /// What it speaks of: a later one of the same family and subject says all that an earlier one said.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Self::Drifted | Self::DriftCorrected => Family::Drift,
            Self::Deployed
            | Self::Progressing
            | Self::Failed
            | Self::Recovered
            | Self::Removed
            | Self::ClusterOffline
            | Self::ClusterOnline
            | Self::EnvironmentReady
            | Self::PipelineReady => Family::Status,
        }
    }

    /// The kind of thing that it is about.
    #[must_use]
    pub const fn subject(self) -> SubjectKind {
        match self {
            Self::Deployed
            | Self::Progressing
            | Self::Failed
            | Self::Recovered
            | Self::Removed
            | Self::Drifted
            | Self::DriftCorrected => SubjectKind::Target,
            Self::ClusterOffline | Self::ClusterOnline => SubjectKind::Cluster,
            Self::EnvironmentReady => SubjectKind::Environment,
            Self::PipelineReady => SubjectKind::Pipeline,
        }
    }

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deployed => "Deployed",
            Self::Progressing => "Progressing",
            Self::Failed => "Failed",
            Self::Recovered => "Recovered",
            Self::Removed => "Removed",
            Self::Drifted => "Drifted",
            Self::DriftCorrected => "DriftCorrected",
            Self::ClusterOffline => "ClusterOffline",
            Self::ClusterOnline => "ClusterOnline",
            Self::EnvironmentReady => "EnvironmentReady",
            Self::PipelineReady => "PipelineReady",
        }
    }
}

/// What a transition speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// What the subject runs, and how well.
    Status,
    /// Whether it runs what was declared.
    Drift,
}

/// The kind of thing that a transition is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SubjectKind {
    /// A target.
    #[default]
    Target,
    /// A cluster.
    Cluster,
    /// An environment.
    Environment,
    /// The pipeline itself.
    Pipeline,
}
