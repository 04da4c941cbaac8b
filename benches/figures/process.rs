//! What the kernel says of a process: processor time and memory.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time that a process has used, in user and kernel mode.
pub fn cpu(pid: u32) -> Duration {
    // The kernel counts in hundredths of a second, whatever it ticks in (USER_HZ, proc_pid_stat(5)).
    Duration::from_millis((number(pid, 14) + number(pid, 15)) * 10)
}

/// Processor time that this thread has used.
pub fn thread_cpu() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("a time span")
}

/// The process of this name that has the same parent.
pub fn sibling(pid: u32, name: &str) -> Option<u32> {
    let parent = number(pid, 4);
    let all = fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let named = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name);
    all.filter(named).find(|pid| number(*pid, 4) == parent)
}

/// Resident memory in MiB.
pub fn memory(pid: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
}

/// Time that all cores together had nothing to do, since the machine was started.
pub fn idle() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let idle = stat.lines().next().and_then(|cpu| cpu.split_whitespace().nth(4)?.parse().ok());
    Duration::from_millis(idle.unwrap_or(0_u64) * 10)
}

/// A field of `/proc/PID/stat`, counted from 1; 0 once the process is gone.
fn number(pid: u32, field: usize) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The second field, the name, is in parentheses and may hold anything.
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split(' ').nth(field - 3).and_then(|n| n.parse().ok()).unwrap_or_default()
}
