//! Data about the application object of a target, with what was recorded of it.
//!
//! In: the reference to the object, and what the change contains of it. Out: the fields of `target.app`.

use std::collections::BTreeMap;

use serde::Serialize;

use relaybook_api::delivery::AppObject;
use relaybook_api::pipeline::Recorded;

/// The fields of [`AppData`] with what was recorded.
pub(crate) const RECORDED: [&str; 3] = ["labels", "annotations", "fields"];
/// The field of [`AppData`] that says that a value is missing.
pub(crate) const CUT: &str = "cut";

/// An application object. All fields are empty if the subject is not a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppData {
    /// Its API version.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its recorded labels. All data as one object contain this field and the next ones only if they are not empty.
    pub labels: BTreeMap<String, String>,
    /// Its recorded annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its recorded fields, by path.
    pub fields: BTreeMap<String, String>,
    /// Whether a value was left out or is not known.
    pub cut: bool,
}

impl AppData {
    pub(super) fn new(object: AppObject, recorded: Option<&Recorded>) -> Self {
        let AppObject { api_version, kind, name } = object;
        let Recorded { labels, annotations, fields, cut } = recorded.cloned().unwrap_or_default();
        Self { api_version, kind, name, labels, annotations, fields, cut }
    }
}
