//! What notifications mean, with the global configuration beneath them and the ConfigMaps that they refer to: into the directory,
//! and kept right as any of these changes.
//!
//! In: a Notification as it is now; the name of a ConfigMap about which there is news; an edit of the global configuration. Out:
//! entries of the directory.
//!
//! To understand one takes a while, for its templates are compiled and tried, so it is done outside of the lock. Within it, one
//! made of what is no longer so is not put in the place of a newer.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::ResourceExt as _;

use crate::api::delivery::GLOBAL;
use crate::api::values::refs::{ConfigMapKey, ObjectName};
use crate::api::{Notification, Time, now};
use crate::config::{Edited, Given, Global, Text, resolve, resolve_layers};
use crate::dispatch::Context;
use crate::outbox::Based;

/// Namespace and name.
type Place = (String, String);

/// The notifications as they are.
#[derive(Default)]
pub struct Understood(Mutex<HashMap<Place, Kept>>);

/// One of them, and what it was understood with.
#[derive(Clone)]
struct Kept {
    notification: Arc<Notification>,
    texts: Texts,
    since: Time,
}

/// What keys of ConfigMaps held.
pub(in crate::dispatch) type Texts = Vec<(ConfigMapKey, Text)>;

/// Remembers what was read of ConfigMaps, which is what is compared with later.
pub(in crate::dispatch) struct Reader<'a> {
    ctx: &'a Context,
    texts: RefCell<Texts>,
}

impl<'a> Reader<'a> {
    pub(in crate::dispatch) fn new(ctx: &'a Context) -> Self {
        Self { ctx, texts: RefCell::default() }
    }

    /// Understands something.
    pub(in crate::dispatch) fn with<T>(&self, understand: impl FnOnce(&Given<'_>) -> T) -> T {
        let text = |key: &ConfigMapKey| -> Text {
            let text = self.ctx.config_maps.text(key);
            self.texts.borrow_mut().push((key.clone(), text.clone()));
            text
        };
        understand(&Given { allow_http: self.ctx.allow_http, text: &text })
    }

    /// What was read.
    pub(in crate::dispatch) fn read(self) -> Texts {
        self.texts.into_inner()
    }
}

/// Whether a ConfigMap is among those that were read, and any of what was read is another now.
pub(in crate::dispatch) fn is_stale(ctx: &Context, texts: &Texts, config_map: &ObjectName) -> bool {
    texts.iter().any(|(key, _)| key.object() == *config_map) && are_stale(ctx, texts)
}

pub(in crate::dispatch) fn are_stale(ctx: &Context, texts: &Texts) -> bool {
    texts.iter().any(|(key, text)| ctx.config_maps.text(key) != *text)
}

impl Understood {
    /// Takes a notification as it is now; `false`: nothing of it is new.
    pub fn understand(&self, ctx: &Context, notification: &Notification) -> bool {
        let place = place(notification);
        let same = |kept: &Kept| {
            let (known, new) = (&kept.notification.metadata, &notification.metadata);
            known.uid == new.uid && known.generation == new.generation
        };
        if self.lock().get(&place).is_some_and(same) {
            return false;
        }
        let notification = Arc::new(notification.clone());
        // Until it is kept, no news finds it.
        self.lock().insert(place.clone(), Kept { notification, texts: Texts::new(), since: now() });
        self.again(ctx, |at, _| *at == place, true);
        true
    }

    /// Understands again those for which a ConfigMap holds something else now; gives their places.
    pub fn read_again(&self, ctx: &Context, config_map: &ObjectName) -> Vec<Place> {
        self.again(ctx, |_, kept| is_stale(ctx, &kept.texts, config_map), false)
    }

    /// Understands again those that an edit of the global configuration concerns; gives their places.
    pub fn rebase(&self, ctx: &Context, edited: &Edited) -> Vec<Place> {
        self.again(ctx, |(_, name), _| edited.concerns(name), true)
    }

    /// Understands some again, until nothing that they are made of has changed meanwhile.
    fn again(&self, ctx: &Context, wanted: impl Fn(&Place, &Kept) -> bool, all: bool) -> Vec<Place> {
        let those =
            self.lock().iter().filter(|(p, k)| wanted(p, k)).map(|(p, k)| (p.clone(), k.clone())).collect::<Vec<_>>();
        let mut done = Vec::new();
        for (place, Kept { notification, texts, .. }) in those {
            let mut stale = all || are_stale(ctx, &texts);
            while stale {
                let held = ctx.globals.held();
                let (based, texts) = understood(ctx, &notification, &held.global());
                let mut kept = self.lock();
                let Some(entry) = kept.get_mut(&place).filter(|k| Arc::ptr_eq(&k.notification, &notification)) else {
                    break;
                };
                ctx.deliveries.directory.put_notification(&place.0, &place.1, based);
                stale = are_stale(ctx, &texts) || !ctx.globals.holds(&held);
                entry.texts = texts;
                if !stale {
                    done.push(place.clone());
                }
            }
        }
        done
    }

    /// The notification of this name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Notification>> {
        self.lock().get(&(namespace.to_owned(), name.to_owned())).map(|kept| kept.notification.clone())
    }

    /// When its present spec was first seen.
    pub fn since(&self, namespace: &str, name: &str) -> Option<Time> {
        self.lock().get(&(namespace.to_owned(), name.to_owned())).map(|kept| kept.since)
    }

    /// The uids of all.
    pub fn uids(&self) -> HashSet<String> {
        self.lock().values().filter_map(|kept| kept.notification.metadata.uid.clone()).collect()
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

/// What a notification means, alone and over the cluster-wide one of its name.
fn understood(ctx: &Context, notification: &Notification, global: &Global) -> (Based, Texts) {
    let ((namespace, name), uid) = (place(notification), notification.uid().unwrap_or_default());
    let reader = Reader::new(ctx);
    let over = global.get(&name).filter(|everywhere| everywhere.reach.covers(&namespace));
    let over = over.map(|everywhere| {
        let layers = global.beneath(Some(everywhere), Some(notification));
        reader.with(|given| Arc::new(resolve_layers(&layers, &namespace, GLOBAL, given)))
    });
    let layers = global.beneath(None, Some(notification));
    let alone = match layers.as_slice() {
        [_] => reader.with(|given| resolve(notification, given)),
        layers => reader.with(|given| resolve_layers(layers, &namespace, &uid, given)),
    };
    (Based { alone: Arc::new(alone), over }, reader.read())
}
