//! The labels of metrics: closed sets, so that the number of series is known at compile time.

use std::fmt;

use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};

/// A label with a closed set of values: an enum whose variants have one word each. Two of them in a tuple are two labels.
macro_rules! label {
    ($(#[$meta:meta])* $key:literal: $name:ident { $($(#[$about:meta])* $value:ident => $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$about])* $value,)+
        }

        impl $name {
            /// All values.
            pub const ALL: [Self; [$($word),+].len()] = [$(Self::$value),+];

            /// The value of the label.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }

        impl EncodeLabelSet for $name {
            fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
                [($key, self.as_str())].encode(encoder)
            }
        }
    };
}

label! {
    /// Why a settled delivery is no longer kept.
    "reason": Removal {
        /// Its lane has enough newer deliveries.
        PerLane => "per_lane",
        /// It is too old.
        MaxAge => "max_age",
        /// The whole cluster has too many deliveries.
        Cap => "cap",
    }
}

label! {
    /// The result of a request to a receiver, a forge or its Git server.
    "class": RequestClass {
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
        /// The answer was larger than the limit. The answer of a receiver is cut instead.
        TooLarge => "too_large",
        /// No request was made.
        NotSent => "not_sent",
    }
}

impl RequestClass {
    /// The results of requests to receivers.
    pub const OF_RECEIVERS: [Self; 6] =
        [Self::Success, Self::Redirect, Self::Refused, Self::ServerError, Self::Network, Self::NotSent];

    /// Returns the class of an answer with this HTTP status.
    #[must_use]
    pub const fn answered(status: u16) -> Self {
        match status {
            200..=299 => Self::Success,
            300..=399 => Self::Redirect,
            400..=499 => Self::Refused,
            _ => Self::ServerError,
        }
    }
}

label! {
    /// The result of a request for a token that a server issues.
    "result": TokenResult {
        /// The server issued one.
        Issued => "issued",
        /// The server refused it, or its owner has not consented.
        Refused => "refused",
        /// There was no answer in time.
        Unanswered => "unanswered",
        /// No request was made, for example because a value in a Secret cannot be used.
        NotSent => "not_sent",
    }
}

label! {
    /// The result of one question about a commit, for one attempt to send a message.
    "result": LookUpResult {
        /// The forge answered before.
        Cached => "cached",
        /// The forge answered.
        Found => "found",
        /// The forge does not know it.
        NotFound => "not_found",
        /// The forge refused, or its answer cannot be used.
        Failed => "failed",
        /// The forge did not answer in time.
        Late => "late",
        /// The forge was not asked: its budget is used up, it did not answer before, or its Secret cannot be read.
        Skipped => "skipped",
    }
}

label! {
    /// The state of a remote cluster.
    "state": Cluster {
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

label! {
    /// The state of a lane.
    "state": LaneState {
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

label! {
    /// The state of a worker.
    "state": Worker {
        /// It has a request.
        Busy => "busy",
        /// It waits for a request.
        Idle => "idle",
    }
}

label! {
    /// The states of deliveries that are counted for each notification. Neither state should last long.
    "state": Standing {
        /// Recorded and not settled.
        Pending => "pending",
        /// Parked and kept.
        Parked => "parked",
    }
}

label! {
    /// What is written to the API server.
    "kind": ApiWrite {
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

label! {
    /// The result of a write to the API server.
    "result": WriteResult {
        /// The write succeeded.
        Ok => "ok",
        /// Another write came first.
        Conflict => "conflict",
        /// The API server refused the write, or did not answer.
        Error => "error",
    }
}

label! {
    /// The watched objects.
    "watch": Watch {
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

label! {
    /// The result of a span.
    "result": SpanResult {
        /// The collector accepted it.
        Exported => "exported",
        /// The collector did not accept it, or not in time.
        Failed => "failed",
        /// The queue was full.
        Dropped => "dropped",
    }
}

label! {
    /// The hooks.
    "kind": Hook {
        /// Approves a promotion.
        Approval => "approval",
        /// Requests a check of promotions.
        Look => "look",
    }
}

label! {
    /// How a request to a hook was answered.
    "result": HookResult {
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

// Labels with other values.

/// A label whose values are words of the API.
pub(super) type Word = [(&'static str, &'static str); 1];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LeaseLabels {
    pub(super) lease: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BucketLabels {
    pub(super) lease: String,
    pub(super) bucket: u8,
}
