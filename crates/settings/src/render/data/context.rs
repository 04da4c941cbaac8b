//! The name of a subject among all subjects of all installations, for labels of commit statuses.
//!
//! In: a recorded transition, and the name of the local cluster. Out: a text that no other subject has, as long as each installation has its
//! own `--cluster-name`.

use relaybook_api::DeliverySpec;
use relaybook_api::delivery::SubjectKind;

/// Returns `CLUSTER/NAMESPACE/PIPELINE` with the parts of the subject. No part contains a slash, and each kind of subject has another number
/// of parts or another last part. The cluster of a target is left out if it is the local one. None ends with
/// `/_test`, which templates append in a test: environments and objects have no `_` in their names.
pub(super) fn context(spec: &DeliverySpec, cluster: &str) -> String {
    let (pipeline, subject) = (&spec.pipeline_ref, &spec.subject);
    let mut parts = vec![cluster, pipeline.namespace.as_str(), pipeline.name.as_str()];
    match (subject.kind, &subject.target) {
        (SubjectKind::Pipeline, _) => {}
        (SubjectKind::Environment, _) if spec.to.promotion.is_some() => parts.extend([subject.name.as_str(), "promotion"]),
        (SubjectKind::Environment, _) => parts.push(&subject.name),
        (SubjectKind::Cluster, _) => parts.extend([subject.name.as_str(), "cluster"]),
        (SubjectKind::Target, Some(target)) => {
            parts.push(&subject.environment);
            parts.extend(Some(target.cluster.as_str()).filter(|of| *of != cluster));
            parts.extend([target.namespace.as_str(), target.app.kind.as_str(), target.app.name.as_str()]);
        }
        // Every recorded target has its fields.
        (SubjectKind::Target, None) => parts.extend(["target", subject.name.as_str()]),
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::render::{Body, Data, Parameters, Values};
    use relaybook_api::State;
    use relaybook_api::TransitionType;
    use relaybook_api::delivery::{AppObject, PipelineRef, Subject, SubjectTarget};
    use relaybook_api::promotion::{Phase, PromotionState};

    /// What distinguishes one subject from all others.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Identity {
        installation: String,
        pipeline: (String, String),
        about: About,
    }

    #[derive(Clone, Debug, PartialEq, Eq)]
    enum About {
        Pipeline,
        Environment(String),
        Promotion(String),
        Cluster(String),
        /// Environment, cluster, namespace, kind and name.
        Target([String; 5]),
    }

    fn spec(identity: &Identity) -> DeliverySpec {
        let kind = match identity.about {
            About::Pipeline => SubjectKind::Pipeline,
            About::Environment(_) | About::Promotion(_) => SubjectKind::Environment,
            About::Cluster(_) => SubjectKind::Cluster,
            About::Target(_) => SubjectKind::Target,
        };
        let mut subject = Subject { kind, ..Subject::default() };
        let mut to = State::default();
        match &identity.about {
            About::Pipeline => subject.name.clone_from(&identity.pipeline.1),
            About::Environment(name) | About::Cluster(name) => subject.name.clone_from(name),
            About::Promotion(name) => {
                subject.name.clone_from(name);
                to.promotion = Some(promotion());
            }
            About::Target([environment, cluster, namespace, kind, name]) => {
                subject.environment.clone_from(environment);
                let app = AppObject { api_version: "apps/v1".to_owned(), kind: kind.clone(), name: name.clone() };
                let (namespace, cluster) = (namespace.clone(), cluster.clone());
                subject.target = Some(SubjectTarget { namespace, cluster, app, ..SubjectTarget::default() });
            }
        }
        let (namespace, name) = identity.pipeline.clone();
        let pipeline_ref = PipelineRef { namespace, name, uid: "u".to_owned() };
        DeliverySpec { pipeline_ref, subject, to, ..DeliverySpec::default() }
    }

    fn promotion() -> PromotionState {
        PromotionState {
            name: "p".to_owned(),
            uid: "u".to_owned(),
            phase: Phase::Requested,
            strategy: String::new(),
            from: "dev".to_owned(),
            url: String::new(),
        }
    }

    /// Names with few letters, so that equal and similar ones are frequent. One is that of a marker, and some have the length of a hash.
    fn name() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("promotion".to_owned()),
            Just("cluster".to_owned()),
            "[ab]{1,3}",
            "[ab](-[ab]){0,2}",
            Just("a".repeat(63)),
        ]
    }

    /// Names of clusters: `NAMESPACE.NAME`.
    fn dotted() -> impl Strategy<Value = String> {
        (name(), name()).prop_map(|(namespace, name)| format!("{namespace}.{name}"))
    }

    fn identity() -> impl Strategy<Value = Identity> {
        let target = (name(), prop_oneof![name(), dotted()], name(), "[AB]{1,2}", prop_oneof![name(), dotted()]);
        let about = prop_oneof![
            Just(About::Pipeline),
            name().prop_map(About::Environment),
            name().prop_map(About::Promotion),
            dotted().prop_map(About::Cluster),
            target.prop_map(|(a, b, c, d, e)| About::Target([a, b, c, d, e])),
        ];
        let pipeline = (name(), prop_oneof![name(), dotted()]);
        (name(), pipeline, about).prop_map(|(installation, pipeline, about)| Identity { installation, pipeline, about })
    }

    /// Returns the context as the built-in templates send it, with at most `length` characters.
    fn sent(identity: &Identity, length: usize) -> String {
        let data = Data::new("i", &spec(identity), &std::sync::Arc::default(), &std::sync::Arc::default(), "n");
        let data = data.with_context(&spec(identity), &identity.installation);
        let parameters = Parameters::default();
        let body = Body::compile("text/plain", &format!("{{{{shorten context {length}}}}}"), &parameters).unwrap();
        body.render(&Values::new(&data, &parameters).unwrap()).unwrap()
    }

    proptest! {
        #[test]
        fn two_subjects_never_have_the_same_context(one in identity(), other in identity(), change in any::<proptest::sample::Index>()) {
            // The second pair differs in one part only, as two applications of one environment do.
            let mut near = one.clone();
            match (&mut near.about, &other.about) {
                (About::Target(parts), About::Target(of_other)) => {
                    let part = change.index(parts.len());
                    parts[part].clone_from(&of_other[part]);
                }
                (About::Pipeline, _) => near.pipeline.1.clone_from(&other.pipeline.1),
                _ => near.installation.clone_from(&other.installation),
            }
            for length in [40, 80, 255] {
                for other in [&other, &near] {
                    prop_assert_eq!(sent(&one, length) == sent(other, length), one == *other, "{:?} {:?}", one, other);
                    prop_assert!(sent(other, length).chars().count() <= length);
                }
            }
        }
    }

    #[test]
    fn a_context_is_the_path_of_installation_pipeline_and_subject() {
        let of = |about: About| {
            let pipeline = ("team-a".to_owned(), "shop".to_owned());
            let identity = Identity { installation: "eu-1".to_owned(), pipeline, about };
            sent(&identity, 255)
        };
        let target = |cluster: &str| About::Target(["prod", cluster, "shop", "Kustomization", "web"].map(str::to_owned));
        assert_eq!(of(target("eu-1")), "eu-1/team-a/shop/prod/shop/Kustomization/web");
        assert_eq!(of(target("fleet.us-1")), "eu-1/team-a/shop/prod/fleet.us-1/shop/Kustomization/web");
        assert_eq!(of(About::Environment("prod".to_owned())), "eu-1/team-a/shop/prod");
        assert_eq!(of(About::Promotion("prod".to_owned())), "eu-1/team-a/shop/prod/promotion");
        assert_eq!(of(About::Pipeline), "eu-1/team-a/shop");
        assert_eq!(of(About::Cluster("fleet.us-1".to_owned())), "eu-1/team-a/shop/fleet.us-1/cluster");
    }

    #[test]
    fn every_sample_has_the_context_of_its_subject() {
        let of = |type_| Data::sample(type_).context;
        assert_eq!(of(TransitionType::Failed), "in-cluster/team-a/podinfo/prod/podinfo/Kustomization/podinfo");
        assert_eq!(of(TransitionType::PromotionFailed), "in-cluster/team-a/podinfo/prod/promotion");
        assert_eq!(of(TransitionType::ClusterOffline), "in-cluster/team-a/podinfo/clusters.eu-1/cluster");
    }
}
