//! Builds the references to pipelines and Notifications in Events and deliveries. Pure.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource as _, ResourceExt as _};

use relaybook_api::delivery::{PipelineRef, is_same_notification};
use relaybook_api::{Notification, Pipeline};

/// Returns the reference to a pipeline for Events.
#[must_use]
pub(super) fn regarding(of: &PipelineRef) -> ObjectReference {
    ObjectReference {
        api_version: Some(Pipeline::api_version(&()).into_owned()),
        kind: Some(Pipeline::kind(&()).into_owned()),
        namespace: Some(of.namespace.clone()),
        name: Some(of.name.clone()),
        uid: Some(of.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Returns the reference to a Notification for Events about the notification with this uid. `None`: the Notification is another one of the
/// same name, which was created later.
#[must_use]
pub(super) fn regarding_notification(found: &Notification, uid: &str) -> Option<ObjectReference> {
    let is_same = found.metadata.uid.as_deref().is_some_and(|found| is_same_notification(found, uid));
    is_same.then(|| found.object_ref(&()))
}

/// Returns the reference to a pipeline for deliveries.
#[must_use]
pub(super) fn reference(pipeline: &Pipeline) -> PipelineRef {
    PipelineRef {
        namespace: pipeline.namespace().unwrap_or_default(),
        name: pipeline.name_any(),
        uid: pipeline.uid().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::NotificationSpec;
    use relaybook_api::delivery::GLOBAL;

    #[test]
    fn an_event_about_an_earlier_notification_does_not_refer_to_the_new_one() {
        let mut found = Notification::new("hook", NotificationSpec::default());
        found.metadata.uid = Some("n2".to_owned());
        for (uid, is_same) in [("n2", true), (GLOBAL, true), ("n1", false), ("", false)] {
            assert_eq!(regarding_notification(&found, uid).is_some_and(|of| of.uid == found.metadata.uid), is_same, "{uid}");
        }
    }
}
