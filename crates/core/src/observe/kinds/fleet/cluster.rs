//! `Cluster`: the combined state of all deployments on it. It runs many applications, so it has no revision.

use super::{GROUP, Reading, Rules, View, summary};

pub(crate) static CLUSTER: Rules = Rules { group: GROUP, kind: "Cluster", reader: "fleet-cluster/2", read };

fn read(view: &View<'_>) -> Reading {
    Reading::declared(summary(view), "").suspended(view.flag("/spec/paused"))
}
