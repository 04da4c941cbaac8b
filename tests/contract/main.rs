//! Checks the requests of the built-in templates against the requirements of their receivers. Needs no cluster, and no network
//! once the schemas are fetched.
//!
//! In: the templates, through the same `resolve` and `render` that the controller uses; transitions with extreme data
//! ([`awkward`]); the schemas that receivers publish, which `hack/schemas/fetch.mjs` fetches if they are missing
//! ([`published`]). Out: a request of each template for each transition and each row of data. It must be JSON within the
//! limits that the template declares, and valid if there is a schema ([`requests`]). It must use the right status of the
//! receiver ([`words`]), the commit of the revision ([`commits`]), and one key for related transitions ([`keys`]). It must not
//! mention users or format text ([`markup`]), and it must equal the reviewed snapshot ([`snapshots`]). A CI job that a request
//! starts must find in it all that it needs to carry out a promotion ([`promotions`]).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod awkward;
mod commits;
mod documented;
mod json;
mod keys;
mod markup;
mod openapi;
mod promotions;
mod published;
mod requests;
mod snapshots;
mod subject;
mod words;
