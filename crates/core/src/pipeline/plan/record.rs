//! Whether a pipeline may record what `spec.record` lists.
//!
//! In: the spec, its listed targets, and its namespace. Out: why it is refused, if it is. In another namespace, the author of the pipeline can
//! perhaps not read the object. So only values are recorded there that are meant for others.

use super::{INVALID_RECORD, Refused, entries, is_elsewhere};
use crate::observe::Recorder;
use relaybook_api::PipelineSpec;
use relaybook_api::pipeline::TargetSource;
use relaybook_api::pipeline::source::FleetObjects;
use relaybook_api::pipeline::target::TargetInfo;

/// Returns why `spec.record` is refused. `targets`: those that the spec lists.
pub(super) fn refused(spec: &PipelineSpec, targets: &[TargetInfo], own: &str) -> Option<Refused> {
    let recorder = match Recorder::parse(spec.record.as_ref()?) {
        Ok(recorder) => recorder,
        Err(error) => return Some(Refused { reason: INVALID_RECORD, message: error.to_string() }),
    };
    let (list, name) = recorder.private()?;
    let elsewhere = |target: &&TargetInfo| is_elsewhere(&target.namespace, target.object_cluster.as_ref(), own);
    let target = targets.iter().find(elsewhere).map(|target| format!("target {}", target.name));
    let entry = || entries(spec).find(|(.., from)| selects_elsewhere(from, own)).map(|(_, _, field, _)| field);
    let of = target.or_else(entry)?;
    let message = format!(
        "record.{list}: {name} is not recorded in another namespace ({of}); use a label or a public annotation, or move the pipeline to the \
         namespace of the object"
    );
    Some(Refused { reason: INVALID_RECORD, message })
}

/// Whether an entry can select objects that are elsewhere.
fn selects_elsewhere(from: &TargetSource, own: &str) -> bool {
    if let Some(objects) = &from.objects {
        let cluster = objects.cluster_ref.as_ref();
        return match objects.namespaces.as_deref() {
            Some(all) => all.iter().any(|of| is_elsewhere(of, cluster, own)),
            None => is_elsewhere(own, cluster, own),
        };
    }
    // BundleDeployments are in the namespaces of their clusters.
    from.fleet.as_ref().is_some_and(|fleet| fleet.of.unwrap_or_default() == FleetObjects::BundleDeployments)
}
