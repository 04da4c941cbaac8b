//! Where the Applications of Argo CD deploy to that a pipeline follows.
//!
//! In: the targets of a pipeline, with the permissions of a caller. Out: [`Deployed`]: the name or the address of the cluster in
//! `spec.destination` of the first Applications among them, and the number of those that were not read. The answers are kept for half a minute,
//! except those about a trouble that passes.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::join_all;
use kube::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};

use super::Reader;
use super::fresh::Kept;
use crate::read::call::call;
use crate::screens::names;
use crate::trouble::Wanted;
use relaybook_api::ObjectName;
use relaybook_api::pipeline::target::TargetInfo;

/// Maximum number of Applications that are read for a screen.
pub(crate) const APPLICATIONS: usize = 8;

/// Where Applications deploy to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Deployed {
    /// The destinations, by the names of the targets as the page shows them.
    pub(crate) to: BTreeMap<String, String>,
    /// The number of Applications that were not read.
    pub(crate) unread: usize,
}

impl Deployed {
    /// `found`: the names of the targets, each with what was read. Empty: the Application has no destination. `more`: the number of the others.
    fn of(found: impl Iterator<Item = (String, Option<Arc<String>>)>, more: usize) -> Self {
        let mut all = Self { to: BTreeMap::new(), unread: more };
        for (name, destination) in found {
            match destination {
                Some(destination) if destination.is_empty() => {}
                Some(destination) => drop(all.to.insert(name, destination.as_str().to_owned())),
                None => all.unread += 1,
            }
        }
        all
    }
}

/// What was read, for each Application. Empty: it has no destination.
pub(crate) type Destinations = Kept<ObjectName, String>;

impl Reader<'_> {
    /// Returns the destinations of the first Applications.
    pub(super) async fn destinations(&self, targets: &[TargetInfo]) -> Deployed {
        let is_here = |target: &&TargetInfo| {
            target.object_cluster.is_none() && names::is_application(&target.app.api_version, &target.app.kind)
        };
        let mut own: Vec<&TargetInfo> = targets.iter().filter(is_here).collect();
        let more = own.len().saturating_sub(APPLICATIONS);
        own.truncate(APPLICATIONS);
        let mut reads = Vec::new();
        for target in &own {
            reads.push(self.destination(target));
        }
        let found = join_all(reads).await;
        let names = own.iter().map(|target| names::shown(&target.as_subject(), &self.settings.cluster_name));
        Deployed::of(names.zip(found), more)
    }

    async fn destination(&self, target: &TargetInfo) -> Option<Arc<String>> {
        let (group, version) = target.app.api_version.split_once('/')?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &target.app.kind));
        let read = Box::pin(async {
            let api: Api<DynamicObject> = Api::namespaced_with(self.caller.client.clone(), &target.namespace, &resource);
            let wanted = Wanted::new("get", "applications", Some(&target.namespace));
            match call(&wanted, api.get_opt(&target.app.name)).await {
                Ok(found) => {
                    let destination = found.and_then(|application| names::destination(&application.data));
                    (Some(destination.unwrap_or_default()), true)
                }
                Err(trouble) => (None, !trouble.is_passing()),
            }
        });
        let name = ObjectName::new(&target.namespace, &target.app.name);
        self.destinations.or_read(self.caller, name, read).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_read_is_counted_and_what_has_no_destination_is_not() {
        let found = [("a", Some("eu-1")), ("b", None), ("c", Some("")), ("d", None)];
        let found = found.map(|(name, to)| (name.to_owned(), to.map(|to| Arc::new(to.to_owned()))));
        let to = BTreeMap::from([("a".to_owned(), "eu-1".to_owned())]);
        assert_eq!(Deployed::of(found.into_iter(), 3), Deployed { to, unread: 5 });
        assert_eq!(Deployed::of(std::iter::empty(), 0), Deployed::default());
    }
}
