//! Maps the names of subjects in the log to the subjects that deliveries contain, and to their places. Pure.
//!
//! In: a pipeline; a name. Out: the subject, and the places of its targets. Triggers are evaluated with these places.

use std::collections::BTreeMap;
use std::sync::Arc;

use relaybook_api::delivery::{AppObject, PipelineRef, Subject, SubjectKind, SubjectTarget};
use relaybook_api::pipeline::target::targets_of;
use relaybook_api::values::refs::ClusterRef;
use relaybook_api::{LogSubject, Pipeline};
use relaybook_settings::trigger::Place;

/// The subjects of one pipeline.
#[derive(Debug, Default)]
pub struct Subjects {
    pipeline: PipelineRef,
    known: BTreeMap<String, Arc<About>>,
}

/// One subject.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The subject as it appears in deliveries.
    pub subject: Subject,
    /// The places of its targets, without duplicates.
    pub places: Vec<Place>,
}

impl Subjects {
    /// Returns the subjects of a pipeline. `cluster` is the name of the local cluster.
    #[must_use]
    pub fn new(of: &Pipeline, cluster: &str, pipeline: &PipelineRef) -> Self {
        let mut known: BTreeMap<String, About> = BTreeMap::new();
        for info in targets_of(of, cluster) {
            let place = Place::of(&info, &pipeline.namespace);
            let environment = &info.environment;
            let groups = [LogSubject::Environment(environment), LogSubject::Promotion(environment), LogSubject::Pipeline];
            let cluster = info.cluster_ref.as_ref().map(ClusterRef::full_name);
            let cluster = cluster.iter().map(|name| LogSubject::Cluster(name));
            for of in [info.log_subject()].into_iter().chain(groups).chain(cluster) {
                let about = known.entry(of.to_string()).or_default();
                about.subject = match of {
                    LogSubject::Target(_) => info.as_subject(),
                    LogSubject::Cluster(_) => Subject { cluster_ref: info.cluster_ref.clone(), ..named(of, pipeline) },
                    LogSubject::Environment(_) | LogSubject::Promotion(_) | LogSubject::Pipeline | LogSubject::Other(_) => {
                        named(of, pipeline)
                    }
                };
                if !about.places.contains(&place) {
                    about.places.push(place.clone());
                }
            }
        }
        let known = known.into_iter().map(|(name, about)| (name, Arc::new(about))).collect();
        Self { pipeline: pipeline.clone(), known }
    }

    /// Returns the names of all subjects.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.known.keys()
    }

    /// Returns the subject with this name. If the subject is no longer in the spec, the result contains only what its name contains.
    #[must_use]
    pub fn get(&self, name: &str) -> Arc<About> {
        self.known.get(name).cloned().unwrap_or_else(|| {
            let subject = named(LogSubject::parse(name), &self.pipeline);
            let cluster = match &subject.target {
                Some(target) => target.cluster.clone(),
                None if subject.kind == SubjectKind::Cluster => subject.name.clone(),
                None => String::new(),
            };
            let own = cluster.rsplit('.').next().unwrap_or_default().to_owned();
            let place = Place { environment: subject.environment.clone(), cluster: own, full_cluster: cluster };
            Arc::new(About { subject, places: vec![place] })
        })
    }
}

/// Returns a subject with only the data that its name contains.
fn named(subject: LogSubject<'_>, pipeline: &PipelineRef) -> Subject {
    let of = |kind, name: &str| Subject { kind, name: name.to_owned(), ..Subject::default() };
    match subject {
        LogSubject::Pipeline => of(SubjectKind::Pipeline, &pipeline.name),
        LogSubject::Cluster(name) => of(SubjectKind::Cluster, name),
        LogSubject::Environment(name) | LogSubject::Promotion(name) => {
            Subject { environment: name.to_owned(), ..of(SubjectKind::Environment, name) }
        }
        LogSubject::Other(text) => named(LogSubject::Target(text.split_once('/').map_or(text, |(_, name)| name)), pipeline),
        LogSubject::Target(name) => {
            let mut parts = name.splitn(4, '/').map(str::to_owned);
            let mut part = || parts.next().unwrap_or_default();
            let (environment, cluster, namespace) = (part(), part(), part());
            let app = AppObject { name: part(), ..AppObject::default() };
            let target = SubjectTarget { namespace, cluster, cluster_ref: None, app, source: None };
            Subject { environment, target: Some(target), ..of(SubjectKind::Target, name) }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use relaybook_api::PipelineSpec;

    fn subjects() -> Subjects {
        let cluster = json!({"kind": "GitopsCluster", "name": "eu", "namespace": "fleet"});
        let own = json!({"kind": "Secret", "name": "us"});
        let spec: PipelineSpec = serde_json::from_value(json!({
            "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "environments": [
                {"name": "dev", "targets": [{"namespace": "a"}, {"namespace": "b"}]},
                {"name": "prod", "targets": [{"namespace": "a", "clusterRef": cluster}, {"namespace": "a", "clusterRef": own}]},
            ],
        }))
        .unwrap();
        let pipeline = PipelineRef { namespace: "team-a".into(), name: "shop".into(), uid: "u".into() };
        Subjects::new(&Pipeline::new("shop", spec), "here", &pipeline)
    }

    #[test]
    fn each_subject_has_its_kind_name_environment_and_clusters() {
        let (here, eu, us) = ("dev here here", "prod eu fleet.eu", "prod us team-a.us");
        for (name, kind, called, environment, places) in [
            ("target/dev/here/a", SubjectKind::Target, "dev/here/a", "dev", &[here][..]),
            ("target/prod/fleet.eu/a", SubjectKind::Target, "prod/fleet.eu/a", "prod", &[eu]),
            ("environment/prod", SubjectKind::Environment, "prod", "prod", &[eu, us]),
            ("promotion/prod", SubjectKind::Environment, "prod", "prod", &[eu, us]),
            ("cluster/us", SubjectKind::Cluster, "us", "", &[us]),
            ("pipeline", SubjectKind::Pipeline, "shop", "", &[here, eu, us]),
            // No longer in the spec.
            ("target/old/fleet.eu/a/web", SubjectKind::Target, "old/fleet.eu/a/web", "old", &["old eu fleet.eu"]),
            ("environment/old", SubjectKind::Environment, "old", "old", &["old  "]),
            ("promotion/old", SubjectKind::Environment, "old", "old", &["old  "]),
            ("cluster/fleet.old", SubjectKind::Cluster, "fleet.old", "", &[" old fleet.old"]),
        ] {
            let about = subjects().get(name);
            let About { subject, places: found } = &*about;
            assert_eq!(
                (subject.kind, subject.name.as_str(), subject.environment.as_str()),
                (kind, called, environment),
                "{name}"
            );
            let found: Vec<_> =
                found.iter().map(|p| format!("{} {} {}", p.environment, p.cluster, p.full_cluster)).collect();
            assert_eq!(found, places, "{name}");
        }
    }

    #[test]
    fn targets_and_clusters_refer_to_a_cluster_object_and_other_subjects_do_not() {
        let all = subjects();
        let cluster = all.get("cluster/fleet.eu").subject.cluster_ref.clone().unwrap();
        assert_eq!(cluster.full_name(), "fleet.eu");
        for subject in ["pipeline", "environment/prod", "promotion/prod", "target/prod/fleet.eu/a"] {
            assert!(all.get(subject).subject.cluster_ref.is_none(), "{subject}");
        }
        let target = all.get("target/prod/fleet.eu/a").subject.target.clone().unwrap();
        assert_eq!((target.cluster_ref, target.app.kind.as_str()), (Some(cluster), "Deployment"));
        let gone = all.get("target/old/c/ns/api").subject.target.clone().unwrap();
        assert_eq!((gone.namespace.as_str(), gone.app.name.as_str()), ("ns", "api"));
        assert_eq!(all.names().count(), 11);
    }
}
