//! Pure: the commits that promotions of all pipelines made. If two pipelines promote in one repository and revisions are commits, each commit
//! of one is a new revision of the other. Without this knowledge, they would promote each other's commits without end.
//!
//! In: the promotions. Out: the revision with the commit that a person made, below the commits of promotions.

use std::borrow::Cow;
use std::collections::HashMap;

use super::plan::HASH;
use relaybook_api::Promotion;

/// The promotions of one pipeline, and the commits of those of all pipelines.
pub type Known<'a> = (&'a [&'a Promotion], &'a Commits);

/// The commits of promotions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commits {
    /// By id: the id of the commit below it, and the number of promotions that have recorded it.
    below: HashMap<String, (String, usize)>,
}

impl Commits {
    /// Adds the commits of a promotion.
    pub fn put(&mut self, promotion: &Promotion) {
        for (id, base) in of(promotion) {
            let (_, count) = self.below.entry(id.to_owned()).or_insert_with(|| (base.to_owned(), 0));
            *count += 1;
        }
    }

    /// Removes the commits of a promotion that was added.
    pub fn remove(&mut self, promotion: &Promotion) {
        for (id, _) in of(promotion) {
            let Some((_, count)) = self.below.get_mut(id) else { continue };
            *count -= 1;
            if *count == 0 {
                self.below.remove(id);
            }
        }
    }

    /// Returns a revision with the first commit below that no promotion has made, instead of its own commit. A revision without a commit of a
    /// promotion stays the same.
    pub(super) fn root<'a>(&'a self, revision: &'a str) -> Cow<'a, str> {
        let Some(id) = self.found(revision) else { return Cow::Borrowed(revision) };
        let mut root = id;
        // Each commit has another one below it. The limit ends a circle, which only a wrong status can contain.
        for _ in 0..=self.below.len() {
            match self.below.get(root) {
                Some((base, _)) => root = base,
                None => return Cow::Owned(revision.replace(id, root)),
            }
        }
        Cow::Borrowed(revision)
    }

    /// Whether a revision contains a commit of a promotion.
    pub(super) fn made(&self, revision: &str) -> bool {
        self.found(revision).is_some()
    }

    /// Returns the commit of a promotion in a revision.
    fn found<'a>(&self, revision: &'a str) -> Option<&'a str> {
        revision.split(|c: char| !c.is_ascii_hexdigit()).find(|id| self.below.contains_key(*id))
    }
}

/// Whether a promotion has made a commit.
pub fn has_commit(promotion: &Promotion) -> bool {
    of(promotion).next().is_some()
}

/// Returns the commits of a promotion, each with the commit below it. The merge of a pull request is above the commit of its branch.
fn of(promotion: &Promotion) -> impl Iterator<Item = (&str, &str)> {
    let status = promotion.status.as_ref();
    let commit = status.and_then(|status| status.commit.as_ref());
    let base = commit.map(|commit| commit.base.as_str()).unwrap_or_default();
    let merged = status.and_then(|status| status.pull_request.as_ref()?.merge_commit.as_deref());
    let ids = commit.map(|commit| commit.id.as_str()).into_iter().chain(merged);
    // Without the commit below, it is not known what a revision contains.
    ids.filter(move |id| id.len() >= HASH && base.len() >= HASH && *id != base).map(move |id| (id, base))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::promotion::testing::promotion;
    use relaybook_api::promotion::{Phase, PromotionCommit, PromotionPullRequest};

    fn id(digit: char) -> String {
        digit.to_string().repeat(40)
    }

    fn made(commit: &str, base: &str, merged: Option<&str>) -> Promotion {
        let mut made = promotion((10, 0), &[Phase::Requested, Phase::Finished], "");
        let status = made.status.as_mut().unwrap();
        status.commit = Some(PromotionCommit { id: commit.into(), base: base.into(), branch: "main".into() });
        let merge_commit = merged.map(str::to_owned);
        status.pull_request = Some(PromotionPullRequest { merge_commit, ..PromotionPullRequest::default() });
        made
    }

    #[test]
    fn the_root_of_a_commit_of_promotions_is_the_last_commit_of_a_person() {
        let mut commits = Commits::default();
        // A person made 1. Promotions made 2, 3, and 5, which was merged as 6. A person made 4.
        for one in [made(&id('2'), &id('1'), None), made(&id('3'), &id('2'), None), made(&id('5'), &id('4'), Some(&id('6')))]
        {
            commits.put(&one);
        }
        for (revision, root) in [('1', '1'), ('2', '1'), ('3', '1'), ('4', '4'), ('5', '4'), ('6', '4'), ('7', '7')] {
            for text in ["main@sha1:ID", "ID", "v1-ID"] {
                let of = |digit| text.replace("ID", &id(digit));
                assert_eq!(commits.root(&of(revision)), of(root));
                assert_eq!(commits.made(&of(revision)), revision != root);
            }
        }
        let (short, longer) = (id('2')[..12].to_owned(), format!("{}2", id('2')));
        assert_eq!((commits.root(&short), commits.root(&longer)), (Cow::Borrowed(&*short), Cow::Borrowed(&*longer)));
    }

    #[test]
    fn a_commit_is_forgotten_with_its_last_promotion() {
        let (mut commits, one) = (Commits::default(), made(&id('2'), &id('1'), None));
        commits.put(&one);
        commits.put(&one);
        commits.remove(&one);
        assert!(commits.made(&id('2')));
        commits.remove(&one);
        assert_eq!(commits, Commits::default());
        commits.remove(&one);
    }

    #[test]
    fn a_commit_with_a_circular_or_unknown_base_has_no_other_root() {
        let mut commits = Commits::default();
        commits.put(&made(&id('1'), &id('2'), None));
        commits.put(&made(&id('2'), &id('1'), None));
        assert_eq!(commits.root(&id('1')), id('1'));
        let mut commits = Commits::default();
        commits.put(&made(&id('3'), "", None));
        assert!(!commits.made(&id('3')));
    }
}
