//! The content of a Lease: which replicas are members, and which replica holds which bucket. Values only.
//!
//! In and out: the Lease object. The members and the buckets are in its annotation `relaybook.dev/buckets`, as JSON. A Lease without this
//! annotation has one holder, which holds all buckets: a replica of a version that did not divide the work.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube_core::ResourceExt as _;
use serde::{Deserialize, Serialize};

use super::bucket::{Bucket, Buckets, COUNT};
use relaybook_api::Time;
use relaybook_api::group;

/// Duration of a membership after a renewal, if the member declares none. No member of this version declares a longer one.
pub const LASTS: Duration = Duration::from_secs(90);
/// Maximum duration that is accepted in the Lease of another replica.
pub const LONGEST: Duration = Duration::from_mins(10);
/// The annotation with the members and the buckets.
pub const ANNOTATION: &str = concat!(group!(), "/buckets");
/// The member that represents the unknown holders of a Lease that was deleted and created again. It is never renewed.
pub const UNKNOWN: &str = "";

/// A replica that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// When its process has started. Together with the name it identifies the process.
    pub started: Time,
    /// When it was last renewed. Only a difference matters, not the value.
    pub renewed: Time,
    /// Its epoch: the `leaseTransitions` of the write with which it last acquired a bucket.
    pub epoch: i32,
    /// How many seconds its membership lasts after a renewal. `None`: [`LASTS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts: Option<u32>,
}

impl Member {
    /// Returns how long the membership lasts after a renewal.
    #[must_use]
    pub fn lasts(&self) -> Duration {
        self.lasts.map_or(LASTS, |seconds| Duration::from_secs(seconds.into())).min(LONGEST)
    }
}

/// Returns a duration as a member declares it, in seconds.
#[must_use]
pub fn declared(lasts: Duration) -> Option<u32> {
    Some(lasts).filter(|lasts| *lasts != LASTS).and_then(|lasts| u32::try_from(lasts.as_secs()).ok())
}

/// The members, and the holders of the buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// By name.
    pub members: BTreeMap<String, Member>,
    /// By number of the bucket. `None`: the bucket is free.
    pub holders: Vec<Option<String>>,
}

impl Table {
    /// Returns a table without members. All buckets are free.
    #[must_use]
    pub fn empty() -> Self {
        Self { members: BTreeMap::new(), holders: vec![None; usize::from(COUNT)] }
    }

    /// Returns the buckets of a member. `None`: the free ones.
    #[must_use]
    pub fn of(&self, member: Option<&str>) -> Buckets {
        Bucket::all().filter(|bucket| self.holders[bucket.index()].as_deref() == member).collect()
    }

    /// Gives buckets to a member. `None`: they become free.
    pub fn give(&mut self, buckets: Buckets, member: Option<&str>) {
        for bucket in buckets.iter() {
            self.holders[bucket.index()] = member.map(str::to_owned);
        }
    }

    /// Removes a member. Its buckets become free.
    pub fn remove(&mut self, member: &str) {
        self.members.remove(member);
        self.give(self.of(Some(member)), None);
    }

    /// Whether the table has the right number of buckets, and each holder is a member.
    fn is_sound(&self) -> bool {
        let is_member = |holder: &Option<String>| holder.as_ref().is_none_or(|holder| self.members.contains_key(holder));
        self.holders.len() == usize::from(COUNT) && self.holders.iter().all(is_member)
    }
}

/// Who holds the buckets of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// One holder has all buckets, and does not divide them. An empty name: there is no holder.
    Whole {
        /// `holderIdentity`.
        holder: String,
        /// `leaseDurationSeconds`.
        lasts: Duration,
    },
    /// The members divide the buckets.
    Divided(Table),
}

/// Content of a Lease object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// `resourceVersion`.
    pub version: String,
    /// `leaseTransitions`.
    pub epoch: i32,
    /// Who holds the buckets.
    pub content: Content,
}

/// A write to perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The version that it replaces. `None`: it creates the Lease.
    pub over: Option<String>,
    /// `leaseTransitions`.
    pub epoch: i32,
    /// What it contains.
    pub table: Table,
    /// Buckets that the writer still gives away afterwards.
    pub giving: Buckets,
}

/// Reads a Lease. A table that cannot be read counts as one holder, so its members stop, and the others wait until they have.
pub fn read(object: &Object) -> Seen {
    let empty = LeaseSpec::default();
    let spec = object.spec.as_ref().unwrap_or(&empty);
    let whole = || Content::Whole {
        holder: spec.holder_identity.clone().unwrap_or_default(),
        lasts: spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).map_or(LASTS, Duration::from_secs),
    };
    let table = object.annotations().get(ANNOTATION).and_then(|text| serde_json::from_str::<Table>(text).ok());
    Seen {
        version: object.resource_version().unwrap_or_default(),
        epoch: spec.lease_transitions.unwrap_or(0),
        content: table.filter(Table::is_sound).map_or_else(whole, Content::Divided),
    }
}

/// Returns the Lease that a write stores. While it has members, a replica of a version that does not divide the work waits.
pub fn object(name: &str, write: &Write, now: Time) -> Object {
    let Write { over, epoch, table, .. } = write;
    let members: Vec<&str> = table.members.keys().map(String::as_str).filter(|name| *name != UNKNOWN).collect();
    let text = if table.members.is_empty() { None } else { serde_json::to_string(table).ok() };
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        resource_version: over.clone(),
        annotations: text.map(|text| BTreeMap::from([(ANNOTATION.to_owned(), text)])),
        ..ObjectMeta::default()
    };
    // The API server requires at least one second.
    let lasts = if members.is_empty() { 1 } else { LASTS.as_secs() };
    let acquired = table.members.values().map(|member| member.started).max();
    let spec = LeaseSpec {
        holder_identity: Some(members.join(",")),
        lease_duration_seconds: i32::try_from(lasts).ok(),
        acquire_time: acquired.map(MicroTime),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(*epoch),
        ..LeaseSpec::default()
    };
    Object { metadata, spec: Some(spec) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_back_as_written_and_an_invalid_one_has_a_single_holder() {
        let at = |second| Time::from_second(second).unwrap();
        let mut table = Table::empty();
        for (name, second) in [("pod-a", 5), ("pod-b", 7)] {
            table.members.insert(
                name.into(),
                Member {
                    started: at(second),
                    renewed: at(second),
                    epoch: 3,
                    lasts: declared(Duration::from_secs(85 + second.cast_unsigned())),
                },
            );
            table.give(table.of(None).first(8), Some(name));
        }
        let written = |table: &Table| {
            let mut object = object(
                "relaybook-dispatch",
                &Write { over: None, epoch: 9, table: table.clone(), giving: Buckets::NONE },
                Time::UNIX_EPOCH,
            );
            object.metadata.resource_version = Some("4".into());
            object
        };
        let whole = written(&table);
        let spec = whole.spec.clone().unwrap();
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some("pod-a,pod-b"), Some(90)));
        assert_eq!(read(&whole), Seen { version: "4".into(), epoch: 9, content: Content::Divided(table.clone()) });
        for wrong in [
            "",
            "{}",
            r#"{"members":{},"holders":[null]}"#,
            &serde_json::to_string(&table).unwrap().replace("pod-a\":", "pod-c\":"),
        ] {
            let mut edited = whole.clone();
            edited.metadata.annotations = Some([(ANNOTATION.to_owned(), wrong.to_owned())].into());
            let one = Content::Whole { holder: "pod-a,pod-b".into(), lasts: LASTS };
            assert_eq!(read(&edited).content, one, "{wrong}");
        }
        table.remove("pod-a");
        assert_eq!((table.of(None).count(), table.of(Some("pod-b")).count()), (8, 8));
        table.remove("pod-b");
        let released = Content::Whole { holder: String::new(), lasts: Duration::from_secs(1) };
        assert_eq!(read(&written(&table)).content, released);
    }
}
