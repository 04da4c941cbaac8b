//! One attempt to carry out a promotion: a commit, or a commit and a pull request.
//!
//! In: a promotion whose attempt is recorded ([`Attempt`]). Out: what the attempt found or made, or why it failed
//! ([`relaybook_core::promotion::progress`]). Everything that an attempt makes can be found again. The branch has a known name, the commit a trailer, and
//! the pull request a branch and a last line of its description. So an attempt first looks for what an earlier one made.
//!
//! [`commit`] makes and pushes the commit, [`pull_request`] opens, reads and closes the pull request. [`remote`] sends all requests,
//! [`repositories`] limits how many repositories are read, and [`clock`] limits the time of the attempt. [`logins`], [`values`], [`template`] and
//! [`problem`] are pure: credentials, the edits of files, the texts of users, and what errors mean. [`check`] says before the first attempt what none could use.

mod check;
mod clock;
mod commit;
mod logins;
mod problem;
mod pull_request;
mod remote;
mod repositories;
mod template;
mod values;

use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use logins::{Payer, origin, payer};
use relaybook_api::promotion::{GitRepository, PromotionStrategy, PullRequestStrategy};
use relaybook_api::{Promotion, PromotionStatus};
use relaybook_core::promotion::policy::{interval, repository};
use relaybook_core::promotion::progress::{Found, Problem, Task};
use relaybook_egress::Sender;
use remote::Budgets;
use repositories::Repositories;

pub use check::{Sample, Unusable, unusable};
pub(super) use clock::Clock;

/// One attempt.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    /// The promotion, with the status that records the attempt.
    pub(super) promotion: Promotion,
    /// What the attempt does.
    pub(super) task: Task,
    /// Whether its requests come before planned checks of other pull requests.
    pub(super) is_prompt: bool,
    /// Limits its time.
    pub(super) clock: Arc<Clock>,
}

/// What all attempts share.
pub(super) struct Outside {
    sender: Sender,
    budgets: Budgets,
    repositories: Repositories,
    /// The last answer about the pull request of a promotion with its entity tag, by the uid of the promotion.
    seen: Mutex<HashMap<String, (String, Found)>>,
    /// The promotions whose pull requests are checked, by the origin of the forge and the Secret.
    open: Mutex<HashMap<Account, HashSet<String>>>,
}

/// The origin of a forge, and whose budget is used there.
type Account = (String, Payer);

impl Outside {
    /// Returns what attempts need to send requests.
    pub(super) fn new(sender: Sender) -> Self {
        Self {
            sender,
            budgets: Budgets::default(),
            repositories: Repositories::default(),
            seen: Mutex::default(),
            open: Mutex::default(),
        }
    }

    /// Makes an attempt. It ends at its time at the latest.
    pub(super) async fn attempt(&self, attempt: &Attempt) -> Result<Found, Problem> {
        tokio::select! {
            made = self.begin(attempt) => made,
            () = attempt.clock.over() => Err(Problem::late()),
        }
    }

    async fn begin(&self, attempt: &Attempt) -> Result<Found, Problem> {
        self.note_open(attempt);
        let status = attempt.promotion.status.as_ref();
        let strategy = status.and_then(|status| status.strategy.as_ref());
        match (strategy, attempt.task) {
            (Some(PromotionStrategy { pull_request: Some(of), .. }), task) => {
                pull_request::attempt(self, attempt, of, task).await
            }
            (Some(PromotionStrategy { commit: Some(_), .. }), Task::Carry) => commit::push(self, attempt).await,
            _ => Ok(Found::Nothing),
        }
    }

    /// Returns how often the pull request of a promotion can be checked. Many pull requests of one Secret are checked less often.
    pub(super) fn interval(&self, promotion: &Promotion) -> Option<Duration> {
        let of = promotion.status.as_ref()?.strategy.as_ref()?.pull_request.as_ref()?;
        let namespace = namespace(promotion);
        let account = (origin(of)?, payer(&namespace, &of.repository));
        let open = lock(&self.open).get(&account).map_or(1, HashSet::len);
        Some(self.budgets.interval(&namespace, of, interval(of), open))
    }

    /// Notes that the pull request of a promotion is checked.
    fn note_open(&self, attempt: &Attempt) {
        let Some(of) = attempt.pull_request() else { return };
        let (Some(origin), Some(uid)) = (origin(of), attempt.promotion.metadata.uid.clone()) else { return };
        let account = (origin, payer(&attempt.namespace(), &of.repository));
        let mut open = lock(&self.open);
        // A retry can have changed the account.
        for (other, uids) in open.iter_mut() {
            if *other != account {
                uids.remove(&uid);
            }
        }
        open.entry(account).or_default().insert(uid);
    }

    /// Forgets all promotions for which this is false.
    pub(super) fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        lock(&self.seen).retain(|uid, _| is_kept(uid));
        lock(&self.open).retain(|_, uids| {
            uids.retain(|uid| is_kept(uid));
            !uids.is_empty()
        });
    }

    fn seen(&self, uid: &str) -> Option<(String, Found)> {
        lock(&self.seen).get(uid).cloned()
    }

    fn note_seen(&self, uid: String, etag: Option<String>, found: &Found) {
        let mut seen = lock(&self.seen);
        match etag {
            Some(etag) => drop(seen.insert(uid, (etag, found.clone()))),
            None => drop(seen.remove(&uid)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Attempt {
    fn status(&self) -> &PromotionStatus {
        static NONE: std::sync::LazyLock<PromotionStatus> = std::sync::LazyLock::new(PromotionStatus::default);
        self.promotion.status.as_ref().unwrap_or(&NONE)
    }

    fn namespace(&self) -> String {
        namespace(&self.promotion)
    }

    /// Returns the repository, and the branch that finally changes.
    fn repository(&self) -> Result<(&GitRepository, &str), Problem> {
        let strategy = self.status().strategy.as_ref();
        strategy.and_then(repository).ok_or_else(|| Problem::of_this_program("the promotion has no repository"))
    }

    fn pull_request(&self) -> Option<&PullRequestStrategy> {
        self.status().strategy.as_ref()?.pull_request.as_deref()
    }
}

fn namespace(promotion: &Promotion) -> String {
    promotion.metadata.namespace.clone().unwrap_or_default()
}
