//! `relaybook promote`: requests that a revision goes to an environment. `relaybook approve`: approves a promotion.

use std::io::Write as _;

use clap::Args;
use kube::{Client, ResourceExt as _};

use super::complete;
use super::shared::Place;
use super::shared::named::{self, of_promotion};
use relaybook_api::{Pipeline, Promotion};
use relaybook_core::promotion::ask::{self, Found};
use relaybook_promotions::request::command;
use relaybook_text::escaped;
use relaybook_tools::preview::live;

#[derive(Debug, Args)]
pub(super) struct PromoteArgs {
    /// The Pipeline, as `NAME` or `pipeline/NAME`.
    #[arg(value_parser = named::pipeline, add = complete::pipelines())]
    pipeline: String,
    /// The environment to which the revision of the environment before it goes.
    #[arg(add = complete::environments())]
    environment: String,
    /// Fail if the environment before runs another revision than this one.
    #[arg(long)]
    revision: Option<String>,
    #[command(flatten)]
    pub(super) place: Place,
}

#[derive(Debug, Args)]
pub(super) struct ApproveArgs {
    /// The Pipeline, as `NAME` or `pipeline/NAME`.
    #[arg(value_parser = named::pipeline, add = complete::pipelines())]
    pipeline: String,
    /// The environment whose promotion waits for an approval.
    #[arg(add = complete::environments())]
    environment: String,
    /// Approve only if the promotion that waits is for this revision.
    #[arg(long)]
    revision: Option<String>,
    #[command(flatten)]
    pub(super) place: Place,
}

/// Creates the Promotion, and prints its name and what happens next.
pub(super) async fn promote(args: PromoteArgs) -> anyhow::Result<()> {
    let (client, namespace) = args.place.open().await?;
    let (pipeline, all) = read(&client, &namespace, &args.pipeline).await?;
    let all: Vec<_> = all.iter().collect();
    let request = ask::promote(&pipeline, &args.environment, args.revision.as_deref(), &all)?;
    command::create(&client, &request.promotion).await?;
    print(&request.promotion, &namespace, "is created")?;
    let (mut out, to) = (std::io::stdout(), &request.promotion.spec.environment);
    if request.suspended {
        writeln!(out, "it waits until suspend is false in the promotion policy of {to}")?;
    }
    if request.manual {
        writeln!(out, "it waits for an approval: relaybook approve {} {to} -n {namespace}", args.pipeline)?;
    }
    Ok(())
}

/// Approves the promotion that waits, and prints which one it is.
pub(super) async fn approve(args: ApproveArgs) -> anyhow::Result<()> {
    let (client, namespace) = args.place.open().await?;
    let (pipeline, all) = read(&client, &namespace, &args.pipeline).await?;
    let all: Vec<_> = all.iter().collect();
    match ask::approve(&pipeline, &args.environment, args.revision.as_deref(), &all)? {
        Found::Approved(promotion) => print(promotion, &namespace, "was approved before"),
        Found::Waits(promotion) => {
            command::approve(&client, promotion).await?;
            print(promotion, &namespace, "is approved")
        }
    }
}

/// Reads a pipeline and its promotions.
async fn read(client: &Client, namespace: &str, pipeline: &str) -> anyhow::Result<(Pipeline, Vec<Promotion>)> {
    let pipeline = live::pipeline(client, namespace, pipeline).await?;
    let all = command::of_pipeline(client, &pipeline).await?;
    Ok((pipeline, all))
}

/// Prints the name of a promotion, what was done with it, and what it does.
fn print(promotion: &Promotion, namespace: &str, words: &str) -> anyhow::Result<()> {
    let (name, spec) = (of_promotion(&promotion.name_any()), &promotion.spec);
    let (revision, from, to) = (escaped(&spec.revision), &spec.from, &spec.environment);
    Ok(writeln!(std::io::stdout(), "{name} in {namespace} {words}: {revision} goes from {from} to {to}")?)
}
