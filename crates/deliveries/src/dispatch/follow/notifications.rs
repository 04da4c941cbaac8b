//! Notifications from the dispatcher's watch. They are put into the [configuration](crate::dispatch::config).

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::runtime::watcher::Event;

use super::Followed;
use crate::dispatch::{Context, wake};
use relaybook_api::{Notification, ObjectName};
use relaybook_telemetry::metrics::Watch;

impl Followed for Notification {
    const WHAT: &'static str = "notifications";
    const WATCH: Watch = Watch::Notifications;

    async fn absorb(ctx: &Context, event: &Event<Self>) {
        match event {
            Event::Apply(n) | Event::InitApply(n) => {
                let ObjectName { namespace, name } = ObjectName::of(n);
                ctx.lease.assign_labeled(&n.metadata);
                if let Some(changed) = ctx.config.put_notification(n) {
                    // During a list, the watches are updated only once, at its end.
                    if matches!(event, Event::Apply(_)) {
                        wake::set_wanted(ctx);
                    }
                    wake::wake_lanes_of(ctx, &namespace, &name).await;
                    wake::enqueue_affected(ctx, changed).await;
                }
            }
            Event::Delete(n) => {
                let ObjectName { namespace, name } = ObjectName::of(n);
                let uid = n.uid().unwrap_or_default();
                ctx.written.forget(&uid);
                ctx.lease.deleted(&uid);
                if let Some(changed) = ctx.config.remove_notification(&namespace, &name) {
                    wake::set_wanted(ctx);
                    wake::wake_lanes_of(ctx, &namespace, &name).await;
                    wake::enqueue_affected(ctx, changed).await;
                }
            }
            Event::Init | Event::InitDone => {}
        }
    }

    async fn sweep(ctx: &Context, namespace: Option<&str>, there: &[Arc<Self>]) {
        let there: BTreeSet<_> = there.iter().map(|n| ObjectName::of(&**n)).collect();
        for place in ctx.config.places() {
            let ObjectName { namespace: ns, name } = &place;
            let ours = namespace.is_none_or(|n| n == ns);
            if ours
                && !there.contains(&place)
                && let Some(changed) = ctx.config.remove_notification(ns, name)
            {
                wake::wake_lanes_of(ctx, ns, name).await;
                wake::enqueue_affected(ctx, changed).await;
            }
        }
        wake::set_wanted(ctx);
    }
}
