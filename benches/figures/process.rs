//! Processor time, memory and sockets of processes, from the kernel.

use std::fs;
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// Returns the processor time of a process in user and kernel mode, with all threads, including ended ones. Zero after its end.
pub fn cpu(pid: u32) -> Duration {
    // `/proc/PID/stat` has a resolution of 10 ms, which is too coarse for measurements of 100 ms.
    let pid = Pid::from_raw(pid.try_into().expect("the kernel's numbers fit"));
    clock_getcpuclockid(pid).and_then(clock_gettime).map_or(Duration::ZERO, Duration::from)
}

/// Returns the processor time of this thread.
pub fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has one").into()
}

/// Returns the process with this name and the same parent.
pub fn sibling(pid: u32, name: &str) -> Option<u32> {
    let parent = number(pid, 4);
    let all = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let named = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    all.filter(named).find(|pid| number(*pid, 4) == parent)
}

/// Returns the resident memory in MiB.
pub fn memory(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
}

/// Returns the number of open sockets.
pub fn sockets(pid: u32) -> usize {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs");
    let targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// Returns the idle time of all cores together since the start of the machine.
pub fn idle() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let idle = stat.lines().next().and_then(|cpu| cpu.split_whitespace().nth(4)?.parse().ok());
    Duration::from_millis(idle.unwrap_or(0_u64) * 10)
}

/// Returns a field of `/proc/PID/stat`, counted from 1. 0 after the end of the process.
fn number(pid: u32, field: usize) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The second field, the name, is in parentheses and may contain any character.
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split(' ').nth(field - 3).and_then(|n| n.parse().ok()).unwrap_or_default()
}
