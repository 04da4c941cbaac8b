//! Where the revisions of a change come from.
//!
//! In: a verdict, or a change of a promotion, and the Git repository that the subject names. Out: the same with the repository of its
//! revision, and with the one that the revision before came from. A link that compares two revisions needs both, because a user can change
//! the repository of an application. A repository is never a reason for a change.

use relaybook_api::{Change, Settled, Status};

use super::settle::Verdict;

/// Adds the repository to a verdict. `old`: the settled state before. `named`: returns the repository of the revision of a state with this status,
/// or an empty text if it is not known.
///
/// The repository of the running revision stays, because an object can name another one before that one runs. If it was not known before, it
/// is learned, which is no change.
#[must_use]
pub fn with_repository<'a>(verdict: Verdict, old: Option<&Settled>, named: impl Fn(Status) -> &'a str) -> Verdict {
    match verdict {
        Verdict::Ignored => match (old, named(Status::Current)) {
            (Some(old), named) if old.status == Status::Current && old.repository.is_empty() && !named.is_empty() => {
                Verdict::Baseline(Settled { repository: named.to_owned(), ..old.clone() })
            }
            _ => Verdict::Ignored,
        },
        Verdict::Baseline(new) => Verdict::Baseline(settled(new, old, named)),
        Verdict::Noted(new) => Verdict::Noted(settled(new, old, named)),
        Verdict::Changed { mut from, mut to, settled: new } => {
            let named = named(new.status);
            from.repository = old.map(|old| old.repository.clone()).unwrap_or_default();
            // The object can be about another revision, while a change such as drift is about the one that runs.
            let runs = old.filter(|old| old.current.as_deref() == Some(&*to.revision)).map_or("", |old| &*old.repository);
            let of_new = match (to.revision.is_empty(), named) {
                (true, _) => "",
                (false, "") => runs,
                (false, named) => named,
            };
            of_new.clone_into(&mut to.repository);
            Verdict::Changed { from, to, settled: settled(new, old, |_| named) }
        }
    }
}

/// Returns the new settled state with the repository of the revision that it runs.
fn settled<'a>(new: Settled, old: Option<&Settled>, named: impl Fn(Status) -> &'a str) -> Settled {
    let known =
        old.filter(|old| old.reader == new.reader && old.current == new.current).map_or("", |old| old.repository.as_str());
    let repository = match (known, new.status) {
        ("", Status::Current) => named(new.status),
        (known, _) => known,
    };
    Settled { repository: repository.to_owned(), ..new }
}

/// Adds the repository to a step of a promotion. `environment`: the settled state of the environment that the promotion goes to.
pub fn add_repository(change: &mut Change, environment: Option<&Settled>, named: &str) {
    let ran = environment.filter(|environment| environment.current == change.from.current);
    change.from.repository = ran.map(|ran| ran.repository.clone()).unwrap_or_default();
    named.clone_into(&mut change.to.repository);
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::State;

    const A: &str = "https://github.com/acme/a";
    const B: &str = "https://github.com/acme/b";

    fn state(status: Status, current: &str, repository: &str) -> Settled {
        let current = Some(current.to_owned()).filter(|current| !current.is_empty());
        Settled { status, current, repository: repository.to_owned(), reader: "r".to_owned(), ..Settled::default() }
    }

    fn settled_after(verdict: &Verdict) -> Option<&str> {
        match verdict {
            Verdict::Ignored => None,
            Verdict::Baseline(new) | Verdict::Noted(new) | Verdict::Changed { settled: new, .. } => Some(&new.repository),
        }
    }

    #[test]
    fn the_repository_of_the_running_revision_is_that_with_which_it_began_to_run() {
        use Status::{Current, InProgress, NotFound};
        let ran = state(Current, "1", A);
        let other = Settled { reader: "other".to_owned(), ..ran.clone() };
        for (what, old, new, named, want) in [
            ("the first observation", None, state(Current, "1", ""), A, A),
            ("the first observation of a rollout", None, state(InProgress, "1", ""), A, ""),
            ("another revision", Some(&ran), state(Current, "2", ""), B, B),
            ("another revision from nowhere", Some(&ran), state(Current, "2", ""), "", ""),
            ("a rollout from another repository", Some(&ran), state(InProgress, "1", ""), B, A),
            ("the same revision, and the object names another repository", Some(&ran), state(Current, "1", ""), B, A),
            ("it is gone", Some(&ran), state(NotFound, "", ""), "", ""),
            ("other rules", Some(&other), state(InProgress, "1", ""), B, ""),
        ] {
            for verdict in [
                Verdict::Baseline(new.clone()),
                Verdict::Noted(new.clone()),
                Verdict::Changed { from: State::default(), to: State::default(), settled: new },
            ] {
                assert_eq!(settled_after(&with_repository(verdict, old, |_| named)), Some(want), "{what}");
            }
        }
    }

    #[test]
    fn a_repository_is_learned_without_a_change() {
        let unknown = state(Status::Current, "1", "");
        let learned = with_repository(Verdict::Ignored, Some(&unknown), |_| A);
        assert_eq!(learned, Verdict::Baseline(state(Status::Current, "1", A)));
        let Verdict::Baseline(learned) = learned else { panic!() };
        for (old, named) in [(Some(&learned), A), (Some(&learned), B), (Some(&learned), ""), (Some(&unknown), ""), (None, A)]
        {
            assert_eq!(with_repository(Verdict::Ignored, old, |_| named), Verdict::Ignored);
        }
        let moving = state(Status::InProgress, "1", "");
        assert_eq!(
            with_repository(Verdict::Ignored, Some(&moving), |_| B),
            Verdict::Ignored,
            "it can be that of the next one"
        );
    }

    #[test]
    fn a_change_has_the_repositories_of_both_revisions() {
        let (old, new) = (state(Status::Current, "1", A), state(Status::Current, "2", ""));
        for (revision, named, want) in [("2", B, B), ("2", "", ""), ("1", "", A), ("", B, "")] {
            let to = State { revision: revision.to_owned(), ..State::default() };
            let verdict = Verdict::Changed { from: State::default(), to, settled: new.clone() };
            let Verdict::Changed { from, to, .. } = with_repository(verdict, Some(&old), |_| named) else { panic!() };
            assert_eq!((from.repository.as_str(), to.repository.as_str()), (A, want));
        }
        let mut change = Change { from: State { current: Some("1".to_owned()), ..State::default() }, ..Change::default() };
        add_repository(&mut change, Some(&old), B);
        assert_eq!((change.from.repository.as_str(), change.to.repository.as_str()), (A, B));
        add_repository(&mut change, Some(&state(Status::Current, "2", A)), B);
        assert_eq!(change.from.repository, "", "the environment runs another revision by now");
    }
}
