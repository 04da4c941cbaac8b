//! The label values of metrics: closed sets, so that the number of series is known at compile time.

use std::fmt;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

/// A closed set of label values: an enum whose variants have one word each.
macro_rules! label_value {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident => $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_doc])* $variant),+
        }

        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The value of the label.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
                EncodeLabelValue::encode(&self.as_str(), encoder)
            }
        }
    };
}

label_value! {
    /// How a delivery ended.
    Outcome {
        /// The receiver answered 2xx.
        Delivered => "Delivered",
        /// Relaybook gave up.
        Parked => "Parked",
        /// Its subject is gone.
        Canceled => "Canceled",
        /// A later Delivery was sent instead.
        Superseded => "Superseded",
    }
}

label_value! {
    /// Why a settled delivery is no longer kept.
    Removal {
        /// Its lane has enough newer deliveries.
        PerLane => "per_lane",
        /// It is too old.
        MaxAge => "max_age",
        /// The whole cluster has too many deliveries.
        Cap => "cap",
    }
}

label_value! {
    /// The result of an attempt.
    AttemptClass {
        /// The answer was 2xx.
        Success => "2xx",
        /// The answer was 3xx, which is not followed.
        Redirect => "3xx",
        /// The answer was 4xx.
        Refused => "4xx",
        /// The answer was 5xx, or a status that HTTP does not define.
        ServerError => "5xx",
        /// There was no answer: name resolution, connection or TLS failed, or the request timed out.
        Network => "network",
        /// No request was made.
        NotSent => "not_sent",
    }
}

label_value! {
    /// The result of a request to a forge or its Git server.
    ForgeClass {
        /// The answer was 2xx.
        Success => "2xx",
        /// The answer was 3xx, which is not followed.
        Redirect => "3xx",
        /// The answer was 4xx.
        Refused => "4xx",
        /// The answer was 5xx, or a status that HTTP does not define.
        ServerError => "5xx",
        /// There was no complete answer: name resolution, connection or TLS failed, or the request timed out.
        Network => "network",
        /// The answer was larger than the limit.
        TooLarge => "too_large",
        /// No request was made.
        NotSent => "not_sent",
    }
}

label_value! {
    /// The state of a remote cluster.
    Cluster {
        /// It answers.
        Reachable => "reachable",
        /// It does not answer.
        Unreachable => "unreachable",
        /// It does not accept the credentials.
        Unauthorized => "unauthorized",
        /// Relaybook has no permission to list a required kind there, or to read the object that represents it or its Secret.
        Forbidden => "forbidden",
        /// There is no usable kubeconfig for it.
        Invalid => "invalid",
        /// No request was sent to it yet.
        Unknown => "unknown",
    }
}

label_value! {
    /// The state of a lane.
    LaneState {
        /// Its head can be sent.
        Ready => "ready",
        /// Its head is being sent.
        InFlight => "in_flight",
        /// Its head waits for its next attempt.
        Waiting => "waiting",
        /// Its head waits until a user fixes a problem.
        Blocked => "blocked",
        /// A user suspended it.
        Suspended => "suspended",
        /// Its head can be sent when the rate limit of the notification allows it.
        RateLimited => "rate_limited",
        /// Its head can be sent when its receiver is reachable.
        Unreachable => "unreachable",
    }
}

label_value! {
    /// The state of a worker.
    Worker {
        /// It has a request.
        Busy => "busy",
        /// It waits for a request.
        Idle => "idle",
    }
}

label_value! {
    /// The states of deliveries that are counted for each notification. Neither state should last long.
    Standing {
        /// Recorded and not settled.
        Pending => "pending",
        /// Parked and kept.
        Parked => "parked",
    }
}

label_value! {
    /// What is written to the API server.
    ApiWrite {
        /// `Pipeline.status` except `dispatched`.
        PipelineStatus => "pipeline_status",
        /// A pipeline that a `PipelineSet` makes, changes or deletes.
        PipelineOfSet => "pipeline_of_set",
        /// Status of a `PipelineSet`.
        PipelineSetStatus => "pipeline_set_status",
        /// `Pipeline.status.dispatched`.
        Dispatched => "dispatched",
        /// A new Delivery.
        DeliveryCreate => "delivery_create",
        /// The status of a Delivery.
        DeliveryStatus => "delivery_status",
        /// The deletion of a Delivery.
        DeliveryDelete => "delivery_delete",
        /// `Notification.status`.
        NotificationStatus => "notification_status",
        /// A Promotion: its creation, its status, or its deletion.
        Promotion => "promotion",
        /// The approval of a Promotion, or the request to check it, by a hook.
        PromotionHook => "promotion_hook",
        /// An Event.
        Event => "event",
    }
}

impl ApiWrite {
    /// The kinds that wait for the pace of their namespace.
    pub const PACED: [Self; 3] = [Self::PipelineStatus, Self::PipelineOfSet, Self::DeliveryCreate];
}

label_value! {
    /// The result of a write to the API server.
    WriteResult {
        /// The write succeeded.
        Ok => "ok",
        /// Another write came first.
        Conflict => "conflict",
        /// The API server refused the write, or did not answer.
        Error => "error",
    }
}

label_value! {
    /// The watched objects.
    Watch {
        /// Pipelines.
        Pipelines => "pipelines",
        /// Notifications.
        Notifications => "notifications",
        /// Deliveries.
        Deliveries => "deliveries",
        /// Promotions.
        Promotions => "promotions",
        /// Sets of pipelines.
        PipelineSets => "pipeline_sets",
        /// Application objects.
        ApplicationObjects => "application_objects",
        /// Referenced Secrets.
        Secrets => "secrets",
        /// Objects that represent clusters, and their Secrets.
        Clusters => "clusters",
        /// ConfigMaps with templates.
        ConfigMaps => "config_maps",
        /// The ConfigMap with the global configuration.
        GlobalConfig => "global_config",
    }
}

label_value! {
    /// The result of a span.
    SpanResult {
        /// The collector accepted it.
        Exported => "exported",
        /// The collector did not accept it, or not in time.
        Failed => "failed",
        /// The queue was full.
        Dropped => "dropped",
    }
}

label_value! {
    /// The hooks.
    Hook {
        /// Approves a promotion.
        Approval => "approval",
        /// Requests a check of promotions.
        Look => "look",
    }
}

label_value! {
    /// How a request to a hook was answered.
    HookResult {
        /// The promotion is approved, or a check of it is requested.
        Accepted => "accepted",
        /// It has no right signature.
        Unauthorized => "unauthorized",
        /// The promotion does not wait for an approval.
        Conflict => "conflict",
        /// The approval does not say what it must say.
        Invalid => "invalid",
        /// The body is too long.
        TooLarge => "too_large",
        /// The request did not arrive in time.
        Timeout => "timeout",
        /// There were too many requests.
        Limited => "limited",
        /// The API server did not accept the write, or the keys are not known yet.
        Unavailable => "unavailable",
    }
}

label_value! {
    /// The Leases.
    Lease {
        /// The Lease of the pipeline controller.
        Pipeline => "relaybook-pipeline",
        /// The Lease of the dispatcher.
        Dispatch => "relaybook-dispatch",
        /// The Lease of the promotion controller.
        Promote => "relaybook-promote",
    }
}

label_value! {
    /// The phase of a promotion.
    PromotionPhase {
        /// It waits for an approval, or until the environment before has been ready for long enough.
        Pending => "Pending",
        /// It was requested.
        Requested => "Requested",
        /// The pull request exists, or the commit is pushed.
        Open => "Open",
        /// The revision is declared for the environment, which does not run it yet.
        Merged => "Merged",
        /// The environment runs the revision.
        Finished => "Finished",
        /// The pull request was closed without being merged.
        Closed => "Closed",
        /// It was refused, or the environment did not run the revision in time.
        Failed => "Failed",
        /// It is not needed any more.
        Withdrawn => "Withdrawn",
    }
}

// The labels of one family each.

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutcomeLabels {
    pub(super) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RemovalLabels {
    pub(super) reason: Removal,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AttemptLabels {
    pub(super) class: AttemptClass,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ForgeLabels {
    pub(super) class: ForgeClass,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LaneLabels {
    pub(super) state: LaneState,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WorkerLabels {
    pub(super) state: Worker,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WriteLabels {
    pub(super) kind: ApiWrite,
    pub(super) result: WriteResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PacedLabels {
    pub(super) kind: ApiWrite,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WatchLabels {
    pub(super) watch: Watch,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ClusterLabels {
    pub(super) state: Cluster,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct SpanLabels {
    pub(super) result: SpanResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct HookLabels {
    pub(super) kind: Hook,
    pub(super) result: HookResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PromotionLabels {
    pub(super) phase: PromotionPhase,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LeaseLabels {
    pub(super) lease: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BucketLabels {
    pub(super) lease: String,
    pub(super) bucket: u8,
}
