//! A user who interferes: deletes and labels pending deliveries, and changes the token.
//!
//! In: the deliveries, read without the proxy. Out: what the user did. The answer to a deletion may be lost, so the verdict
//! checks which of these deliveries still exist.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use relaybook_api::Delivery;
use serde_json::json;

use crate::load::{How, Load, TOKEN, insist};
use crate::support::World;
use crate::support::lanes::Lane;

/// Pause between two acts, in milliseconds.
const PAUSE: std::ops::Range<u64> = 100..700;

/// What the user did.
#[derive(Default)]
pub struct Person {
    /// Pending deliveries that the user deleted, or tried to delete.
    pub deleted: Vec<Delivery>,
    /// How often the user did what.
    pub acts: BTreeMap<&'static str, usize>,
}

impl Person {
    /// Acts until `enough`.
    pub async fn act(&mut self, seed: u64, world: &World, load: &Load, enough: &AtomicBool) {
        let mut rng = Rng::with_seed(seed);
        let mut day = 0;
        while !enough.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(rng.u64(PAUSE))).await;
            let what = match rng.u8(0..100) {
                0..20 => self.delete(world, load, &mut rng).await.then_some("deleted"),
                20..70 => label(world, &mut rng).await.then_some("labelled"),
                _ => {
                    day += 1;
                    rotate(world, load, &format!("day-{day}")).await;
                    Some("token changed")
                }
            };
            if let Some(what) = what {
                *self.acts.entry(what).or_default() += 1;
            }
        }
    }

    /// Deletes a pending delivery, if it has not changed since it was read.
    async fn delete(&mut self, world: &World, load: &Load, rng: &mut Rng) -> bool {
        // In a lane in which newer deliveries replace older ones, the effect of a deletion cannot be predicted.
        let told = |d: &Delivery| How::of(&Lane::of(d)) != Some(How::Latest);
        let Some(delivery) = pending(world, rng).await.filter(told) else { return false };
        let preconditions = Preconditions { uid: delivery.uid(), resource_version: delivery.resource_version() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let done = world.api::<Delivery>().delete(&delivery.name_any(), &params).await;
        // "Not found" may mean that a first request, whose answer was lost, has deleted it.
        let refused = matches!(&done, Err(kube::Error::Api(status)) if status.is_conflict());
        if !refused {
            load.never_mind(&delivery);
            self.deleted.push(delivery);
        }
        !refused
    }
}

/// Returns a pending delivery; in half of the cases one at the head of its lane, which may be in flight.
async fn pending(world: &World, rng: &mut Rng) -> Option<Delivery> {
    let listed = world.api::<Delivery>().list(&ListParams::default()).await.ok()?;
    let is_pending = |d: &Delivery| !d.spec.test && d.status.as_ref().is_none_or(|s| s.outcome.is_none());
    let mut all: Vec<_> = listed.into_iter().filter(is_pending).collect();
    all.sort_by_key(|d| (d.spec.order, d.spec.serial));
    if rng.bool() {
        let mut lanes = BTreeMap::new();
        for delivery in all {
            lanes.entry(Lane::of(&delivery)).or_insert(delivery);
        }
        all = lanes.into_values().collect();
    }
    if all.is_empty() { None } else { Some(all.swap_remove(rng.usize(0..all.len()))) }
}

/// Labels a pending delivery. The label has no meaning, but changes the resource version.
async fn label(world: &World, rng: &mut Rng) -> bool {
    let Some(delivery) = pending(world, rng).await else { return false };
    let seen = rng.u32(..).to_string();
    let patch =
        json!({"metadata": {"labels": {"example.com/seen": seen}, "annotations": {"example.com/seen-by": "somebody"}}});
    world.api::<Delivery>().patch(&delivery.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.is_ok()
}

/// Writes another token to the Secret, and then sets it at the receivers.
async fn rotate(world: &World, load: &Load, token: &str) {
    let patch = Patch::Merge(json!({"stringData": {TOKEN.1: token}}));
    insist(async || world.api::<Secret>().patch(TOKEN.0, &PatchParams::default(), &patch).await).await;
    load.let_in(token);
}
