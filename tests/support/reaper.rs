//! Kills child processes that would outlive the tests, even if the tests are killed and nothing is dropped.
//!
//! A shell reads the list of processes from a pipe. The pipe is closed when the test process ends, for whatever reason. The
//! shell then kills the processes that were not signed off.

use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Ignores the signals of a terminal, which also reach the shell: it must run until the pipe is closed.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
alive=' '
while read -r sign pid; do
    case $sign in
    +) alive="$alive$pid " ;;
    -) alive=$(echo "$alive" | sed "s/ $pid / /") ;;
    esac
done
for pid in $alive; do kill -9 "$pid" 2>/dev/null; done
"#;

#[allow(clippy::zombie_processes, reason = "it outlives every process that could wait for it")]
static REAPER: LazyLock<Mutex<ChildStdin>> = LazyLock::new(|| {
    let mut shell = Command::new("sh").args(["-c", SCRIPT]).stdin(Stdio::piped()).spawn().expect("sh starts");
    Mutex::new(shell.stdin.take().expect("it was asked for"))
});

/// Registers a process: it is killed if the tests end before it.
pub fn born(pid: u32) {
    say('+', pid);
}

/// Signs a process off after it has been waited for.
pub fn dead(pid: u32) {
    say('-', pid);
}

fn say(sign: char, pid: u32) {
    let mut pipe = REAPER.lock().unwrap_or_else(PoisonError::into_inner);
    writeln!(pipe, "{sign} {pid}").expect("the reaper listens");
}
