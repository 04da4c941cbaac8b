//! The program: one TLS provider for the whole process, the command line, the exit code.

use std::process::ExitCode;

use clap::Parser as _;

/// A fifth of Pennant's processor time for a delivery was the C library's allocator, which is slower still in a static binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // kube and reqwest share it; installing it can only fail if it was installed before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    pennant::cli::Cli::parse().run()
}
