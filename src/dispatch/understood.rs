//! What notifications mean, with the ConfigMaps that they refer to: into the directory, and kept right as either changes.
//!
//! In: a Notification as it is now; the name of a ConfigMap about which there is news. Out: entries of the directory.
//!
//! To understand one takes a while, for its templates are compiled and tried, so it is done outside of the lock. Within it, one
//! made of what is no longer so is not put in the place of a newer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::ResourceExt as _;

use super::Context;
use crate::api::Notification;
use crate::api::refs::{ConfigMapKey, ObjectName};
use crate::config::{EffectiveNotification, Given, Text, config_maps, resolve};

/// Namespace and name.
type Place = (String, String);

/// The notifications as they are.
#[derive(Default)]
pub struct Understood(Mutex<HashMap<Place, Kept>>);

/// One of them, and what the keys held when it was understood.
#[derive(Clone)]
struct Kept {
    notification: Arc<Notification>,
    texts: Texts,
}

/// What keys of ConfigMaps held.
pub(super) type Texts = Vec<(ConfigMapKey, Text)>;

impl Understood {
    /// Takes a notification as it is now.
    pub fn understand(&self, ctx: &Context, notification: &Notification) {
        let (place, notification) = (place(notification), Arc::new(notification.clone()));
        loop {
            let (effective, texts) = resolved(ctx, &notification);
            let mut kept = self.lock();
            ctx.deliveries.directory.put_notification(&place.0, &place.1, effective);
            let is_stale = texts != read(ctx, &notification);
            kept.insert(place.clone(), Kept { notification: notification.clone(), texts });
            // News that came before it was kept has passed it by.
            if !is_stale {
                return;
            }
        }
    }

    /// Understands again those for which a ConfigMap holds something else now; gives their places.
    pub fn again(&self, ctx: &Context, config_map: &ObjectName) -> Vec<Place> {
        let refers = |kept: &Kept| kept.texts.iter().any(|(key, _)| key.object() == *config_map);
        let those: Vec<_> = self.lock().iter().filter(|(_, k)| refers(k)).map(|(p, k)| (p.clone(), k.clone())).collect();
        let mut done = Vec::new();
        for (place, Kept { notification, texts }) in those {
            if texts == read(ctx, &notification) {
                continue;
            }
            let (effective, texts) = resolved(ctx, &notification);
            let mut kept = self.lock();
            let Some(entry) = kept.get_mut(&place).filter(|k| Arc::ptr_eq(&k.notification, &notification)) else { continue };
            ctx.deliveries.directory.put_notification(&place.0, &place.1, effective);
            entry.texts = texts;
            done.push(place);
        }
        done
    }

    /// The notification of this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Notification>> {
        self.lock().get(&(namespace.to_owned(), name.to_owned())).map(|kept| kept.notification.clone())
    }

    /// Takes a notification out; `true` if it was there.
    pub fn forget(&self, ctx: &Context, namespace: &str, name: &str) -> bool {
        let mut kept = self.lock();
        kept.remove(&(namespace.to_owned(), name.to_owned()));
        ctx.deliveries.directory.remove_notification(namespace, name)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(notification: &Notification) -> Place {
    (notification.namespace().unwrap_or_default(), notification.name_any())
}

/// What the keys hold now to which a notification refers.
fn read(ctx: &Context, notification: &Notification) -> Texts {
    config_maps(notification).into_iter().map(|key| (key.clone(), ctx.config_maps.text(&key))).collect()
}

fn resolved(ctx: &Context, notification: &Notification) -> (EffectiveNotification, Texts) {
    let texts = read(ctx, notification);
    let text = |key: &ConfigMapKey| texts.iter().find(|(of, _)| of == key).map_or(Text::Unknown, |(_, text)| text.clone());
    let effective = resolve(notification, &Given { allow_http: ctx.allow_http, text: &text });
    (effective, texts)
}
