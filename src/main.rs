//! The program: it installs one TLS provider for the whole process, runs the command line and returns the exit code.

use std::process::ExitCode;

/// The allocator of the C library used a fifth of the CPU time of a delivery. In a static binary it is slower still.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // kube and reqwest share it. The call can fail only if a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    relaybook::cli::Cli::of_process().run()
}
