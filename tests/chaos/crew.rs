//! The replicas of Pennant: killed, stopped, frozen, and started again when it is time.
//!
//! In: who is to be hit, and time that passes. Out: processes that run again, when they were down, and how often each ended by
//! itself.

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::pennant::Options;
use crate::support::{Pennant, World};

/// Names of the replicas; the first so many run.
pub const NAMES: [&str; 2] = ["pennant-0", "pennant-1"];
/// A process that has ended by itself is started again after this, as a kubelet would.
const AGAIN: Duration = Duration::from_millis(200);
/// So long after its start a process cannot have sent anything, and what it sent before it was killed has been read.
const AWAKE: Duration = Duration::from_millis(100);
/// So long after its start a process on a busy machine may not have begun to listen for signals.
const YOUNG: Duration = Duration::from_secs(2);
const SIGTERM: i32 = 15;
/// Between two looks at the processes.
const LOOK: Duration = Duration::from_millis(10);

/// All replicas.
pub struct Crew {
    replicas: Vec<Replica>,
    /// From each SIGKILL until the same replica was started again.
    pub kills: Vec<(Instant, Instant)>,
    /// When a replica went on that had stood still.
    pub frozen: Vec<Instant>,
    /// From when to when a replica stood still for so long that another took over.
    pub deposed: Vec<(Instant, Instant)>,
    /// When a process was killed, asked to stop, started or let go on.
    pub changes: Vec<Instant>,
    /// How processes ended that nobody had killed or asked to.
    pub ended: Vec<String>,
    /// What was done to them, and when.
    pub diary: Vec<(Instant, String)>,
}

struct Replica {
    pennant: Pennant,
    /// When it is started again; `None`: it runs.
    back: Option<Instant>,
    /// Its entry in `kills`, while it is down from one.
    killed: Option<usize>,
    asked: bool,
    started: Instant,
}

impl Crew {
    /// Starts so many replicas, with this way to the API server.
    pub async fn start(world: &World, count: usize, kubeconfig: PathBuf, program: PathBuf) -> Self {
        let mut replicas = Vec::new();
        for name in NAMES.iter().take(count) {
            let (kubeconfig, program) = (Some(kubeconfig.clone()), program.clone());
            let options = Options { pod: Some(name), kubeconfig, program, ..Options::of(world) };
            let pennant = Pennant::with(world, options).await;
            replicas.push(Replica { pennant, back: None, killed: None, asked: false, started: Instant::now() });
        }
        Self {
            replicas,
            kills: Vec::new(),
            frozen: Vec::new(),
            deposed: Vec::new(),
            changes: Vec::new(),
            ended: Vec::new(),
            diary: Vec::new(),
        }
    }

    /// Notes what happens now.
    pub fn note(&mut self, what: impl Into<String>) {
        self.diary.push((Instant::now(), what.into()));
    }

    /// Kills one that runs, and has it started again after a while.
    pub fn kill(&mut self, replica: usize, down: Duration) {
        let one = &mut self.replicas[replica];
        if one.back.is_some() {
            return;
        }
        let now = Instant::now();
        one.pennant.kill9();
        one.killed = Some(self.kills.len());
        one.back = Some(Instant::now() + down);
        one.asked = false;
        self.kills.push((now, now));
        self.changes.push(now);
        self.note(format!("{} is killed, for {down:?}", NAMES[replica]));
    }

    /// Asks one to stop; once it has, it is started again.
    pub fn stop(&mut self, replica: usize) {
        let one = &mut self.replicas[replica];
        if one.back.is_none() && one.pennant.has_ended().is_none() {
            one.pennant.ask_to_stop();
            one.asked = true;
            self.changes.push(Instant::now());
            self.note(format!("{} is asked to stop", NAMES[replica]));
        }
    }

    /// Stops one's clock.
    pub fn freeze(&mut self, replica: usize) {
        let one = &mut self.replicas[replica];
        if one.back.is_none() && one.pennant.has_ended().is_none() {
            one.pennant.freeze();
            self.note(format!("{} is frozen", NAMES[replica]));
        }
    }

    /// Lets one go on.
    pub fn thaw(&mut self, replica: usize) {
        let one = &mut self.replicas[replica];
        if one.back.is_none() && one.pennant.has_ended().is_none() {
            one.pennant.thaw();
            self.frozen.push(Instant::now());
            self.changes.push(Instant::now());
            self.note(format!("{} goes on", NAMES[replica]));
        }
    }

    /// Lets time pass, and starts who is to be started.
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
                    one.pennant.launch();
                    one.started = Instant::now();
                    self.changes.push(Instant::now());
                    one.back = None;
                    self.diary.push((Instant::now(), format!("{} is started", NAMES[number])));
                }
                Some(_) => {}
                None => {
                    let Some(status) = one.pennant.has_ended() else { continue };
                    self.diary.push((Instant::now(), format!("{} has ended: {status}", NAMES[number])));
                    // Asked before it could listen, it ends as any process does, with nothing to finish.
                    let unborn = status.signal() == Some(SIGTERM) && one.started.elapsed() < YOUNG;
                    if !one.asked || !(status.success() || unborn) {
                        self.ended.push(format!("{} ended by itself: {status}", NAMES[number]));
                    }
                    one.asked = false;
                    one.back = Some(Instant::now() + AGAIN);
                }
            }
        }
    }

    /// Stops one in an orderly way and starts it as another program, as a rolling update does; waits until it is ready.
    pub async fn replace(&mut self, replica: usize, program: PathBuf) {
        self.note(format!("{} becomes {}", NAMES[replica], program.display()));
        self.changes.push(Instant::now());
        let one = &mut self.replicas[replica];
        one.pennant.stop().await;
        one.pennant.become_program(program);
        one.pennant.launch();
        one.started = Instant::now();
        one.pennant.wait_ready().await;
    }

    /// Waits until all run and are ready.
    pub async fn ready(&mut self) {
        while self.replicas.iter().any(|one| one.back.is_some() || one.asked) {
            self.pass(LOOK).await;
        }
        for one in &mut self.replicas {
            one.pennant.wait_ready().await;
        }
    }

    /// Stops all in an orderly way and starts them again.
    pub async fn restart(&mut self) {
        for one in &mut self.replicas {
            one.pennant.restart().await;
        }
    }

    /// The logs of all, by name.
    pub fn logs(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.replicas.iter().zip(NAMES).map(|(one, name)| (name, one.pennant.log()))
    }
}
