//! Pure: what must be done so that a set has the pipelines that it should have.
//!
//! In: the desired pipelines, the pipelines that exist, and what the API server refused before. Out: the actions.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

use super::expand::{Desired, Expanded};
use super::made::Made;
use relaybook_api::pipeline::Baseline;
use relaybook_api::pipeline_set::{Deletion, SourceRef, WrongPipeline};

/// Maximum number of actions of one reconcile.
pub(super) const MOST_ACTIONS: usize = 256;

/// Something to do.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// A pipeline is made, or changed if it has a uid.
    Apply { name: String, uid: Option<String>, desired: Box<Desired>, baseline: Option<Baseline> },
    /// A pipeline is deleted, if it still has this uid and version.
    Delete { name: String, uid: String, version: String },
}

/// What the API server refused.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    /// What was refused.
    pub what: String,
    pub wrong: WrongPipeline,
    /// When it is tried again.
    pub again: Instant,
    /// How often it was refused.
    pub count: u32,
}

/// The pipelines of a set, and its memory.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    /// The pipelines that exist, by name.
    pub made: &'a BTreeMap<String, Made>,
    /// Names of pipelines that existed while this process was watching.
    pub existed: &'a HashSet<String>,
    /// By name: what was refused.
    pub refused: &'a HashMap<String, Refusal>,
    /// By name: what was applied, and what came of it, if that is not as desired: other people or webhooks have added to it.
    pub applied: &'a HashMap<String, (String, Made)>,
    /// Uid of the set.
    pub uid: &'a str,
    pub deletion: Deletion,
    pub now: Instant,
}

/// What to do.
#[derive(Debug, Default)]
pub(super) struct Decided {
    pub actions: Vec<Action>,
    /// Whether there is more to do afterwards.
    pub is_cut: bool,
    /// Pipelines that stay until everything about their source is delivered.
    pub leaving: usize,
    /// Pipelines that are not tried now, because the API server refused them.
    pub waiting: HashSet<String>,
}

/// What is known of the object of a source that is not selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Existence {
    /// It does not exist.
    Gone,
    /// It exists, or no generator can select it.
    NotSelected,
    /// It is not known, or it is selected since the list was read.
    Unknown,
}

/// Decides what to do. `existence`: what is known of the object of a source that is not selected.
pub(super) fn decide(expanded: &mut Expanded, known: &Known<'_>, existence: impl Fn(&SourceRef) -> Existence) -> Decided {
    let mut decided = Decided::default();
    let sources = Sources::new(expanded, known);
    let leaves = |made: &Made| existence(&made.source) == Existence::Gone && !made.is_done;
    delete(expanded, known, &sources, &existence, &mut decided);
    for (name, desired) in &expanded.desired {
        let made = known.made.get(name);
        if made.is_some_and(|made| made.is_deleting) {
            continue;
        }
        if made.is_some_and(|made| made.source != desired.source && leaves(made)) {
            // Another source has its name. It gets it afterwards.
            decided.leaving += 1;
            continue;
        }
        let baseline = sources.baseline(name, desired, made, known);
        if made.is_some_and(|made| is_as_desired((name, made), desired, baseline, known)) {
            continue;
        }
        let refusal = known.refused.get(name).filter(|refusal| refusal.what == identity(desired, baseline, known.deletion));
        if let Some(refusal) = refusal.filter(|refusal| refusal.again > known.now) {
            expanded.wrong.push(refusal.wrong.clone());
            decided.waiting.insert(name.clone());
            continue;
        }
        if decided.actions.len() == MOST_ACTIONS {
            decided.is_cut = true;
            break;
        }
        let uid = made.map(|made| made.uid.clone());
        decided.actions.push(Action::Apply { name: name.clone(), uid, desired: Box::new(desired.clone()), baseline });
    }
    decided
}

/// Decides which pipelines are deleted. That comes first, because it makes room in a quota.
fn delete(
    expanded: &Expanded,
    known: &Known<'_>,
    sources: &Sources,
    existence: impl Fn(&SourceRef) -> Existence,
    decided: &mut Decided,
) {
    let others = known.made.iter().filter(|(name, made)| !expanded.desired.contains_key(*name) && !made.is_deleting);
    // A source that is missing from an incomplete list can exist. What a source has stays while its template is wrong, and until its new
    // pipelines are made.
    let stays = |made: &Made| {
        !expanded.incomplete.is_empty() || expanded.kept.contains(&made.source) || sources.partial.contains(&made.source)
    };
    // The pipelines of these sources have other names now.
    let wanted: HashSet<&SourceRef> = expanded.desired.values().map(|desired| &desired.source).collect();
    for (name, made) in others.filter(|(_, made)| known.deletion == Deletion::Delete && !stays(made)) {
        let existence = if wanted.contains(&made.source) { Existence::NotSelected } else { existence(&made.source) };
        match existence {
            Existence::NotSelected if wanted.contains(&made.source) => {}
            Existence::Unknown => continue,
            Existence::NotSelected if expanded.is_limited => continue,
            Existence::Gone if !made.is_done => {
                decided.leaving += 1;
                continue;
            }
            Existence::NotSelected | Existence::Gone => {}
        }
        if decided.actions.len() == MOST_ACTIONS {
            decided.is_cut = true;
            return;
        }
        decided.actions.push(Action::Delete { name: name.clone(), uid: made.uid.clone(), version: made.version.clone() });
    }
}

/// What is known of the sources.
struct Sources {
    /// Sources with a pipeline that reports only changes.
    old: HashSet<SourceRef>,
    /// Sources of which some pipelines are not made yet, and are not refused.
    partial: HashSet<SourceRef>,
}

impl Sources {
    fn new(expanded: &Expanded, known: &Known<'_>) -> Self {
        let old = known.made.values().filter(|made| made.baseline != Some(Baseline::Absent));
        let is_missing = |name: &str| !known.made.contains_key(name) && !known.refused.contains_key(name);
        let missing = expanded.desired.iter().filter(|(name, _)| is_missing(name));
        Self {
            old: old.map(|made| made.source.clone()).collect(),
            partial: missing.map(|(_, desired)| desired.source.clone()).collect(),
        }
    }

    /// Returns the baseline to apply. The pipelines of a new source report what they see first. After all of them are made and have recorded
    /// it, the baseline is removed, so that a status that is deleted later is not reported again.
    fn baseline(&self, name: &str, desired: &Desired, made: Option<&Made>, known: &Known<'_>) -> Option<Baseline> {
        let of_source = match made {
            Some(made) => {
                made.baseline == Some(Baseline::Absent) && (!made.is_based || self.partial.contains(&desired.source))
            }
            None => desired.is_new && !known.existed.contains(name) && !self.old.contains(&desired.source),
        };
        desired.baseline.or(of_source.then_some(Baseline::Absent))
    }
}

/// Whether a pipeline is as desired, or as the same apply left it.
fn is_as_desired((name, made): (&str, &Made), desired: &Desired, baseline: Option<Baseline>, known: &Known<'_>) -> bool {
    let is_applied =
        |(what, left): &(String, Made)| *what == identity(desired, baseline, known.deletion) && *left == made.shape();
    is_desired(made, desired, baseline, (known.uid, known.deletion)) || known.applied.get(name).is_some_and(is_applied)
}

/// Whether a pipeline is as desired. Labels and annotations of other people do not count.
pub(super) fn is_desired(
    made: &Made,
    desired: &Desired,
    baseline: Option<Baseline>,
    (uid, deletion): (&str, Deletion),
) -> bool {
    let has = |all: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>| {
        wanted.iter().all(|(key, value)| all.get(key) == Some(value))
    };
    has(&made.labels, &desired.labels)
        && has(&made.annotations, &desired.annotations)
        && made.owners.iter().any(|owner| owner == uid) == (deletion == Deletion::Delete)
        && made.spec == desired.hash
        && made.baseline == baseline
}

/// Returns what identifies a desired pipeline.
pub(super) fn identity(desired: &Desired, baseline: Option<Baseline>, deletion: Deletion) -> String {
    format!("{} {baseline:?} {deletion:?} {:?} {:?}", desired.hash, desired.labels, desired.annotations)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn source(name: &str) -> SourceRef {
        SourceRef { name: name.into(), ..SourceRef::default() }
    }

    fn desired(is_new: bool) -> Desired {
        Desired {
            source: source("a"),
            labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
            annotations: BTreeMap::new(),
            at: (0, 0),
            chunk: None,
            hash: "1".into(),
            baseline: None,
            is_new,
        }
    }

    fn made() -> Made {
        let labels = BTreeMap::from([("team".to_owned(), "a".to_owned()), ("own".to_owned(), "b".to_owned())]);
        Made {
            uid: "u".into(),
            version: "7".into(),
            source: source("a"),
            labels,
            annotations: BTreeMap::new(),
            owners: vec!["set".into()],
            spec: "1".into(),
            baseline: None,
            is_based: false,
            is_done: false,
            is_deleting: false,
        }
    }

    /// Decides about one pipeline.
    fn decided(
        desired: Option<Desired>,
        made: Option<Made>,
        change: impl FnOnce(&mut Known<'_>, &mut Expanded),
        is_gone: bool,
    ) -> Decided {
        let wanted = self::desired(true);
        let (existed, refused, applied) = (
            HashSet::new(),
            HashMap::new(),
            HashMap::from([(
                "a".to_owned(),
                (identity(&wanted, None, Deletion::Delete), Made { spec: "2".into(), ..self::made() }.shape()),
            )]),
        );
        let made = made.into_iter().map(|made| ("a".to_owned(), made)).collect();
        let mut known = Known {
            made: &made,
            existed: &existed,
            refused: &refused,
            applied: &applied,
            uid: "set",
            deletion: Deletion::Delete,
            now: Instant::now(),
        };
        let mut expanded = Expanded::default();
        expanded.desired.extend(desired.map(|desired| ("a".to_owned(), desired)));
        change(&mut known, &mut expanded);
        decide(&mut expanded, &known, |_| if is_gone { Existence::Gone } else { Existence::NotSelected })
    }

    fn applied(decided: &Decided) -> Option<(Option<&str>, Option<Baseline>)> {
        match decided.actions.as_slice() {
            [] => None,
            [Action::Apply { uid, baseline, .. }] => Some((uid.as_deref(), *baseline)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pipeline_is_created_if_missing_and_applied_only_if_it_differs() {
        let of = |desired, made| decided(Some(desired), made, |_, _| {}, false);
        assert_eq!(applied(&of(desired(false), None)), Some((None, None)));
        assert_eq!(applied(&of(desired(true), None)), Some((None, Some(Baseline::Absent))));
        assert_eq!(applied(&of(desired(true), Some(made()))), None, "a label of somebody else is no difference");
        for other in [
            Made { spec: "3".into(), ..made() },
            Made { labels: BTreeMap::new(), ..made() },
            Made { owners: vec!["another set of this name".into()], ..made() },
        ] {
            assert_eq!(applied(&of(desired(true), Some(other))), Some((Some("u"), None)));
        }
        let added = Made { spec: "2".into(), version: "9".into(), is_based: true, ..made() };
        assert_eq!(applied(&of(desired(true), Some(added))), None, "what another person added stays");
        assert_eq!(applied(&of(desired(true), Some(Made { is_deleting: true, spec: "2".into(), ..made() }))), None);
    }

    #[test]
    fn the_baseline_of_a_pipeline_is_removed_when_its_first_state_is_recorded() {
        let absent = |is_based| Made { baseline: Some(Baseline::Absent), is_based, ..made() };
        let of = |made| decided(Some(desired(true)), Some(made), |_, _| {}, false);
        assert_eq!(applied(&of(absent(false))), None);
        assert_eq!(applied(&of(absent(true))), Some((Some("u"), None)));
        let of_template = Desired { baseline: Some(Baseline::Absent), ..desired(false) };
        assert_eq!(applied(&decided(Some(of_template), Some(absent(true)), |_, _| {}, false)), None);
        let existed = HashSet::from(["a".to_owned()]);
        let known = Known {
            made: &BTreeMap::new(),
            existed: &existed,
            refused: &HashMap::new(),
            applied: &HashMap::new(),
            uid: "set",
            deletion: Deletion::Delete,
            now: Instant::now(),
        };
        let of = |made: &[(&str, Made)]| -> Option<Baseline> {
            let made = made.iter().map(|(name, made)| ((*name).to_owned(), made.clone())).collect();
            let known = Known { made: &made, existed: &HashSet::new(), ..known };
            Sources::new(&Expanded::default(), &known).baseline("a", &desired(true), None, &known)
        };
        let sources = Sources::new(&Expanded::default(), &known);
        assert_eq!(sources.baseline("a", &desired(true), None, &known), None, "a person deleted it; its source is not new");
        assert_eq!(of(&[("b", made())]), None, "the source has a pipeline of another name");
        assert_eq!(of(&[("b", absent(true))]), Some(Baseline::Absent), "it is another chunk of a new source");
        let mut expanded = Expanded::default();
        expanded.desired.extend([("a".to_owned(), desired(true)), ("b".to_owned(), desired(true))]);
        let made = BTreeMap::from([("a".to_owned(), absent(true))]);
        let known = Known { made: &made, ..known };
        let kept = Sources::new(&expanded, &known).baseline("a", &desired(true), made.get("a"), &known);
        assert_eq!(kept, Some(Baseline::Absent), "another chunk of the source is not made yet");
    }

    #[test]
    fn a_pipeline_without_a_source_is_deleted_after_its_last_delivery() {
        let deletes = |decided: &Decided| matches!(decided.actions.as_slice(), [Action::Delete { .. }]);
        for (is_gone, is_done, expected) in [(true, false, false), (true, true, true), (false, false, true)] {
            let decided = decided(None, Some(Made { is_done, ..made() }), |_, _| {}, is_gone);
            assert_eq!((deletes(&decided), decided.leaving), (expected, usize::from(!expected)), "{is_gone} {is_done}");
        }
        let done = || Some(Made { is_done: true, ..made() });
        let renamed = |_: &mut Known<'_>, all: &mut Expanded| drop(all.desired.insert("b".to_owned(), desired(false)));
        let kept = decided(None, done(), renamed, false);
        assert!(!kept.actions.iter().any(|action| matches!(action, Action::Delete { .. })), "the new one is made first");
        let orphan = decided(None, done(), |known, _| known.deletion = Deletion::Orphan, true);
        assert!(orphan.actions.is_empty());
        let incomplete = decided(None, done(), |_, all| all.incomplete.push(("CacheNotSynced".into(), String::new())), true);
        assert!(incomplete.actions.is_empty(), "the source may only be missing from the list");
        let wrong = decided(None, done(), |_, all| all.kept = HashSet::from([source("a")]), false);
        assert!(wrong.actions.is_empty(), "what is there stays while its template is wrong");
        for (is_gone, expected) in [(true, true), (false, false)] {
            let limited = decided(None, done(), |_, all| all.is_limited = true, is_gone);
            assert_eq!(deletes(&limited), expected, "it can be a source beyond the limit");
        }
        assert!(
            decided(None, Some(Made { is_deleting: true, is_done: true, ..made() }), |_, _| {}, true).actions.is_empty()
        );
    }

    #[test]
    fn a_name_goes_to_another_source_after_the_last_delivery_about_the_first_one() {
        let other = || Desired { source: source("b"), hash: "3".into(), ..desired(false) };
        let changed = Some((Some("u"), None));
        for (is_gone, is_done, expected) in [(true, false, None), (true, true, changed), (false, false, changed)] {
            let decided = decided(Some(other()), Some(Made { is_done, ..made() }), |_, _| {}, is_gone);
            let waits = usize::from(expected.is_none());
            assert_eq!((applied(&decided), decided.leaving), (expected, waits), "{is_gone} {is_done}");
        }
    }

    #[test]
    fn a_refused_pipeline_is_not_tried_again_before_its_time() {
        let now = Instant::now();
        let refusal = |what: String, again| Refusal { what, wrong: WrongPipeline::default(), again, count: 1 };
        let later = now + Duration::from_secs(9);
        for (what, again, expected) in [
            (identity(&desired(false), None, Deletion::Delete), later, 0),
            (identity(&desired(false), None, Deletion::Delete), now, 1),
            ("another".to_owned(), later, 1),
        ] {
            let refused = HashMap::from([("a".to_owned(), refusal(what, again))]);
            let (made, existed, applied) = (BTreeMap::new(), HashSet::new(), HashMap::new());
            let known = Known {
                made: &made,
                existed: &existed,
                refused: &refused,
                applied: &applied,
                uid: "set",
                deletion: Deletion::Delete,
                now,
            };
            let mut expanded = Expanded::default();
            expanded.desired.insert("a".to_owned(), desired(false));
            let decided = decide(&mut expanded, &known, |_| Existence::NotSelected);
            assert_eq!((decided.actions.len(), expanded.wrong.len()), (expected, 1 - expected));
        }
    }
}
