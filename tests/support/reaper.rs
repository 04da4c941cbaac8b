//! Sees to it that no child outlives the tests, also when these are killed and nothing is dropped.
//!
//! A shell reads from a pipe which processes there are. The pipe ends when the test process does, however that happens; what
//! has not been signed off by then is killed.

use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Signals of a terminal go to the shell, too: it must live until the pipe ends.
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

#[allow(clippy::zombie_processes, reason = "it outlives whoever could wait for it")]
static REAPER: LazyLock<Mutex<ChildStdin>> = LazyLock::new(|| {
    let mut shell = Command::new("sh").args(["-c", SCRIPT]).stdin(Stdio::piped()).spawn().expect("sh starts");
    Mutex::new(shell.stdin.take().expect("it was asked for"))
});

/// Signs a process on: it is killed should the tests end before it.
pub fn born(pid: u32) {
    say('+', pid);
}

/// Signs a process off, once it has been waited for.
pub fn dead(pid: u32) {
    say('-', pid);
}

fn say(sign: char, pid: u32) {
    let mut pipe = REAPER.lock().unwrap_or_else(PoisonError::into_inner);
    writeln!(pipe, "{sign} {pid}").expect("the reaper listens");
}
