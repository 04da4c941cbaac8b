//! A copy of the last valid global configuration, in a separate ConfigMap. The copy keeps the configuration in force after a restart, and
//! when another replica becomes the leader.
//!
//! In: the text of each valid global configuration. Out: that text, if the current one is invalid or cannot be read. The copy is written
//! only if its meaning changes.

use parking_lot::Mutex;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use relaybook_api::global::KEY;
use relaybook_api::{ABOUT, ObjectName};
use relaybook_runtime::call::{CallError, call};
use relaybook_runtime::tenure::{Tenure, write};

/// Reads and writes the copy.
pub(crate) struct LastGood {
    client: Client,
    place: ObjectName,
    /// Text of the copy. `None`: not known. Empty: there is no copy.
    known: Mutex<Option<String>>,
}

impl LastGood {
    /// Prepares access to the copy of this ConfigMap. Sends no request.
    pub(crate) fn new(client: Client, of: &ObjectName) -> Self {
        let place = ObjectName { namespace: of.namespace.clone(), name: format!("{}-last-good", of.name) };
        Self { client, place, known: Mutex::default() }
    }

    /// Returns namespace and name of the copy.
    pub(crate) fn place(&self) -> &ObjectName {
        &self.place
    }

    /// Reads the text of the copy. `None`: there is no copy.
    pub(crate) async fn read(&self) -> Result<Option<String>, CallError> {
        let found = call(self.api().get_opt(&self.place.name)).await?;
        let text = found.and_then(|object| object.data?.remove(KEY));
        self.put(Some(text.clone().unwrap_or_default()));
        Ok(text)
    }

    /// Forgets the known text, so the copy is read before its text is used again.
    pub(crate) fn forget(&self) {
        self.put(None);
    }

    /// Writes a text to the copy, unless the copy has this text, or one for which `same` returns true.
    pub(crate) async fn keep(&self, tenure: &Tenure, text: &str, same: impl Fn(&str) -> bool) -> Result<(), CallError> {
        let known = self.known.lock().clone();
        let stands = match known {
            Some(stands) => stands,
            None => self.read().await?.unwrap_or_default(),
        };
        if stands == text || same(&stands) {
            return Ok(());
        }
        // If the response is lost, the next call reads the copy.
        self.put(None);
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": self.place.name, "labels": {"app.kubernetes.io/managed-by": "relaybook"},
                "annotations": {ABOUT: "written by Relaybook; the last valid global configuration, in force while the current one is invalid"},
            },
            "data": {KEY: text},
        });
        let params = PatchParams::apply("relaybook").force();
        let patch = Patch::Apply(&object);
        write(tenure.into(), self.api().patch(&self.place.name, &params, &patch)).await?;
        self.put(Some(text.to_owned()));
        Ok(())
    }

    fn api(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.place.namespace)
    }

    fn put(&self, known: Option<String>) {
        *self.known.lock() = known;
    }
}
