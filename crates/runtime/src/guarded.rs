//! A guarded patch of an object or its status: it tests what it replaces. So a stale writer never overwrites a newer one, and two writers
//! of different parts of one object never conflict.
//!
//! In: values to test, and values to write, each with its path; and who writes ([`Authority`]). Out: a JSON Patch
//! (<https://www.rfc-editor.org/rfc/rfc6902>), and its result.

use std::fmt::Debug;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, TestOperation};
use kube::api::PatchParams;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::call::CallError;
use super::tenure::{Authority, write};

/// The operations of a patch. If a test fails, none is applied.
#[derive(Debug, Default)]
pub struct Guarded(Vec<PatchOperation>);

/// Result of a patch.
#[derive(Debug)]
pub enum Outcome<K> {
    /// The patch was applied. Contains the new object.
    Written(K),
    /// A test failed. Nothing was written.
    Stale,
    /// The object is gone.
    Gone,
}

impl Guarded {
    /// Creates a patch that applies only to the object with this uid, not to another object of the same name.
    #[must_use]
    pub fn of(uid: Option<&str>) -> Self {
        Self::default().test(["metadata", "uid"], uid.into())
    }

    /// Adds a test of the value at a path.
    #[must_use]
    pub fn test<const N: usize>(mut self, path: [&str; N], value: Value) -> Self {
        self.0.push(PatchOperation::Test(TestOperation { path: PointerBuf::from_tokens(path), value }));
        self
    }

    /// Adds a write of the value at a path. An existing value is replaced.
    pub fn put<const N: usize>(mut self, path: [&str; N], value: &impl Serialize) -> Result<Self, serde_json::Error> {
        let value = serde_json::to_value(value)?;
        self.0.push(PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(path), value }));
        Ok(self)
    }

    /// Adds the removal of the value at a path. If there is none, the patch is not applied.
    #[must_use]
    pub fn remove<const N: usize>(mut self, path: [&str; N]) -> Self {
        self.0.push(PatchOperation::Remove(RemoveOperation { path: PointerBuf::from_tokens(path) }));
        self
    }

    /// Returns the operations.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn operations(self) -> Patch {
        Patch(self.0)
    }

    fn patch(self) -> kube::api::Patch<()> {
        kube::api::Patch::Json(Patch(self.0))
    }

    /// Patches the status of an object.
    pub async fn write_status<K>(self, authority: Authority<'_>, api: &Api<K>, name: &str) -> Result<Outcome<K>, CallError>
    where
        K: Clone + DeserializeOwned + Resource,
    {
        outcome(self.try_status(authority, api, name).await)
    }

    /// Patches the status of an object, for a caller that must know why a patch was not applied.
    pub async fn try_status<K>(self, authority: Authority<'_>, api: &Api<K>, name: &str) -> Result<K, CallError>
    where
        K: Clone + DeserializeOwned + Resource,
    {
        let (params, patch) = (PatchParams::default(), self.patch());
        // In a box, because a call is large and moves through several futures.
        write(authority, Box::pin(api.patch_status(name, &params, &patch))).await
    }

    /// Patches an object except its status.
    pub async fn write<K>(self, authority: Authority<'_>, api: &Api<K>, name: &str) -> Result<Outcome<K>, CallError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        outcome(self.try_write(authority, api, name).await)
    }

    /// Patches an object except its status, for a caller that must know why a patch was not applied.
    pub async fn try_write<K>(self, authority: Authority<'_>, api: &Api<K>, name: &str) -> Result<K, CallError>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let (params, patch) = (PatchParams::default(), self.patch());
        write(authority, Box::pin(api.patch(name, &params, &patch))).await
    }
}

fn outcome<K>(result: Result<K, CallError>) -> Result<Outcome<K>, CallError> {
    match result {
        Ok(written) => Ok(Outcome::Written(written)),
        // A failed test is 422 Invalid, and so is a missing path. 409 is returned if several other writers were first.
        Err(CallError::Api(error)) => match *error {
            kube::Error::Api(status) if status.is_not_found() => Ok(Outcome::Gone),
            kube::Error::Api(status) if status.code == 422 || status.is_conflict() => Ok(Outcome::Stale),
            error => Err(error.into()),
        },
        Err(error) => Err(error),
    }
}
