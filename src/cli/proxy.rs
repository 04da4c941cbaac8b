//! The URL of a proxy on the command line or in the environment: it may hold a password, and clap's own errors repeat the value.

use std::ffi::OsStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command};

use crate::app::Proxy;

/// Reads it, and complains without saying what it read.
#[derive(Clone)]
pub(super) struct Parser;

impl TypedValueParser for Parser {
    type Value = Proxy;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, value: &OsStr) -> Result<Proxy, clap::Error> {
        let complain = |words: String| {
            clap::Error::raw(ErrorKind::ValueValidation, format!("--proxy (or PENNANT_PROXY) {words}\n")).with_cmd(command)
        };
        let text = value.to_str().ok_or_else(|| complain("is not UTF-8".to_owned()))?;
        text.parse().map_err(|error: <Proxy as std::str::FromStr>::Err| complain(error.to_string()))
    }
}
