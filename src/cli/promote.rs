//! `relaybook promote`: requests that a revision goes to an environment.

use std::io::Write as _;

use clap::Args;
use kube::ResourceExt as _;

use super::shared::Place;
use super::shared::named::{self, of_promotion};
use relaybook_core::promotion::ask;
use relaybook_promotions::request::command;
use relaybook_text::escaped;
use relaybook_tools::preview::live;

#[derive(Debug, Args)]
pub(super) struct PromoteArgs {
    /// The Pipeline, as `NAME` or `pipeline/NAME`.
    #[arg(value_parser = named::pipeline)]
    pipeline: String,
    /// The environment to which the revision of the environment before it goes.
    environment: String,
    /// Fail if the environment before runs another revision than this one.
    #[arg(long)]
    revision: Option<String>,
    #[command(flatten)]
    pub(super) place: Place,
}

/// Creates the Promotion, and prints its name and what happens next.
pub(super) async fn promote(args: PromoteArgs) -> anyhow::Result<()> {
    let client = args.place.client().await?;
    let namespace = args.place.namespace(&client);
    let pipeline = live::pipeline(&client, &namespace, &args.pipeline).await?;
    let all = command::of_pipeline(&client, &pipeline).await?;
    let all: Vec<_> = all.iter().collect();
    let request = ask::promote(&pipeline, &args.environment, args.revision.as_deref(), &all)?;
    command::create(&client, &request.promotion).await?;
    let (name, spec) = (of_promotion(&request.promotion.name_any()), &request.promotion.spec);
    let (revision, from, to) = (escaped(&spec.revision), &spec.from, &spec.environment);
    let mut out = std::io::stdout();
    writeln!(out, "{name} in {namespace} is created: {revision} goes from {from} to {to}")?;
    if request.suspended {
        writeln!(out, "it waits until suspend is false in the promotion policy of {to}")?;
    }
    if request.manual {
        writeln!(out, "it waits for an approval: relaybook approve {} {to} -n {namespace}", args.pipeline)?;
    }
    Ok(())
}
