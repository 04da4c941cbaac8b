//! The model of the forge, and of the attempts of the replicas.
//!
//! An attempt is a future that stops before each of its requests. So requests of several attempts, reconciles, and what people do are in any order.

mod attempt;
mod forge;

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use kube::ResourceExt as _;

use super::server::Server;
use attempt::Attempt;
pub(super) use forge::{Forge, is_open};
use relaybook_api::promotion::{LOOK, Phase};
use relaybook_api::{Promotion, PromotionStatus, Time};
use relaybook_core::promotion::progress::{Begun, Found, Lasts, Problem, Progress, Task};
use relaybook_core::promotion::state::{kept, recorded};
use relaybook_core::promotion::testing::{ENVIRONMENTS, PROD};

/// What happens to a request of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Happens {
    #[default]
    Done,
    AnswerLost,
    NotDone,
    /// The attempt ends. The request can be applied later.
    Late,
    /// The forge does not know the repository.
    NotFound,
    /// A push is refused. Other requests are applied.
    PushRefused,
    /// The forge allows no more requests now. The attempt starts again later.
    Quota,
}

pub(super) const HAPPENS: [Happens; 13] = [
    Happens::Done,
    Happens::Done,
    Happens::Done,
    Happens::Done,
    Happens::Done,
    Happens::Done,
    Happens::Done,
    Happens::AnswerLost,
    Happens::NotDone,
    Happens::Late,
    Happens::NotFound,
    Happens::PushRefused,
    Happens::Quota,
];

/// What happens outside.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The next request of an attempt is sent.
    Request(u8, Happens),
    /// The oldest late request is applied.
    Land,
    /// A person merges a pull request.
    Merge(u8),
    /// A person closes a pull request.
    Close(u8),
    /// A person deletes a pull request.
    Delete(u8),
    /// A person deletes a branch.
    DeleteBranch(u8),
    /// A person pushes to a branch.
    PushTo(u8),
    /// A person pushes to `main`.
    Move,
    /// Another replica becomes the leader. Attempts end before.
    Lead(usize),
    /// A Secret has changed.
    Renew(usize),
}

/// An attempt in progress.
struct Job {
    replica: usize,
    uid: String,
    begun: Begun,
    attempt: Pin<Box<dyn Future<Output = Result<Found, Problem>> + Send>>,
}

/// The forge, and the attempts.
pub(super) struct Outside {
    forge: Arc<Mutex<Forge>>,
    fate: Arc<Mutex<Happens>>,
    jobs: Vec<Job>,
    /// What each replica knows, by the uid of the promotion.
    known: Vec<HashMap<String, Progress>>,
    pub(super) leader: usize,
    /// Number of requests that were sent.
    pub(super) requests: u64,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock()
}

impl Outside {
    pub(super) fn new(replicas: usize) -> Self {
        let mut forge = Forge::default();
        for environment in &ENVIRONMENTS[..=PROD] {
            let base = forge.tip().id;
            forge.main.push(Forge::commit(&base, environment, "1", ""));
        }
        Self {
            forge: Arc::new(Mutex::new(forge)),
            fate: Arc::default(),
            jobs: Vec::new(),
            known: vec![HashMap::new(); replicas],
            leader: 0,
            requests: 0,
        }
    }

    pub(super) fn forge(&self) -> MutexGuard<'_, Forge> {
        lock(&self.forge)
    }

    pub(super) fn declared(&self, environment: &str) -> Option<String> {
        self.forge().declared(environment)
    }

    pub(super) fn progress(&self, replica: usize, promotion: &Promotion) -> Progress {
        let uid = promotion.metadata.uid.as_deref().unwrap_or_default();
        self.known[replica].get(uid).cloned().unwrap_or_default()
    }

    /// Notes what a process knows after the answer to a write, as the store of the controller does.
    pub(super) fn note(&mut self, replica: usize, stored: &Promotion, before: Option<&PromotionStatus>) {
        let (Some(status), uid) = (&stored.status, stored.metadata.uid.clone().unwrap_or_default()) else { return };
        if let Some(attempt) = recorded(before, status) {
            self.known[replica].entry(uid).or_default().recorded = Some(attempt);
        } else if status.phase.is_some_and(Phase::is_ended) {
            self.known[replica].remove(&uid);
        }
    }

    /// Starts an attempt, as the attempts of the controller do.
    pub(super) fn start(&mut self, replica: usize, promotion: &Promotion, task: Task, started: Time) {
        let (uid, status) =
            (promotion.metadata.uid.clone().unwrap_or_default(), promotion.status.clone().unwrap_or_default());
        let number = match task {
            Task::Carry => status.attempts,
            Task::Close => status.withdrawing.as_ref().map_or(0, |withdrawing| withdrawing.attempts),
            Task::Look | Task::Last => 0,
        };
        let progress = self.known[replica].entry(uid.clone()).or_default();
        assert!(!progress.is_running, "one attempt at a time");
        let begun = progress.begin((task, number), promotion.annotations().get(LOOK).map(|value| kept(value)), started);
        let (forge, fate) = (Arc::clone(&self.forge), Arc::clone(&self.fate));
        let attempt = Box::pin(Attempt { forge, fate, started, promotion: promotion.clone() }.make(task));
        let mut job = Job { replica, uid, begun, attempt };
        assert!(poll(&mut job).is_pending(), "each attempt sends a request");
        self.jobs.push(job);
    }

    /// Sends the next request of an attempt.
    pub(super) fn request(&mut self, which: u8, happens: Happens) {
        let Some(at) = usize::from(which).checked_rem(self.jobs.len()) else { return };
        self.requests += 1;
        *lock(&self.fate) = happens;
        if let Poll::Ready(result) = poll(&mut self.jobs[at]) {
            let job = self.jobs.remove(at);
            self.ended(job, result);
        }
    }

    fn ended(&mut self, job: Job, result: Result<Found, Problem>) {
        let Job { replica, uid, begun, .. } = job;
        if let Some(progress) = self.known[replica].get_mut(&uid) {
            progress.end(begun, result, Duration::ZERO);
        }
    }

    /// Ends all attempts of a replica: a request of each can be in flight.
    fn abort(&mut self, replica: usize) {
        while let Some(at) = self.jobs.iter().position(|job| job.replica == replica) {
            *lock(&self.fate) = Happens::Late;
            let mut job = self.jobs.remove(at);
            let _ = poll(&mut job);
            let message = "the attempt took longer than a minute".to_owned();
            self.ended(job, Err(Problem { reason: "Timeout", message, lasts: Lasts::Until(None) }));
        }
        *lock(&self.fate) = Happens::Done;
    }

    /// A replica is killed.
    pub(super) fn kill(&mut self, replica: usize) {
        self.abort(replica);
        self.known[replica].clear();
    }

    /// Lets all requests be applied, and all attempts end. Returns whether there were any.
    pub(super) fn finish(&mut self) -> bool {
        let has_any = !self.jobs.is_empty() || !self.forge().late.is_empty();
        while !self.forge().late.is_empty() {
            self.forge().land();
        }
        while !self.jobs.is_empty() {
            self.request(0, Happens::Done);
        }
        has_any
    }
}

fn poll(job: &mut Job) -> Poll<Result<Found, Problem>> {
    job.attempt.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

impl Server {
    pub(super) fn outside(&mut self, event: Event) {
        let outside = &mut self.outside;
        match event {
            Event::Request(which, happens) => outside.request(which, happens),
            Event::Land => outside.forge().land(),
            Event::Merge(which) => outside.forge().merge(which),
            Event::Close(which) => outside.forge().close(which),
            Event::Delete(which) => outside.forge().delete(which),
            Event::DeleteBranch(which) => {
                let mut forge = outside.forge();
                if let Some(branch) = forge.branch(which) {
                    forge.delete_branch(&branch);
                }
            }
            Event::PushTo(which) => outside.forge().push_to(which),
            Event::Move => {
                let mut forge = outside.forge();
                let new = Forge::commit(&forge.tip().id, "", "", "");
                forge.main.push(new);
            }
            Event::Lead(replica) if replica != outside.leader => {
                outside.abort(outside.leader);
                outside.leader = replica;
                outside.known[replica].clear();
            }
            Event::Lead(_) => {}
            Event::Renew(replica) => {
                outside.known[replica].values_mut().for_each(|progress| progress.is_renewed = true);
            }
        }
    }

    /// Returns what is wrong outside at any time.
    pub(super) fn wrong_outside(&self) -> Option<String> {
        let forge = self.outside.forge();
        let twice = |all: &std::collections::BTreeMap<String, (u32, u32)>, what: &str| {
            let twice = all.iter().find(|(_, (made, deleted))| *made > 1 + deleted)?;
            Some(format!("{what} more than once: {twice:?}"))
        };
        let trailers: Vec<&String> = forge.main.iter().map(|commit| &commit.trailer).filter(|of| !of.is_empty()).collect();
        let repeated = || {
            let twice = trailers.iter().find(|of| trailers.iter().filter(|other| other == of).count() > 1)?;
            Some(format!("two commits of {twice} are on main"))
        };
        twice(&forge.pushed, "pushed").or_else(|| twice(&forge.opened, "opened")).or_else(repeated)
    }

    /// Returns a pull request that is open, although its promotion needs it no more and does not report it.
    ///
    /// A late request can open one after its promotion has ended. If the promotion was withdrawn, its branch is deleted first. So the forge
    /// refuses the request, or nobody can merge what it opens, unless a person pushes to the branch, or two requests are late.
    pub(super) fn left_open(&self) -> Option<String> {
        let forge = self.outside.forge();
        let wrong = forge.pulls.iter().filter(|pull| is_open(pull)).find(|pull| {
            // A person deleted the promotion. Then its pull request stays, also if somebody creates one with its name again.
            let Some(promotion) = self.opener(pull) else { return false };
            let status = promotion.status.clone().unwrap_or_default();
            let says =
                ["could not be closed", "is still open", "can be open"].iter().any(|text| status.message.contains(text));
            let is_late = pull.is_late
                && (status.phase != Some(Phase::Withdrawn)
                    || !forge.can_be_merged(pull)
                    || forge.touched.contains(&pull.branch)
                    || forge.landed > 1);
            // The next attempt finds it.
            let is_requested = status.phase == Some(Phase::Requested);
            !says && !is_late && !is_requested && !self.has_open(pull.number)
        });
        wrong.map(|pull| format!("{pull:?} is open: {:?}", self.opener(pull)))
    }

    /// Returns the promotion that opened a pull request.
    fn opener(&self, pull: &forge::Pull) -> Option<&Promotion> {
        self.promotions.values().find(|promotion| promotion.metadata.uid.as_ref() == Some(&pull.promotion))
    }

    /// Whether a promotion has this pull request, which is open: its own, or one that it took over.
    fn has_open(&self, number: i64) -> bool {
        let has_it = |status: &PromotionStatus| {
            status.phase == Some(Phase::Open) && status.pull_request.as_ref().is_some_and(|of| of.number == number)
        };
        self.promotions.values().filter_map(|promotion| promotion.status.as_ref()).any(has_it)
    }

    /// Returns a promotion whose phase is not that of its pull request.
    pub(super) fn not_as_outside(&self) -> Option<String> {
        use relaybook_api::promotion::PullRequestState::{Abandoned, Mergeable, Merged, Open};
        let forge = self.outside.forge();
        let wrong = self.promotions.values().find(|promotion| {
            let status = promotion.status.clone().unwrap_or_default();
            let Some(request) = status.pull_request else { return false };
            let pull = forge.pulls.iter().find(|pull| pull.number == request.number && !pull.is_deleted);
            let is_fine = match (status.phase, pull.map(|pull| pull.state)) {
                (Some(Phase::Open), state) => matches!(state, Some(Open | Mergeable)),
                (Some(Phase::Merged), state) => state == Some(Merged),
                (Some(Phase::Closed), state) => matches!(state, None | Some(Abandoned)),
                _ => true,
            };
            !is_fine
        });
        wrong.map(|promotion| format!("the phase is not that of the pull request: {promotion:?} {:?}", forge.pulls))
    }
}
