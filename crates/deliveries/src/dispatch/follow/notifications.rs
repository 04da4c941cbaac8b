//! Notifications from the dispatcher's watch. They are put into the [configuration](crate::dispatch::config).

use kube::ResourceExt as _;

use super::{Followed, Key};
use crate::dispatch::config::changed::Changed;
use crate::dispatch::status::written::Last;
use crate::dispatch::{Context, wake};
use relaybook_api::{Notification, ObjectName};

impl Followed for Notification {
    type Memory = Last;

    fn key(of: ObjectName) -> Key {
        Key::Notification(of)
    }

    fn put(&self, ctx: &Context) -> bool {
        ctx.lease.assign_labeled(&self.metadata);
        changed(ctx, self, ctx.config.put_notification(self))
    }

    fn remove(&self, ctx: &Context) -> bool {
        let ObjectName { namespace, name } = ObjectName::of(self);
        ctx.lease.deleted(&self.uid().unwrap_or_default());
        let known = ctx.config.notification(&namespace, &name);
        // Another one of its name may be known already.
        let is_known = known.is_some_and(|known| known.metadata.uid == self.metadata.uid);
        changed(ctx, self, is_known.then(|| ctx.config.remove_notification(&namespace, &name)).flatten())
    }
}

/// Wakes what a change affects. `None`: nothing has changed. Returns whether something has.
fn changed(ctx: &Context, notification: &Notification, changed: Option<Changed>) -> bool {
    let Some(changed) = changed else { return false };
    wake::wake_lanes_of(ctx, &ObjectName::of(notification));
    wake::enqueue_affected(ctx, changed);
    true
}
