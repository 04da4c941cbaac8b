//! What the built-in templates make, held against what their receivers ask for. No cluster, no network.
//!
//! In: the templates, through the same `resolve` and `render` that the controller uses; data that is as awkward as a
//! cluster's can be ([`awkward`]); what receivers publish, fetched by `hack/schemas/fetch.mjs` when it is not there yet
//! ([`published`]). Out: a request of each template for each transition and each row of data, which must be JSON within the
//! limits that the template names, and valid where there is a schema ([`requests`]); say the right thing in the receiver's
//! words ([`words`]); read the commit out of a revision ([`commits`]); keep one key for what belongs together ([`keys`]);
//! mention nobody ([`markup`]); and be what somebody has looked at ([`snapshots`]).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod awkward;
mod commits;
mod documented;
mod json;
mod keys;
mod markup;
mod openapi;
mod published;
mod requests;
mod snapshots;
mod subject;
mod words;
