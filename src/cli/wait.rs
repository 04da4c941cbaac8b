//! `relaybook wait`: waits until an environment runs a revision. For CI jobs, so the exit code is the answer.

use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::complete;
use super::shared::exit::{Code, Ended};
use super::shared::{Place, failure, named};
use crate::options::values::{grace, span};
use relaybook_api::{ObjectName, Pipeline, now};
use relaybook_tools::wait::{Answer, Asked, Event, Requested, Wait, WaitError, Watching};

/// Pause after a request that failed.
const PAUSE: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(super) struct WaitArgs {
    /// The Pipeline, as `NAME` or `pipeline/NAME`.
    #[arg(value_parser = named::pipeline, add = complete::pipelines())]
    pipeline: String,
    /// The environment [default: the last one].
    #[arg(add = complete::environments())]
    environment: Option<String>,
    /// The revision: all of it, one item of a list, the text after `@`, `:` or the last `/`, or at least 7 digits of a commit.
    #[arg(long, value_name = "REV", value_parser = revision)]
    revision: Requested,
    /// Accept the revision only if the environment came to run it during the wait, or within this time before it, such as 10m.
    #[arg(long, value_name = "DURATION", value_parser = before)]
    since: Option<Duration>,
    /// How long to wait, from 1s to 24h.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = grace)]
    timeout: Duration,
    /// How long a target must stay failed before the command ends.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = grace)]
    failed_for: Duration,
    /// Wait also until all notifications have read the change.
    #[arg(long)]
    notified: bool,
    #[command(flatten)]
    pub(super) place: Place,
}

fn revision(text: &str) -> Result<Requested, String> {
    Requested::new(text).ok_or_else(|| "must be a revision without spaces, such as 6.7.1 or 5f3d2c1".to_owned())
}

fn before(text: &str) -> Result<Duration, String> {
    Ok(Duration::try_from(span(text)?).unwrap_or_default())
}

/// Waits, and prints the answer as the last line on stdout. What happens until then is on stderr.
pub(super) async fn wait(args: WaitArgs) -> anyhow::Result<()> {
    let WaitArgs { pipeline, environment, revision, since, timeout, failed_for, notified, place } = args;
    let (client, namespace) = place.open().await?;
    let name = ObjectName::new(namespace, pipeline);
    let mut watching = Watching::new(&client, &name);
    let mut wait = Wait::new(Asked { pipeline: name.clone(), environment, revision, since, failed_for, notified });
    let (mut last, mut said) = (None::<Box<Pipeline>>, String::new());
    let mut why = "the API server does not answer".to_owned();
    let end = Instant::now() + timeout;
    loop {
        let again = wait.again(now()).map_or(end, |left| end.min(Instant::now() + left));
        let is_answered = match timeout_at(again, watching.read()).await {
            Ok(Ok(Event::Pipeline(pipeline))) => {
                last = Some(pipeline);
                true
            }
            Ok(Ok(Event::Deleted)) => return Err(ended(&WaitError::Deleted(name)).into()),
            Ok(Err(error)) if last.is_none() || failure::is_final(&error) => return Err(error.into()),
            Ok(Err(error)) => {
                why = failure::said(&error, &place.access).await;
                report(format!("relaybook: {why}; trying again"), &mut said);
                sleep_until(again.min(Instant::now() + PAUSE)).await;
                false
            }
            // The time is over, or a target has been failing for long enough.
            Err(_) => true,
        };
        if let Some(pipeline) = last.as_deref().filter(|_| is_answered) {
            let answer = wait.step(pipeline, now()).map_err(|error| ended(&error))?;
            let line = wait.line(&answer);
            match answer {
                Answer::Runs { .. } => return Ok(writeln!(std::io::stdout(), "{line}")?),
                Answer::Failed { .. } => return no(&line, Code::No),
                Answer::Replaced { .. } => return no(&line, Code::Replaced),
                Answer::NotYet { why: reason, .. } => why = reason,
            }
            report(line, &mut said);
        }
        if Instant::now() >= end {
            return no(&wait.over(&why, timeout), Code::TimeOver);
        }
    }
}

/// Prints the answer, and ends the command with this code, also if nobody reads the answer.
fn no(line: &str, code: Code) -> anyhow::Result<()> {
    let _ = writeln!(std::io::stdout(), "{line}");
    Err(Ended::quietly(code).into())
}

/// Prints what happens, if it is new. It does not matter whether somebody reads it.
fn report(line: String, said: &mut String) {
    if line != *said {
        let _ = writeln!(std::io::stderr(), "{line}");
        *said = line;
    }
}

fn ended(error: &WaitError) -> Ended {
    let code = if error.is_usage() { Code::Usage } else { Code::Unanswered };
    Ended::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        wait: WaitArgs,
    }

    fn parsed(args: &[&str]) -> Result<WaitArgs, clap::Error> {
        Command::try_parse_from(std::iter::once(&"wait").chain(args)).map(|command| command.wait)
    }

    #[test]
    fn arguments_have_defaults_and_limits() {
        let args = parsed(&["pipeline/web", "--revision", "6.7.1"]).unwrap();
        let (minutes, seconds) = (Duration::from_mins(15), Duration::from_secs(30));
        assert_eq!((args.pipeline.as_str(), args.timeout, args.failed_for), ("web", minutes, seconds));
        assert_eq!((args.environment, args.since, args.notified), (None, None, false));
        let args = parsed(&["web", "prod", "--revision", "5f3d2c1", "--since", "7d"]).unwrap();
        assert_eq!((args.environment.as_deref(), args.since), (Some("prod"), Some(Duration::from_hours(168))));
        for bad in [
            &["web"][..],
            &["web", "--revision", ""],
            &["web", "--revision", "a b"],
            &["web", "--revision", "1", "--timeout", "0s"],
            &["web", "--revision", "1", "--timeout", "2d"],
            &["web", "--revision", "1", "--since", "soon"],
            &["delivery/web", "--revision", "1"],
        ] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }
}
