//! `relaybook test`: sends a sample to the receiver of a Notification, which changes no real status or alert.
//!
//! In: the Notification, and what the test is about. Out: what the receiver answered. The controller sends it.

use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use kube::Api;

use super::complete;
use super::shared::exit::{Code, Ended};
use super::shared::{Place, named};
use crate::options::values::grace;
use relaybook_api::TransitionType;
use relaybook_api::notification::TestResult;
use relaybook_text::escaped;
use relaybook_tools::send_test::{About, TestError, lines, request, result};

#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// The Notification, as `NAME` or `notification/NAME`.
    #[arg(value_name = "NAME", value_parser = named::notification, add = complete::notifications())]
    notification: String,
    /// The Pipeline, as `NAME` or `NAMESPACE/NAME` [default: the first one with a matching trigger].
    #[arg(long, add = complete::pipelines())]
    pipeline: Option<String>,
    /// The target, as `relaybook status PIPELINE` shows it [default: the first one with a matching trigger].
    #[arg(long)]
    target: Option<String>,
    /// The type of the transition, such as Failed [default: the first one that a trigger matches].
    #[arg(long = "type", value_name = "TYPE", value_parser = type_)]
    type_: Option<TransitionType>,
    /// Send the test although the receiver cannot recognize it, or acts on each request.
    #[arg(short, long)]
    yes: bool,
    /// Do not wait for the result.
    #[arg(long)]
    no_wait: bool,
    /// How long to wait for the result.
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = grace)]
    timeout: Duration,
    #[command(flatten)]
    pub(super) place: Place,
}

fn type_(text: &str) -> Result<TransitionType, String> {
    TransitionType::parse(text).ok_or_else(|| {
        let all: Vec<_> = TransitionType::ALL.iter().map(|type_| type_.as_str()).collect();
        format!("must be one of {}", all.join(", "))
    })
}

/// Requests the test, waits for its result, and prints it.
pub(super) async fn test(args: TestArgs) -> anyhow::Result<()> {
    let TestArgs { notification, pipeline, target, type_, yes, no_wait, timeout, place } = args;
    let (client, namespace) = place.open().await?;
    let api = Api::namespaced(client, &namespace);
    let about = About { pipeline, target, type_, confirmed: yes };
    let mut out = std::io::stdout();
    let id = request(&api, &notification, about).await.map_err(ended)?;
    if no_wait {
        let place = format!("notification/{notification} -n {namespace}");
        return Ok(writeln!(out, "The test {id} is requested. Its result will be in status.lastTest of {place}.")?);
    }
    let last = result(&api, &notification, &id, timeout).await.map_err(ended)?;
    for line in lines(&notification, &last) {
        writeln!(out, "{}", escaped(&line))?;
    }
    match last.result {
        TestResult::Accepted => Ok(()),
        TestResult::Failed | TestResult::Refused => Err(Ended::quietly(Code::No).into()),
        TestResult::Unconfirmed => Err(Ended::new(Code::No, "to send it anyway, repeat the command with --yes").into()),
    }
}

fn ended(error: TestError) -> anyhow::Error {
    match error {
        TestError::Missing(_) => Ended::new(Code::Unanswered, error.to_string()).into(),
        TestError::Unanswered(..) | TestError::Replaced(_) => Ended::new(Code::TimeOver, error.to_string()).into(),
        other => other.into(),
    }
}
