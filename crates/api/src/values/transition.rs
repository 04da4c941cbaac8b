//! What a change means, as triggers and deliveries express it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

words! {
    /// What a change means. `relaybook_settings::trigger` defines which change has which type.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    pub enum TransitionType {
        /// The application object exists now, and did not exist before. What it does then is a transition of its own.
        Added,
        /// The target runs a different revision or configuration than the one that it last ran.
        #[default]
        Deployed,
        /// The target has started to update to a revision or configuration.
        Progressing,
        /// The target has tried to run a revision and has failed.
        Failed,
        /// After a failure, the target again runs the revision that it last ran. A rollback after a failure is also `Recovered`.
        Recovered,
        /// The application object no longer exists.
        Removed,
        /// The running state of the target differs from the declared state.
        Drifted,
        /// The running state of the target is the declared state again.
        DriftCorrected,
        /// A cluster has not answered for the grace period (`--cluster-grace`).
        ClusterOffline,
        /// A cluster answers again.
        ClusterOnline,
        /// All targets of the environment run the same revision, which is new for the environment.
        EnvironmentReady,
        /// All environments of the pipeline run the same revision, which is new for the pipeline.
        PipelineReady,
        /// A promotion to the environment waits for an approval.
        PromotionPending,
        /// A promotion to the environment is requested. With the strategy `notification`, the receiver carries it out.
        PromotionRequested,
        /// The pull request of a promotion exists, or its commit is pushed.
        PromotionOpened,
        /// The environment runs the promoted revision.
        PromotionFinished,
        /// A promotion has failed: it was refused, or the environment did not run the revision in time.
        PromotionFailed,
    }
}

impl TransitionType {
    /// Returns the family of the type. A later transition of the same family and subject makes an earlier one obsolete.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Self::Added => Family::Existence,
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
            Self::PromotionPending
            | Self::PromotionRequested
            | Self::PromotionOpened
            | Self::PromotionFinished
            | Self::PromotionFailed => Family::Promotion,
        }
    }

    /// Returns the kind of its subject.
    #[must_use]
    pub const fn subject(self) -> SubjectKind {
        match self {
            Self::Added
            | Self::Deployed
            | Self::Progressing
            | Self::Failed
            | Self::Recovered
            | Self::Removed
            | Self::Drifted
            | Self::DriftCorrected => SubjectKind::Target,
            Self::ClusterOffline | Self::ClusterOnline => SubjectKind::Cluster,
            Self::EnvironmentReady
            | Self::PromotionPending
            | Self::PromotionRequested
            | Self::PromotionOpened
            | Self::PromotionFinished
            | Self::PromotionFailed => SubjectKind::Environment,
            Self::PipelineReady => SubjectKind::Pipeline,
        }
    }
}

/// What transitions describe. Each type belongs to one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// That the application object exists.
    Existence,
    /// What the subject runs, and in which state.
    Status,
    /// Whether the subject runs what was declared.
    Drift,
    /// How a promotion proceeds. No transition of this family makes another one obsolete.
    Promotion,
}

/// The kind of the subject of a transition.
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
