//! The replicas of Relaybook: killed, stopped, paused, and started again.
//!
//! In: the replica to hit, and the passing of time. Out: restarted processes, the times when each was down, and the exits
//! that nothing had requested.

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::relaybook::Options;
use crate::support::{Relaybook, World};

/// Names of the replicas. A run with fewer replicas uses the first ones.
pub const NAMES: [&str; 3] = ["relaybook-0", "relaybook-1", "relaybook-2"];
/// Delay before a process that has ended by itself is started again, as a kubelet would do.
const AGAIN: Duration = Duration::from_millis(200);
/// Time after a start in which the process cannot have sent a request, and after which all requests of the killed process have
/// been read.
const AWAKE: Duration = Duration::from_millis(500);
const SIGTERM: i32 = 15;
/// Interval between checks of the processes.
const LOOK: Duration = Duration::from_millis(10);

/// All replicas.
pub struct Crew {
    replicas: Vec<Replica>,
    /// Time of each SIGKILL, and of the next start of the same replica.
    pub kills: Vec<(Instant, Instant)>,
    /// When a paused replica was resumed.
    pub frozen: Vec<Instant>,
    /// Start and end of each pause that was so long that another replica became the leader.
    pub deposed: Vec<(Instant, Instant)>,
    /// When a process was killed, asked to stop, started or resumed.
    pub changes: Vec<Instant>,
    /// Exits of processes that were neither killed nor asked to stop.
    pub ended: Vec<String>,
    /// Whether processes may end by themselves, because the CRDs are those of another version.
    may_end: bool,
    /// All events, for the diagnosis of failures.
    pub diary: Vec<(Instant, String)>,
}

struct Replica {
    relaybook: Relaybook,
    /// Time of the next start; `None`: running.
    back: Option<Instant>,
    /// Its entry in `kills`, while it is down after a kill.
    killed: Option<usize>,
    asked: bool,
    started: Instant,
}

impl Crew {
    /// Starts this many replicas, with this kubeconfig, which watch these namespaces.
    pub async fn start(world: &World, watch: &[String], count: usize, kubeconfig: PathBuf, program: PathBuf) -> Self {
        let mut replicas = Vec::new();
        for name in NAMES.iter().take(count) {
            let (kubeconfig, program) = (Some(kubeconfig.clone()), program.clone());
            let options = Options { pod: Some(name), kubeconfig, program, watch: watch.to_vec(), ..Options::of(world) };
            let relaybook = Relaybook::with(world, options).await;
            replicas.push(Replica { relaybook, back: None, killed: None, asked: false, started: Instant::now() });
        }
        Self {
            replicas,
            kills: Vec::new(),
            frozen: Vec::new(),
            deposed: Vec::new(),
            changes: Vec::new(),
            ended: Vec::new(),
            may_end: false,
            diary: Vec::new(),
        }
    }

    /// Adds an event to the diary.
    pub fn note(&mut self, what: impl Into<String>) {
        self.diary.push((Instant::now(), what.into()));
    }

    /// Kills a replica if it is running, and schedules its next start.
    pub fn kill(&mut self, replica: usize, down: Duration) {
        let one = &mut self.replicas[replica];
        if one.back.is_some() {
            return;
        }
        let now = Instant::now();
        one.relaybook.kill9();
        one.killed = Some(self.kills.len());
        one.back = Some(Instant::now() + down);
        one.asked = false;
        self.kills.push((now, now));
        self.changes.push(now);
        self.note(format!("{} is killed, for {down:?}", NAMES[replica]));
    }

    /// Asks a replica to stop. It is started again after it has ended.
    pub fn stop(&mut self, replica: usize) {
        let one = &mut self.replicas[replica];
        if one.back.is_none() && one.relaybook.has_ended().is_none() {
            one.relaybook.ask_to_stop();
            one.asked = true;
            self.changes.push(Instant::now());
            self.note(format!("{} is asked to stop", NAMES[replica]));
        }
    }

    /// Returns the times at which a replica could not process the answer to a request: kills, lost leaderships, and the ends of pauses. During
    /// a pause, a request can wait for longer than its timeout. Each can repeat one request of a lane.
    pub fn interruptions(&self) -> Vec<(Instant, Instant)> {
        let paused = self.frozen.iter().map(|end| (*end, *end));
        self.kills.iter().chain(&self.deposed).copied().chain(paused).collect()
    }

    /// Pauses a replica.
    pub fn freeze(&mut self, replica: usize) {
        let one = &mut self.replicas[replica];
        if one.back.is_none() && one.relaybook.has_ended().is_none() {
            one.relaybook.freeze();
            self.note(format!("{} is frozen", NAMES[replica]));
        }
    }

    /// Resumes a replica.
    pub fn thaw(&mut self, replica: usize) {
        let one = &mut self.replicas[replica];
        if one.back.is_none() && one.relaybook.has_ended().is_none() {
            // The process can send a request before the command that resumes it has ended.
            self.frozen.push(Instant::now());
            one.relaybook.thaw();
            self.changes.push(Instant::now());
            self.note(format!("{} goes on", NAMES[replica]));
        }
    }

    /// Waits, and meanwhile starts the replicas that are due.
    pub async fn pass(&mut self, span: Duration) {
        let until = Instant::now() + span;
        loop {
            self.tend();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }

    fn tend(&mut self) {
        for (one, number) in self.replicas.iter_mut().zip(0..) {
            match one.back {
                Some(at) if Instant::now() >= at => {
                    if let Some(kill) = one.killed.take() {
                        self.kills[kill].1 = Instant::now() + AWAKE;
                    }
                    one.relaybook.launch();
                    one.started = Instant::now();
                    self.changes.push(Instant::now());
                    one.back = None;
                    self.diary.push((Instant::now(), format!("{} is started", NAMES[number])));
                }
                Some(_) => {}
                None => {
                    let Some(status) = one.relaybook.has_ended() else { continue };
                    self.diary.push((Instant::now(), format!("{} has ended: {status}", NAMES[number])));
                    // SIGTERM kills a process that does not handle signals yet. It has nothing to finish.
                    let unborn = status.signal() == Some(SIGTERM) && !one.relaybook.listens();
                    if !self.may_end && (!one.asked || !(status.success() || unborn)) {
                        self.ended.push(format!("{} ended by itself: {status}", NAMES[number]));
                    }
                    one.asked = false;
                    one.back = Some(Instant::now() + AGAIN);
                }
            }
        }
    }

    /// Sets whether processes may end by themselves.
    pub fn may_end(&mut self, may_end: bool) {
        self.may_end = may_end;
    }

    /// Checks that each process has ended since this time, or was started after it.
    pub fn check_ended(&mut self, since: Instant) {
        for (one, name) in self.replicas.iter().zip(NAMES) {
            if one.started < since && one.back.is_none() {
                self.ended.push(format!("{name} did not end, although the CRDs are those of another version"));
            }
        }
    }

    /// Stops a replica with SIGTERM, starts it as another program, as a rolling update does, and waits until it is ready.
    pub async fn replace(&mut self, replica: usize, program: PathBuf) {
        self.note(format!("{} becomes {}", NAMES[replica], program.display()));
        self.changes.push(Instant::now());
        let one = &mut self.replicas[replica];
        if one.back.take().is_none() {
            one.relaybook.stop().await;
        }
        one.relaybook.become_program(program);
        one.relaybook.launch();
        one.started = Instant::now();
        self.changes.push(one.started);
        one.relaybook.wait_ready().await;
    }

    /// Waits until all replicas are running and ready.
    pub async fn ready(&mut self) {
        while self.replicas.iter().any(|one| one.back.is_some() || one.asked) {
            self.pass(LOOK).await;
        }
        for one in &mut self.replicas {
            one.relaybook.wait_ready().await;
        }
    }

    /// Stops all replicas with SIGTERM and starts them again, one after the other.
    pub async fn restart(&mut self) {
        for one in &mut self.replicas {
            self.changes.push(Instant::now());
            one.relaybook.stop().await;
            self.changes.push(Instant::now());
            one.relaybook.start_again().await;
        }
    }

    /// Returns the logs of all replicas, by name.
    pub fn logs(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.replicas.iter().zip(NAMES).map(|(one, name)| (name, one.relaybook.log()))
    }
}
