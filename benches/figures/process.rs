//! What the kernel says of a process: processor time and memory.

use std::fs;
use std::time::Duration;

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// Processor time that a process and its threads, ended ones too, have used, in user and kernel mode; none once it is gone.
pub fn cpu(pid: u32) -> Duration {
    // `/proc/PID/stat` counts each mode in whole hundredths of a second, which is too coarse for what lasts a tenth.
    let pid = Pid::from_raw(pid.try_into().expect("the kernel's numbers fit"));
    clock_getcpuclockid(pid).and_then(clock_gettime).map_or(Duration::ZERO, Duration::from)
}

/// Processor time that this thread has used.
pub fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has one").into()
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
