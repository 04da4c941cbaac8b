//! Who may write: proof that this replica holds the bucket of an object, or the reason why a write needs no bucket.
//!
//! In: a [`Lease`], and the uid of an object. Out: a [`Tenure`], and [`write()`], which makes a call only if the
//! tenure allows it.
//!
//! A bucket is not handed over while a tenure of it exists. But the membership can expire, and this replica can be removed and join again. So
//! each write checks the time and the term once more. `Guarded::write` and `write_status` need a tenure, or a listed reason:
//!
//! ```no_run
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use relaybook_runtime::{guarded::Guarded, tenure::Tenure};
//! async fn change(tenure: &Tenure, api: &kube::Api<ConfigMap>) {
//!     let _ = Guarded::of(Some("uid")).write(tenure.into(), api, "name").await;
//! }
//! ```
//!
//! Without them, it does not compile:
//!
//! ```compile_fail
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use relaybook_runtime::{guarded::Guarded, tenure::Tenure};
//! async fn change(api: &kube::Api<ConfigMap>) {
//!     let _ = Guarded::of(Some("uid")).write(api, "name").await;
//! }
//! ```

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::call::{CallError, DEADLINE, call};
use crate::leader::{Busy, Lease};
use relaybook_core::leader::bucket::Bucket;

/// Proof that a bucket was ours when work in it began. The bucket is not handed over before this value is dropped.
#[derive(Debug)]
pub struct Tenure {
    lease: Lease,
    busy: Busy,
    stop: CancellationToken,
}

impl Tenure {
    /// Begins work on the object with this uid, or on what belongs to no single object. `None`: it is not ours. After `stop`, nothing is
    /// written.
    #[must_use]
    pub fn begin(lease: &Lease, uid: Option<&str>, stop: &CancellationToken) -> Option<Self> {
        let busy = match uid {
            Some(uid) => lease.begin(uid),
            None => lease.hold(Bucket::COMMON).filter(|_| lease.owns_common()),
        };
        busy.map(|busy| Self { lease: lease.clone(), busy, stop: stop.clone() })
    }

    /// Begins work in a bucket, also on objects that another shard handles. `None`: the bucket is not ours.
    #[must_use]
    pub fn hold(lease: &Lease, bucket: Bucket, stop: &CancellationToken) -> Option<Self> {
        lease.hold(bucket).map(|busy| Self { lease: lease.clone(), busy, stop: stop.clone() })
    }

    /// Returns the number of the leadership term in which the work was begun.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.busy.term()
    }

    /// Whether calls may start that take at most this long in total: the membership lasts for them, the term continues, and the process does not
    /// stop.
    #[must_use]
    pub fn allows(&self, duration: Duration) -> bool {
        self.lease.allows(duration) && self.lease.is_current(&self.busy) && !self.stop.is_cancelled()
    }

    /// Waits until calls may start that take at most this long in total. Returns `false` if the term or the process ends first.
    pub async fn wait(&self, duration: Duration) -> bool {
        let may = self.stop.run_until_cancelled(self.lease.wait_with(&self.busy, duration)).await;
        may.unwrap_or(false)
    }
}

/// Why a write may be made.
#[derive(Clone, Copy, Debug)]
pub enum Authority<'t> {
    /// This replica holds the bucket of the object.
    Tenure(&'t Tenure),
    /// The write needs no bucket, or proves it in another way.
    Unowned(Unowned),
}

/// Why a write has no tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unowned {
    /// A signed request of a hook asks for it. Each replica answers hooks, and a test of the version lets only one of two writes apply.
    Hook,
    /// A person runs a command, with the person's own credentials. The API server decides what the person may write, and controllers read it
    /// like any other edit.
    User,
    /// The engine records what becomes of a delivery that is in progress. The bucket was ours when that was decided, and is held until the write has
    /// ended. The write is not given up if the membership is short, because the request would then be sent again. The version on which it was
    /// decided, or the name of the object, lets only one result apply.
    Outcome,
    /// Retention deletes an object at the version that it has found. If the object has changed meanwhile, it stays.
    Retention,
}

impl Authority<'_> {
    /// Whether a call may start that takes at most this long.
    #[must_use]
    pub fn allows(&self, duration: Duration) -> bool {
        match self {
            Self::Tenure(tenure) => tenure.allows(duration),
            Self::Unowned(_) => true,
        }
    }
}

impl<'t> From<&'t Tenure> for Authority<'t> {
    fn from(tenure: &'t Tenure) -> Self {
        Self::Tenure(tenure)
    }
}

impl From<Unowned> for Authority<'_> {
    fn from(reason: Unowned) -> Self {
        Self::Unowned(reason)
    }
}

/// Makes a call that writes, and waits for its response until the deadline. The call is not made if a tenure does not allow it any more.
pub async fn write<T>(
    authority: Authority<'_>,
    writing: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, CallError> {
    if authority.allows(DEADLINE) { call(writing).await } else { Err(CallError::NotHeld) }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    async fn writes(authority: impl Into<Authority<'_>>) -> bool {
        match write(authority.into(), ready(Ok(()))).await {
            Ok(()) => true,
            Err(CallError::NotHeld) => false,
            Err(error) => panic!("{error}"),
        }
    }

    #[tokio::test]
    async fn a_tenure_allows_writes_only_in_its_term_and_for_as_long_as_the_membership_lasts() {
        let (stop, (lease, renewal)) = (CancellationToken::new(), Lease::renewable(MINUTE));
        let tenure = Tenure::begin(&lease, Some("u"), &stop).unwrap();
        assert!(tenure.term() == 1 && tenure.wait(DEADLINE).await && writes(&tenure).await);
        renewal.set(Some(DEADLINE));
        assert!(!writes(&tenure).await, "the call could outlast the membership");
        renewal.set(Some(MINUTE));
        assert!(writes(&tenure).await);
        renewal.set(None);
        assert!(Tenure::begin(&lease, Some("u"), &stop).is_none() && Tenure::begin(&lease, None, &stop).is_none());
        renewal.set(Some(MINUTE));
        renewal.set_term(Some(2));
        assert!(
            !writes(&tenure).await && !tenure.wait(DEADLINE).await,
            "another replica can have held the bucket meanwhile"
        );
        assert!(writes(&Tenure::begin(&lease, Some("u"), &stop).unwrap()).await);
        renewal.set_term(None);
        assert!(!writes(&tenure).await && !tenure.wait(DEADLINE).await);
        assert!(writes(Unowned::Hook).await, "a write without a bucket needs none");
    }

    #[tokio::test]
    async fn nothing_is_written_after_a_stop() {
        let (stop, lease) = (CancellationToken::new(), Lease::held(MINUTE));
        let tenures = [Tenure::begin(&lease, Some("u"), &stop), Tenure::begin(&lease, None, &stop)];
        for tenure in tenures.iter().flatten() {
            assert!(writes(tenure).await);
        }
        stop.cancel();
        for tenure in tenures.iter().flatten() {
            assert!(!writes(tenure).await && !tenure.wait(DEADLINE).await);
        }
    }
}
