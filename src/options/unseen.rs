//! A parser for values that may contain a password. clap's own errors would repeat a value that they cannot parse.

use std::ffi::OsStr;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command};

/// Parses a value of a flag or variable. Its errors do not repeat the value.
pub(super) struct Unseen<T> {
    name: &'static str,
    of: PhantomData<fn() -> T>,
}

impl<T> Unseen<T> {
    /// Creates the parser for this flag and its variable.
    pub(super) const fn of(name: &'static str) -> Self {
        Self { name, of: PhantomData }
    }
}

impl<T> Clone for Unseen<T> {
    fn clone(&self) -> Self {
        Self::of(self.name)
    }
}

impl<T> TypedValueParser for Unseen<T>
where
    T: FromStr<Err: fmt::Display> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, value: &OsStr) -> Result<T, clap::Error> {
        let complain = |words: String| {
            clap::Error::raw(ErrorKind::ValueValidation, format!("{} {words}\n", self.name)).with_cmd(command)
        };
        let text = value.to_str().ok_or_else(|| complain("is not UTF-8".to_owned()))?;
        text.parse().map_err(|error: T::Err| complain(error.to_string()))
    }
}
