//! Describes the machine and the versions, so that results can be compared.

use std::fs::read_to_string;
use std::process::Command;

use kube::Client;

/// Returns the machine, the versions, the commit and the command.
pub async fn describe(client: Option<&Client>) -> String {
    let kubernetes = match client {
        Some(client) => client.apiserver_version().await.expect("the API server says its version").git_version,
        None => "not used".to_owned(),
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = field("/proc/cpuinfo", "model name");
    let memory = field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse().map_or(0, |kib: u64| kib >> 20);
    let kernel = read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let commit = output("git", &["describe", "--always", "--dirty"]);
    let command: Vec<_> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    format!(
        "Machine: {cores} cores of {cpu}, {memory} GiB, Linux {}; load average at the end {}.\n\
         Versions: relaybook {} at {commit}, Kubernetes {kubernetes}, {}.\n\
         Command: cargo bench --bench figures -- {}\n",
        kernel.trim(),
        load(),
        env!("CARGO_PKG_VERSION"),
        output("rustc", &["--version"]),
        command.join(" "),
    )
}

/// Returns the load average of the last minute, because other work on the machine affects every figure.
pub fn load() -> String {
    read_to_string("/proc/loadavg").unwrap_or_default().split(' ').next().unwrap_or_default().to_owned()
}

fn field(file: &str, name: &str) -> String {
    let text = read_to_string(file).unwrap_or_default();
    let value = text.lines().find(|l| l.starts_with(name)).and_then(|l| l.split_once(':'));
    value.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map_or_else(|_| "unknown".to_owned(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}
