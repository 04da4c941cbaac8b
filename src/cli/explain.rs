//! `relaybook explain`: the effective settings of a pipeline's targets, and the layer that set each of them. Also why a revision is or is not
//! promoted to each environment.

use std::io::Write as _;

use clap::{Args, ValueEnum};
use kube::Client;
use serde::Serialize;

use super::complete;
use super::shared::Place;
use super::shared::named;
use super::shared::running::{Running, WithSettings};
use relaybook_api::Pipeline;
use relaybook_api::conditions::{Condition, HOOKS_READY};
use relaybook_tools::preview::{
    Asked, Explained, ExplainedPromotion, Known, comment, explain as explain_all, live, promotes,
    promotions as explain_promotions,
};

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The Pipeline, as `NAME` or `pipeline/NAME`.
    #[arg(value_parser = named::pipeline, add = complete::pipelines())]
    pipeline: String,
    /// A notification of the Pipeline, as `NAME` or `notification/NAME` [default: all].
    #[arg(value_parser = named::notification, add = complete::notifications())]
    notification: Option<String>,
    /// One target, as `ENVIRONMENT/CLUSTER/NAMESPACE`, with `/APP` if the target names another application [default: all].
    #[arg(long)]
    target: Option<String>,
    /// The output format.
    #[arg(short, long, default_value = "yaml")]
    output: Output,
    #[command(flatten)]
    pub(super) place: Place,
    #[command(flatten)]
    running: Running,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// The effective notification, with the layer beside each field.
    Yaml,
    /// A list of `{notification, targets, subjects, spec, fields, lastSentTime, lastSent, unobserved, notReady, problem, judgedBy}`, and of
    /// `{environment, from, strategy, manual, after, timeout, suspend, state, message, promotion}` if the pipeline promotes. Also `{hooks}` with
    /// the condition `HooksReady`, if requests to its hooks cannot be signed.
    Json,
}

/// One object of the JSON output.
#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Notification(WithSettings<'a, Explained>),
    Promotion(&'a ExplainedPromotion),
    Hooks {
        /// The message of the condition.
        hooks: &'a Condition,
    },
}

/// Reads the pipeline with what its status says about its hooks, its promotions, the Notifications of its namespace, the published configuration
/// of the controller and the global configuration. It reads no Secrets.
pub(super) async fn explain(args: ExplainArgs) -> anyhow::Result<()> {
    let ExplainArgs { place, running, .. } = &args;
    let (client, namespace) = place.open().await?;
    let pipeline = live::pipeline(&client, &namespace, &args.pipeline).await?;
    let settings = running.resolve(Some(&client), &namespace).await?;
    let known = Known {
        notifications: &live::notifications_of(&client, &pipeline).await?,
        global: &settings.global(&client).await?,
        config_map: &settings.config_map(),
        cluster: &settings.cluster_name,
        allow_http: settings.allow_http,
        egress: settings.egress.as_ref(),
    };
    let asked = Asked { notification: args.notification.as_deref(), target: args.target.as_deref() };
    let all = explain_all(&pipeline, &known, asked)?;
    // A notification or a target that the user names has nothing to do with promotions.
    let is_whole = asked.notification.is_none() && asked.target.is_none();
    let promoted = if is_whole { promoted(&client, &pipeline).await? } else { Vec::new() };
    settings.warn_if_idle(&client).await?;
    let mut conditions = pipeline.status.iter().flat_map(|status| &status.conditions);
    let hooks = conditions.find(|condition| is_whole && condition.type_ == HOOKS_READY);
    let mut out = std::io::stdout().lock();
    match args.output {
        Output::Json => {
            let notifications = all.iter().map(|one| Item::Notification(WithSettings { one, judged_by: &settings }));
            let promotions = promoted.iter().map(Item::Promotion);
            let list: Vec<_> = notifications.chain(promotions).chain(hooks.map(|hooks| Item::Hooks { hooks })).collect();
            writeln!(out, "{}", serde_json::to_string_pretty(&list)?)?;
        }
        Output::Yaml => {
            let promotions = promoted.iter().map(ExplainedPromotion::line);
            let hooks = hooks.map(|condition| comment(&format!("# hooks: {}", condition.message)));
            let lines: String = promotions.chain(hooks).map(|line| line + "\n").collect();
            let texts: Vec<_> = all.iter().map(Explained::text).collect();
            write!(out, "{}{lines}{}", settings.line(), texts.join("---\n"))?;
        }
    }
    Ok(out.flush()?)
}

/// Explains the promotions of a pipeline. If they cannot be read, a message on stderr reports it, and the status of the pipeline is used.
async fn promoted(client: &Client, pipeline: &Pipeline) -> anyhow::Result<Vec<ExplainedPromotion>> {
    if !promotes(pipeline) {
        return Ok(Vec::new());
    }
    match live::promotions(client, pipeline).await? {
        Ok(all) => Ok(explain_promotions(pipeline, Some(&all))),
        Err(why) => {
            writeln!(std::io::stderr(), "relaybook: {why}; the output shows only what the status of the pipeline has")?;
            Ok(explain_promotions(pipeline, None))
        }
    }
}
