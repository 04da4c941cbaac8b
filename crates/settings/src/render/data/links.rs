//! Data about the commit of a revision, and the pages that messages link to.
//!
//! In: what is known about the commit, and URLs. Out: the fields of `git` and `links`. What is not known is empty.

use std::collections::BTreeMap;

use serde::Serialize;

use relaybook_api::values::looked_up::CommitInfo;

/// The commit of a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GitData {
    /// Its hash; empty if the revision contains none or several.
    pub sha: String,
    /// Its page at the forge; empty if that is not known.
    pub url: String,
    /// What the forge says about it.
    #[serde(flatten)]
    pub info: CommitInfo,
}

/// URLs of screens of the audit page, and of pages elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkData {
    /// The pipeline.
    pub pipeline: String,
    /// The notification.
    pub notification: String,
    /// The search for the revision.
    pub revision: String,
    /// The page at the forge that compares the previous revision with the revision.
    pub compare: String,
    /// The page at the forge of the commit of the previous revision.
    pub previous: String,
    /// The links of the global configuration that can be rendered, by name.
    #[serde(flatten)]
    pub named: BTreeMap<String, String>,
}
