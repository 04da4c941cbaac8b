//! Pure: the names, labels and order of promotions.

use std::collections::BTreeMap;

use crate::api::PromotionSpec;
use crate::api::promotion::EnvironmentPromotion;
use crate::api::values::names::{cut, hash};

/// The order of the promotions of one environment: occasion, then request. The newest has the greatest order.
pub type Order = (i64, i64);

/// Returns the name of a promotion. The name is its key: only one object can have it, so only one client can create it.
///
/// The parts are: pipeline, environment, hash of (pipeline uid, environment, revision), occasion, and `rN` for the request N of a person.
/// The first two parts are for users. If they are cut, the hash keeps the name unique.
#[must_use]
pub fn name(spec: &PromotionSpec) -> String {
    let hash = hash(&[&spec.pipeline_ref.uid, &spec.environment, &spec.revision]);
    let (pipeline, environment) = (cut(&spec.pipeline_ref.name), cut(&spec.environment));
    let name = format!("{pipeline}-{environment}-{}-{}", &hash[..10], spec.occasion);
    if spec.request > 0 { format!("{name}-r{}", spec.request) } else { name }
}

/// Returns the labels of a promotion. They are for users: promotions are selected by the uid of their pipeline.
#[must_use]
pub fn labels(spec: &PromotionSpec) -> BTreeMap<String, String> {
    let labels = [
        ("pennant.dev/pipeline", cut(&spec.pipeline_ref.name)),
        ("pennant.dev/environment", cut(&spec.environment)),
        // A restored Promotion would have lost its status.
        ("velero.io/exclude-from-backup", "true"),
    ];
    labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Returns the place of a promotion among those of its environment.
#[must_use]
pub fn order(spec: &PromotionSpec) -> Order {
    (spec.occasion, spec.request)
}

/// Returns the place of the promotion that the status of a pipeline shows.
pub(super) fn order_of_mirror(mirror: &EnvironmentPromotion) -> Order {
    (mirror.occasion, mirror.request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::promotion::PromotedPipeline;

    fn spec() -> PromotionSpec {
        PromotionSpec {
            pipeline_ref: PromotedPipeline { name: "podinfo".into(), uid: "u".into() },
            environment: "prod".into(),
            from: "staging".into(),
            revision: "6.5.1".into(),
            occasion: 1_763_711_234_567,
            ..PromotionSpec::default()
        }
    }

    #[test]
    fn a_name_is_a_function_of_what_the_promotion_is_for() {
        let one = name(&spec());
        assert!(one.starts_with("podinfo-prod-") && one.ends_with("-1763711234567"), "{one}");
        assert_eq!(name(&PromotionSpec { request: 2, ..spec() }), format!("{one}-r2"));
        for (what, same, other) in [
            ("the approval", true, PromotionSpec { approved: true, ..spec() }),
            ("the revision before", true, PromotionSpec { previous: Some("6.5.0".into()), ..spec() }),
            ("the revision", false, PromotionSpec { revision: "6.5.2".into(), ..spec() }),
            ("the occasion", false, PromotionSpec { occasion: 1, ..spec() }),
            ("the request", false, PromotionSpec { request: 1, ..spec() }),
            ("the environment", false, PromotionSpec { environment: "qa".into(), ..spec() }),
            (
                "the pipeline",
                false,
                PromotionSpec { pipeline_ref: PromotedPipeline { name: "podinfo".into(), uid: "v".into() }, ..spec() },
            ),
        ] {
            assert_eq!(name(&other) == one, same, "{what}");
        }
    }

    #[test]
    fn long_names_are_cut_and_stay_valid() {
        let name_of = |first: &str| {
            let pipeline_ref = PromotedPipeline { name: format!("{first}.{}", "b".repeat(60)), uid: "u".into() };
            PromotionSpec { pipeline_ref, environment: "e".repeat(63), revision: "r\n\u{202e}".repeat(300), ..spec() }
        };
        let long = PromotionSpec { request: 1_000_000, occasion: 9_007_199_254_740_991, ..name_of(&"a".repeat(62)) };
        let name = name(&long);
        assert!(name.starts_with(&format!("{}-{}-", "a".repeat(62), "e".repeat(63))), "{name}");
        assert!(name.len() <= 253 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.'), "{name}");
        let labels = labels(&long);
        assert_eq!(labels["pennant.dev/pipeline"], "a".repeat(62));
        assert_eq!(labels["velero.io/exclude-from-backup"], "true");
        assert!(labels.values().all(|value| value.len() <= 63));
    }

    #[test]
    fn the_occasion_counts_first() {
        let of = |occasion, request| order(&PromotionSpec { occasion, request, ..spec() });
        assert!(of(1, 9) < of(2, 0) && of(2, 0) < of(2, 1));
    }
}
