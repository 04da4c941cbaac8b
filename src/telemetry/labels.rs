//! What the labels of metrics may say: closed sets, so that the number of series is known when the program is written.

use std::fmt;

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

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
        /// Given up.
        Parked => "Parked",
        /// What it was about is gone.
        Canceled => "Canceled",
        /// A later one was sent in its place.
        Superseded => "Superseded",
    }
}

label_value! {
    /// Why a settled delivery is no longer kept.
    Removal {
        /// There are enough newer ones in its lane.
        PerLane => "per_lane",
        /// It is old.
        MaxAge => "max_age",
        /// There are too many in the whole cluster.
        Cap => "cap",
    }
}

label_value! {
    /// What came of an attempt.
    AttemptClass {
        /// The answer was 2xx.
        Success => "2xx",
        /// The answer was 3xx, which is not followed.
        Redirect => "3xx",
        /// The answer was 4xx.
        Refused => "4xx",
        /// The answer was 5xx, or a status that HTTP does not define.
        ServerError => "5xx",
        /// No answer: name, connection, TLS or time limit.
        Network => "network",
        /// No request was made.
        NotSent => "not_sent",
    }
}

label_value! {
    /// How a remote cluster is doing.
    Cluster {
        /// It answers.
        Reachable => "reachable",
        /// It does not answer.
        Unreachable => "unreachable",
        /// It does not accept the credentials.
        Unauthorized => "unauthorized",
        /// It lets us not list a kind that is needed; or the object that stands for it, or its Secret, may not be read.
        Forbidden => "forbidden",
        /// There is no kubeconfig for it that can be used.
        Invalid => "invalid",
        /// It has not been asked yet.
        Unknown => "unknown",
    }
}

label_value! {
    /// What a lane does.
    LaneState {
        /// Its head can be sent.
        Ready => "ready",
        /// Its head is being sent.
        InFlight => "in_flight",
        /// Its head waits for its next attempt.
        Waiting => "waiting",
        /// Its head waits for something to be mended.
        Blocked => "blocked",
        /// Somebody wants it to wait.
        Suspended => "suspended",
        /// Its head can be sent when the notification's rate allows.
        RateLimited => "rate_limited",
        /// Its head can be sent when its receiver can be reached.
        Unreachable => "unreachable",
    }
}

label_value! {
    /// What a worker does.
    Worker {
        /// It has a request.
        Busy => "busy",
        /// It waits for one.
        Idle => "idle",
    }
}

label_value! {
    /// What a notification's deliveries are that it should not have for long.
    Standing {
        /// Recorded and not settled.
        Pending => "pending",
        /// Given up, and kept.
        Parked => "parked",
    }
}

label_value! {
    /// What is written to the API server.
    ApiWrite {
        /// `Pipeline.status` but for `dispatched`.
        PipelineStatus => "pipeline_status",
        /// `Pipeline.status.dispatched`.
        Dispatched => "dispatched",
        /// A new Delivery.
        DeliveryCreate => "delivery_create",
        /// What became of a Delivery.
        DeliveryStatus => "delivery_status",
        /// A Delivery that was kept long enough.
        DeliveryDelete => "delivery_delete",
        /// `Notification.status`.
        NotificationStatus => "notification_status",
        /// An Event.
        Event => "event",
    }
}

label_value! {
    /// What the API server said to a write.
    WriteResult {
        /// Done.
        Ok => "ok",
        /// Somebody else was first.
        Conflict => "conflict",
        /// Refused, or no answer.
        Error => "error",
    }
}

label_value! {
    /// What is watched.
    Watch {
        /// Pipelines.
        Pipelines => "pipelines",
        /// Notifications.
        Notifications => "notifications",
        /// Deliveries.
        Deliveries => "deliveries",
        /// Application objects.
        ApplicationObjects => "application_objects",
        /// Secrets that are referred to.
        Secrets => "secrets",
        /// Objects that stand for clusters, and their Secrets.
        Clusters => "clusters",
        /// ConfigMaps that hold templates.
        ConfigMaps => "config_maps",
        /// The ConfigMap with the global configuration.
        GlobalConfig => "global_config",
    }
}

label_value! {
    /// What became of a span.
    SpanResult {
        /// The collector has taken it.
        Exported => "exported",
        /// The collector has not, or not in time.
        Failed => "failed",
        /// Too many were waiting.
        Dropped => "dropped",
    }
}

label_value! {
    /// Which Lease.
    Lease {
        /// That of the pipeline controller.
        Pipeline => "pennant-pipeline",
        /// That of the dispatcher.
        Dispatch => "pennant-dispatch",
    }
}
