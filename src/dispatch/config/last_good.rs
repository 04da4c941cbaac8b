//! The last global configuration that could be read, in a ConfigMap beside it: so it stays in force over a restart, and when another
//! replica takes over.
//!
//! In: the text of each that was taken. Out: that text, when the present one cannot be read. It is written only when it
//! says something else.

use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::api::global::KEY;
use crate::api::values::refs::ObjectName;
use crate::k8s::call::{CallError, call};

/// The copy.
pub(in crate::dispatch) struct LastGood {
    client: Client,
    place: ObjectName,
    /// What stands there, if that is known; empty if there is none.
    known: Mutex<Option<String>>,
}

impl LastGood {
    /// That of this ConfigMap.
    pub(in crate::dispatch) fn new(client: Client, of: &ObjectName) -> Self {
        let place = ObjectName { namespace: of.namespace.clone(), name: format!("{}-last-good", of.name) };
        Self { client, place, known: Mutex::default() }
    }

    /// Where it is kept.
    pub(in crate::dispatch) fn place(&self) -> &ObjectName {
        &self.place
    }

    /// What it says; `None`: there is none.
    pub(in crate::dispatch) async fn read(&self) -> Result<Option<String>, CallError> {
        let found = call(self.api().get_opt(&self.place.name)).await?;
        let text = found.and_then(|object| object.data?.remove(KEY));
        self.put(Some(text.clone().unwrap_or_default()));
        Ok(text)
    }

    /// What stands there is to be read before it is relied upon.
    pub(in crate::dispatch) fn forget(&self) {
        self.put(None);
    }

    /// Keeps a text, unless what stands there is the `same`.
    pub(in crate::dispatch) async fn keep(&self, text: &str, same: impl Fn(&str) -> bool) -> Result<(), CallError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let stands = match known {
            Some(stands) => stands,
            None => self.read().await?.unwrap_or_default(),
        };
        if stands == text || same(&stands) {
            return Ok(());
        }
        // Should the answer be lost, it is read next time.
        self.put(None);
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": self.place.name, "labels": {"app.kubernetes.io/managed-by": "pennant"},
                "annotations": {"pennant.dev/about": "written by Pennant; what is in force while the configuration beside it cannot be read"},
            },
            "data": {KEY: text},
        });
        let params = PatchParams::apply("pennant").force();
        let patch = Patch::Apply(&object);
        call(self.api().patch(&self.place.name, &params, &patch)).await?;
        self.put(Some(text.to_owned()));
        Ok(())
    }

    fn api(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.place.namespace)
    }

    fn put(&self, known: Option<String>) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}
