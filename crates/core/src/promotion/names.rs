//! Pure: the names, labels and order of promotions, and the names by which their branches and commits are found again.

use std::collections::BTreeMap;

use relaybook_api::group;
use relaybook_api::promotion::EnvironmentPromotion;
use relaybook_api::values::names::{cut, hash};
use relaybook_api::{Promotion, PromotionSpec};

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
        (concat!(group!(), "/pipeline"), cut(&spec.pipeline_ref.name)),
        (concat!(group!(), "/environment"), cut(&spec.environment)),
        // A restored Promotion would have lost its status.
        ("velero.io/exclude-from-backup", "true"),
    ];
    labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Maximum length of the part of a branch that shows the revision.
const MAX_SLUG: usize = 40;

/// Maximum number of branches that are looked for.
const MAX_BRANCHES: usize = 3;

/// Returns the branches that can have the pull request of a promotion. The first one is its own. The others are those before its retries, and
/// that of the promotion for the same occasion that Relaybook started. A pull request that is still open there is taken over.
#[must_use]
pub fn branches(promotion: &Promotion) -> Vec<String> {
    let (spec, retries) = (&promotion.spec, promotion.status.as_ref().map_or(0, |status| status.retries));
    let earlier = (0..=retries).rev().take(MAX_BRANCHES);
    let mut all: Vec<String> = earlier.map(|retries| branch(spec, retries)).collect();
    if spec.request > 0 {
        all.push(branch(&PromotionSpec { request: 0, ..spec.clone() }, 0));
    }
    all
}

/// Returns the value of the trailer by which the commit of a promotion is found again. Each retry has another one.
#[must_use]
pub fn trailer(promotion: &Promotion) -> String {
    let retries = promotion.status.as_ref().map_or(0, |status| status.retries);
    trailer_of(promotion, promotion.metadata.name.as_deref().unwrap_or_default(), retries)
}

/// Returns the trailers of the commits on [`branches`]: a branch whose newest commit has one of them has no commit of a person.
#[must_use]
pub fn trailers(promotion: &Promotion) -> Vec<String> {
    let (spec, retries) = (&promotion.spec, promotion.status.as_ref().map_or(0, |status| status.retries));
    let own = promotion.metadata.name.as_deref().unwrap_or_default();
    let earlier = (0..=retries).rev().take(MAX_BRANCHES);
    let mut all: Vec<String> = earlier.map(|retries| trailer_of(promotion, own, retries)).collect();
    if spec.request > 0 {
        all.push(trailer_of(promotion, &name(&PromotionSpec { request: 0, ..spec.clone() }), 0));
    }
    all
}

fn trailer_of(promotion: &Promotion, name: &str, retries: i64) -> String {
    let namespace = promotion.metadata.namespace.as_deref().unwrap_or_default();
    let trailer = format!("{namespace}/{name} {}", promotion.spec.pipeline_ref.uid);
    if retries > 0 { format!("{trailer} retry {retries}") } else { trailer }
}

/// Returns the branch to which the change of a promotion is pushed: `relaybook/ENVIRONMENT-SLUG-ID16`.
///
/// The id is a hash of what the promotion is for, so a Promotion that is deleted and created again has the same branch. Everything else is for
/// users. After the first retry of a person, the branch ends in `-2`, then in `-3`, ….
fn branch(spec: &PromotionSpec, retries: i64) -> String {
    let (occasion, request) = (spec.occasion.to_string(), spec.request.to_string());
    let id = hash(&[&spec.pipeline_ref.uid, &spec.environment, &spec.revision, &occasion, &request]);
    let parts = [slug(&spec.environment, 63), slug(&spec.revision, MAX_SLUG), id[..16].to_owned()];
    let shown: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    let branch = format!("relaybook/{}", shown.join("-"));
    if retries > 0 { format!("{branch}-{}", retries.saturating_add(1)) } else { branch }
}

/// Returns a text in lower case with only `a` to `z`, digits, and single dashes between them, of at most `max` characters.
fn slug(text: &str, max: usize) -> String {
    let mut slug = String::with_capacity(max);
    for c in text.chars() {
        if slug.len() >= max {
            break;
        }
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.trim_end_matches('-').to_owned()
}

/// Returns the place of a promotion among those of its environment.
#[must_use]
pub fn order(spec: &PromotionSpec) -> Order {
    (spec.occasion, spec.request)
}

/// Returns the place of the promotion that the status of a pipeline shows.
pub fn order_of_mirror(mirror: &EnvironmentPromotion) -> Order {
    (mirror.occasion, mirror.request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::promotion::PromotedPipeline;

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
    fn a_name_depends_on_pipeline_environment_revision_occasion_and_request() {
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
        assert_eq!(labels["relaybook.dev/pipeline"], "a".repeat(62));
        assert_eq!(labels["velero.io/exclude-from-backup"], "true");
        assert!(labels.values().all(|value| value.len() <= 63));
        let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/relaybook/templates/admissionpolicy.yaml");
        let policy = std::fs::read_to_string(chart).unwrap();
        for label in labels.keys() {
            assert!(policy.contains(&format!("\"{label}\"")), "the admission policy of the chart keeps {label}");
        }
    }

    #[test]
    fn promotions_are_ordered_by_occasion_and_then_by_request() {
        let of = |occasion, request| order(&PromotionSpec { occasion, request, ..spec() });
        assert!(of(1, 9) < of(2, 0) && of(2, 0) < of(2, 1));
    }

    #[test]
    fn a_branch_depends_on_pipeline_environment_revision_occasion_and_request() {
        let one = branch(&spec(), 0);
        assert!(one.starts_with("relaybook/prod-6-5-1-"), "{one}");
        assert_eq!(one.len(), "relaybook/prod-6-5-1-".len() + 16);
        assert_eq!(branch(&spec(), 1), format!("{one}-2"));
        let other_pipeline = PromotedPipeline { name: "podinfo".into(), uid: "v".into() };
        let renamed = PromotedPipeline { name: "other".into(), uid: "u".into() };
        for (what, same, other) in [
            ("the approval", true, PromotionSpec { approved: true, ..spec() }),
            ("the name of the pipeline", true, PromotionSpec { pipeline_ref: renamed, ..spec() }),
            ("the revision", false, PromotionSpec { revision: "6.5.2".into(), ..spec() }),
            ("the spelling of the revision", false, PromotionSpec { revision: "6-5-1".into(), ..spec() }),
            ("the occasion", false, PromotionSpec { occasion: 1, ..spec() }),
            ("the request", false, PromotionSpec { request: 1, ..spec() }),
            ("the environment", false, PromotionSpec { environment: "qa".into(), ..spec() }),
            ("the pipeline", false, PromotionSpec { pipeline_ref: other_pipeline, ..spec() }),
        ] {
            assert_eq!(branch(&other, 0) == one, same, "{what}");
        }
    }

    #[test]
    fn a_branch_of_a_hostile_revision_is_a_valid_name() {
        for (revision, shown) in [
            ("6.5.1", "-6-5-1"),
            ("Main@sha1:9C1E1FD3", "-main-sha1-9c1e1fd3"),
            ("refs/heads/../main", "-refs-heads-main"),
            ("a.lock", "-a-lock"),
            ("-rf", "-rf"),
            ("\"; rm -rf", "-rm-rf"),
            ("a\nb\u{202e}c-->", "-a-b-c"),
            ("~^:?*[\\@{", ""),
            ("bücher", "-b-cher"),
            ("\u{202e}", ""),
            ("", ""),
            (&"é".repeat(1000), ""),
            (&"a".repeat(41), &format!("-{}", "a".repeat(40))),
            (&format!("{}-b", "a".repeat(39)), &format!("-{}", "a".repeat(39))),
        ] {
            let branch = branch(&PromotionSpec { revision: revision.to_owned(), ..spec() }, 2);
            let rest =
                branch.strip_prefix(&format!("relaybook/prod{shown}-")).unwrap_or_else(|| panic!("{revision:?}: {branch}"));
            assert!(rest.len() == 18 && rest.ends_with("-3"), "{branch}");
            assert!(branch.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'/')), "{branch}");
        }
        let long = PromotionSpec { environment: "e".repeat(63), revision: "r".repeat(1024), ..spec() };
        assert!(branch(&long, i64::MAX).len() <= 160);
    }

    #[test]
    fn a_retry_has_a_branch_and_a_trailer_of_its_own() {
        let with = |request, retries| {
            let mut promotion = crate::promotion::testing::new(PromotionSpec { request, ..spec() });
            promotion.metadata.name = Some("web".into());
            promotion.status = Some(relaybook_api::PromotionStatus { retries, ..relaybook_api::PromotionStatus::default() });
            promotion
        };
        let (first, again, asked) = (with(0, 0), with(0, 1), with(2, 0));
        assert_eq!((trailer(&first), trailer(&again)), ("team-a/web u".into(), "team-a/web u retry 1".into()));
        assert_eq!(trailers(&again), ["team-a/web u retry 1", "team-a/web u"]);
        let started = name(&PromotionSpec { request: 0, ..asked.spec.clone() });
        assert_eq!(trailers(&asked), ["team-a/web u".to_owned(), format!("team-a/{started} u")]);
        let own = branches(&first);
        assert_eq!(branches(&again), [format!("{}-2", own[0]), own[0].clone()], "the one before can still be open");
        assert_eq!((branches(&asked).len(), &branches(&asked)[1]), (2, &own[0]));
        assert_eq!(branches(&with(0, 9)).len(), 3);
    }
}
