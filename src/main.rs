//! The program: one TLS provider for the whole process, the command line, the exit code.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    // kube and reqwest share it; installing it can only fail if it was installed before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    pennant::cli::Cli::parse().run()
}
