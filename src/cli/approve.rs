//! `relaybook approve`: approves a promotion.

use std::io::Write as _;

use clap::Args;
use kube::ResourceExt as _;

use super::shared::Place;
use super::shared::named::{self, of_promotion};
use relaybook_core::promotion::ask;
use relaybook_core::promotion::ask::Found;
use relaybook_promotions::request::command;
use relaybook_text::escaped;
use relaybook_tools::preview::live;

#[derive(Debug, Args)]
pub(super) struct ApproveArgs {
    /// The Pipeline, as `NAME` or `pipeline/NAME`.
    #[arg(value_parser = named::pipeline)]
    pipeline: String,
    /// The environment whose promotion waits for an approval.
    environment: String,
    /// Approve only if the promotion that waits is for this revision.
    #[arg(long)]
    revision: Option<String>,
    #[command(flatten)]
    pub(super) place: Place,
}

/// Approves the promotion that waits, and prints which one it is.
pub(super) async fn approve(args: ApproveArgs) -> anyhow::Result<()> {
    let client = args.place.client().await?;
    let namespace = args.place.namespace(&client);
    let pipeline = live::pipeline(&client, &namespace, &args.pipeline).await?;
    let all = command::of_pipeline(&client, &pipeline).await?;
    let all: Vec<_> = all.iter().collect();
    let (promotion, words) = match ask::approve(&pipeline, &args.environment, args.revision.as_deref(), &all)? {
        Found::Approved(promotion) => (promotion, "was approved before"),
        Found::Waits(promotion) => {
            command::approve(&client, promotion).await?;
            (promotion, "is approved")
        }
    };
    let (name, spec) = (of_promotion(&promotion.name_any()), &promotion.spec);
    let (revision, from, to) = (escaped(&spec.revision), &spec.from, &spec.environment);
    writeln!(std::io::stdout(), "{name} in {namespace} {words}: {revision} goes from {from} to {to}")?;
    Ok(())
}
