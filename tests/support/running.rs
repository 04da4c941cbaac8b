//! A command of the program whose output a test reads while it runs: on a real terminal, or through a pipe.
//!
//! In: a kubeconfig, the arguments, and what is typed. Out: everything that the command has printed so far, its memory, and how it ends. It is
//! killed when dropped.

use std::fs::File;
use std::io::{Read, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::pty::openpty;

use super::reaper;
use super::relaybook::peak_memory;
use super::wait::DEADLINE;

/// How often the end of a command is checked, and how long its last output can need.
const CHECK: Duration = Duration::from_millis(50);
const REST: Duration = Duration::from_secs(2);

/// A command that runs.
pub struct Running {
    child: Child,
    /// The input of the terminal, if there is one.
    keyboard: Option<File>,
    output: mpsc::Receiver<Vec<u8>>,
    printed: Vec<u8>,
}

impl Running {
    /// Starts a command on a terminal, which is its stdin, stdout and stderr.
    pub fn on_terminal(kubeconfig: &Path, args: &[&str]) -> Self {
        let pty = openpty(None, None).expect("a terminal");
        let handle = |of: &OwnedFd| of.try_clone().expect("another handle");
        // Unlike those of `openpty`, these handles are not inherited by the processes that other tests start.
        let (master, slave) = (handle(&pty.master), handle(&pty.slave));
        drop(pty);
        let end = || Stdio::from(handle(&slave));
        let mut command = program(kubeconfig, args);
        command.stdin(end()).stdout(end()).stderr(end());
        let child = command.spawn().expect("relaybook starts");
        let keyboard = File::from(master);
        let screen = keyboard.try_clone().expect("another handle");
        Self::new(child, screen, Some(keyboard))
    }

    /// Starts a command without a terminal. Its stdout is a pipe.
    pub fn piped(kubeconfig: &Path, args: &[&str]) -> Self {
        let mut command = program(kubeconfig, args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("relaybook starts");
        let stdout = child.stdout.take().expect("it was asked for");
        Self::new(child, stdout, None)
    }

    fn new(child: Child, mut from: impl Read + Send + 'static, keyboard: Option<File>) -> Self {
        reaper::born(child.id());
        let (sender, output) = mpsc::channel();
        // It ends when no process can print any more.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keyboard, output, printed: Vec::new() }
    }

    /// Returns the process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the peak resident memory of the process, in KiB.
    pub fn peak_memory(&self) -> u64 {
        peak_memory(self.pid())
    }

    /// Waits until all that the command has printed satisfies `is`, and returns it.
    pub fn prints(&mut self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + DEADLINE;
        loop {
            let text = String::from_utf8_lossy(&self.printed).into_owned();
            if is(&text) {
                return text;
            }
            match self.output.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(more) => self.printed.extend(more),
                Err(why) => panic!("{what}: {why}: {text}"),
            }
        }
    }

    /// Types a line on the terminal.
    pub fn answer(&mut self, line: &str) {
        writeln!(self.keyboard.as_mut().expect("a terminal"), "{line}").expect("typed");
    }

    /// Waits for the end. Returns the exit status, and everything that the command has printed.
    pub fn ended(mut self) -> (ExitStatus, String) {
        let end = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            assert!(Instant::now() < end, "it does not end: {}", String::from_utf8_lossy(&self.printed));
            self.printed.extend(self.output.recv_timeout(CHECK).unwrap_or_default());
        };
        // What it has printed is read, because the channel is closed after it. Another process can have inherited the terminal.
        while let Ok(more) = self.output.recv_timeout(REST) {
            self.printed.extend(more);
        }
        (status, String::from_utf8_lossy(&self.printed).into_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        reaper::dead(self.child.id());
    }
}

fn program(kubeconfig: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relaybook"));
    command.args(args).env("KUBECONFIG", kubeconfig);
    command
}
