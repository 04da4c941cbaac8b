//! Hints on which object a user may have meant when the object of a target does not exist.
//!
//! In: the readings of the targets, and the objects of the same kind in the caches. Out: hints for the first missing objects. Each hint is
//! computed once while its object is missing. So it stays the same and causes no further write of the status.

use std::collections::HashMap;

use super::Observed;
use super::ready::is_missing;
use super::target::source;
use crate::reading::{Application, Now, SimilarObjects};
use relaybook_api::values::nearest::nearest;

/// Maximum number of targets of a pipeline that get a hint.
const MOST: usize = 5;

/// The namespace of the pipeline, and whether it can refer to others.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Namespace of the pipeline.
    pub namespace: &'a str,
    /// Whether targets in another namespace than their pipeline are allowed.
    pub cross: bool,
}

/// The known hints by the name of a target: the missing object, and the text of the hint if there is one.
#[derive(Debug, Default)]
pub struct Similar(HashMap<String, (Application, Option<String>)>);

impl Similar {
    /// Returns the hints for these targets. `find` queries the caches.
    pub fn of(
        &mut self,
        targets: &[Observed],
        place: Place<'_>,
        find: impl Fn(&[Application]) -> Vec<SimilarObjects>,
    ) -> HashMap<String, String> {
        let missing = targets.iter().filter(|(_, reading)| is_missing(&reading.now)).take(MOST);
        let missing: HashMap<&str, Application> =
            missing.map(|(t, _)| (t.name.as_str(), source(t).seen_from(place.namespace))).collect();
        self.0.retain(|name, (app, _)| missing.get(name.as_str()) == Some(app));
        let new: Vec<(&str, Application)> = missing.into_iter().filter(|(name, _)| !self.0.contains_key(*name)).collect();
        // While a cache is being filled, its content is not known.
        let filling = |now: &Now| matches!(now, Now::Unknown { reason, .. } if reason.is_filling());
        if !new.is_empty() && !targets.iter().any(|(_, reading)| filling(&reading.now)) {
            let apps: Vec<Application> = new.iter().map(|(_, app)| app.clone()).collect();
            for ((name, app), alike) in new.into_iter().zip(find(&apps)) {
                let words = words(&app, &alike, place);
                self.0.insert(name.to_owned(), (app, words));
            }
        }
        let known = self.0.iter().filter_map(|(name, (_, words))| Some((name.clone(), words.clone()?)));
        known.collect()
    }
}

/// Returns the text of a hint. `None`: there is no useful hint, or none that may be shown.
fn words(app: &Application, alike: &SimilarObjects, place: Place<'_>) -> Option<String> {
    let object = &app.object;
    // A hint does not name a local namespace that the pipeline must not refer to.
    let may_name = |namespace: &&String| place.cross || object.cluster_ref.is_some() || *namespace == place.namespace;
    let namespaces: Vec<&str> = alike.namespaces.iter().filter(may_name).map(String::as_str).collect();
    if !namespaces.is_empty() {
        return Some(format!("there is one in {}", namespaces.join(", ")));
    }
    nearest(&object.name, alike.names.iter().map(String::as_str)).map(|name| format!("did you mean {name}?"))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::observe::Observation;
    use crate::reading::{Reading, Reason};
    use relaybook_api::Status;
    use relaybook_api::pipeline::target::TargetInfo;
    use relaybook_api::values::refs::{AppRef, ClusterKind, ClusterRef};

    fn observed(namespace: &str, status: Status) -> Observed {
        let app =
            AppRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "web".into(), ..AppRef::default() };
        let name = format!("dev/c/{namespace}");
        let target = TargetInfo { namespace: namespace.into(), app, name, ..TargetInfo::default() };
        let now = Now::Known(Observation { status, ..Observation::default() });
        let reading = Reading {
            observations: vec![],
            now,
            seq: 0,
            changed_at: None,
            overflowed: false,
            cluster: String::new(),
            confirmed: String::new(),
        };
        (target, reading)
    }

    fn alike(namespaces: &[&str], names: &[&str]) -> SimilarObjects {
        let set = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
        SimilarObjects { namespaces: set(namespaces), names: set(names) }
    }

    #[test]
    fn hints_name_only_namespaces_that_the_pipeline_can_refer_to() {
        let local = source(&observed("prd", Status::NotFound).0);
        let mut remote = local.clone();
        remote.object.cluster_ref =
            Some(ClusterRef { api_version: None, kind: ClusterKind::Secret, name: "eu".into(), namespace: None });
        let there = alike(&["prod", "team"], &["wbe"]);
        for (app, cross, told) in [
            (&local, true, "there is one in prod, team"),
            (&local, false, "there is one in team"),
            (&remote, false, "there is one in prod, team"),
        ] {
            let place = Place { namespace: "team", cross };
            assert_eq!(words(app, &there, place).as_deref(), Some(told));
        }
        let place = Place { namespace: "team", cross: false };
        assert_eq!(words(&local, &alike(&["prod"], &["wbe"]), place).as_deref(), Some("did you mean wbe?"));
        assert_eq!(words(&local, &alike(&["prod"], &["database"]), place), None);
    }

    #[test]
    fn a_hint_is_computed_once_while_an_object_is_missing() {
        let (mut similar, calls) = (Similar::default(), Cell::new(0));
        let place = Place { namespace: "team", cross: true };
        let mut ask = |targets: &[Observed]| {
            similar.of(targets, place, |missing| {
                calls.set(calls.get() + missing.len());
                missing.iter().map(|_| alike(&["prod"], &[])).collect()
            })
        };
        let there = observed("a", Status::Current);
        let (a, b) = (observed("a", Status::NotFound), observed("b", Status::NotFound));
        let mut filling = observed("c", Status::Current);
        filling.1.now = Now::Unknown { reason: Reason::CacheNotSynced, message: String::new() };
        for (targets, told, found) in [
            (vec![there.clone()], 0, 0),
            (vec![a.clone(), filling], 0, 0),
            (vec![a.clone(), b.clone()], 2, 2),
            (vec![a.clone(), b.clone()], 2, 2),
            (vec![there, b.clone()], 1, 2),
            (vec![a, b], 2, 3),
        ] {
            assert_eq!((ask(&targets).len(), calls.get()), (told, found));
        }
        let many: Vec<_> = (0..20).map(|i| observed(&format!("n{i}"), Status::NotFound)).collect();
        assert_eq!(ask(&many).len(), MOST);
    }
}
