//! One replica: the real controllers, in a runtime whose clock only the simulation moves.
//!
//! In: the time until which it runs; kills, stops, freezes. Out: what the controllers do on the network, and whether they ended by themselves.

use std::time::Duration;

use clap::Parser;
use kube::Client;
use relaybook::app::{self, AppError};
use relaybook::options::Options;
use relaybook_clusters::Deadline;
use relaybook_simulation::clock;
use relaybook_simulation::service::Network;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::Layer as _;

/// The namespace of Relaybook.
pub const HOME: &str = "relaybook-system";

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

/// A replica, whether it runs or not.
pub struct Replica {
    number: usize,
    network: Network,
    running: Option<Running>,
    /// How much its wall clock is ahead, in milliseconds.
    pub ahead: i64,
    /// Whether its process gets no processor time.
    pub is_frozen: bool,
}

struct Running {
    runtime: Runtime,
    stop: CancellationToken,
    task: JoinHandle<Result<(), AppError>>,
}

impl Replica {
    /// Returns a replica that does not run.
    pub fn new(number: usize, network: Network) -> Self {
        Self { number, network, running: None, ahead: 0, is_frozen: false }
    }

    /// Whether its process exists.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Starts its process, unless it runs.
    pub fn start(&mut self, now: Duration) {
        if self.is_running() {
            return;
        }
        clock::show(now, self.ahead);
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
        let stop = CancellationToken::new();
        let (network, number, end) = (self.network.clone(), self.number, stop.clone());
        let (task,) = clock::within(&runtime, self.ahead, async move {
            let client = || Client::new(Deadline::HEAD.layer(network.connection(number)), "default");
            let control = app::control(options(number), client(), client(), end);
            (tokio::spawn(control),)
        });
        (self.running, self.is_frozen) = (Some(Running { runtime, stop, task }), false);
    }

    /// Ends its process at once, as SIGKILL does.
    pub fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.runtime.shutdown_background();
        }
    }

    /// Asks its process to end, as SIGTERM does.
    pub fn stop(&mut self) {
        self.running.iter().for_each(|running| running.stop.cancel());
    }

    /// Runs its process until this time. If it was frozen, its clocks jump first.
    ///
    /// # Errors
    ///
    /// If the process ended, but nobody had asked it to.
    pub fn run(&mut self, before: Duration, until: Duration) -> Result<(), String> {
        let Some(running) = self.running.as_mut().filter(|_| !self.is_frozen) else { return Ok(()) };
        let is_ended = clock::within(&running.runtime, self.ahead, async {
            let missed = before.saturating_sub(clock::since_first());
            if !missed.is_zero() {
                tokio::time::advance(missed).await;
            }
            tokio::time::sleep_until(clock::at(until)).await;
            running.task.is_finished()
        });
        if !is_ended {
            return Ok(());
        }
        let Some(Running { runtime, stop, task }) = self.running.take() else { return Ok(()) };
        let ended = clock::within(&runtime, self.ahead, task);
        runtime.shutdown_background();
        match ended {
            Ok(Ok(())) if stop.is_cancelled() => Ok(()),
            ended => Err(format!("replica {} ended: {ended:?}", self.number)),
        }
    }
}

fn options(number: usize) -> Options {
    let args = ["relaybook", "--allow-http", "--namespace", HOME, "--workers", "8"];
    let mut options = Line::try_parse_from(args).map_err(|error| error.to_string()).expect("valid options").options;
    options.identity = format!("replica-{number}");
    options
}
