//! `relaybook suspend` and `relaybook resume`: hold the messages of a Notification or the promotions of a Pipeline, and let them continue.
//!
//! In: what the person names. Out: one field of one object. With `--drop`, the pending deliveries of the Notification are deleted first.

mod dropped;
mod site;

use std::io::{self, IsTerminal as _, Write as _};

use clap::Args;
use kube::api::ObjectMeta;
use kube::{Api, ResourceExt as _};

use super::shared::exit::{Code, Ended};
use super::shared::named::{self, Suspendable};
use super::shared::{Place, failure};
use relaybook_api::{Notification, Pipeline, now};
use relaybook_runtime::tenure::Unowned;
use relaybook_tools::preview::live;
use relaybook_tools::suspend::{Verb, is_suspended, of_notification, owner, promotions, words};
use site::Site;

/// Maximum number of attempts to change an object that others change at the same time.
const TRIES: u32 = 5;

#[derive(Debug, Args)]
pub(super) struct SuspendArgs {
    /// What to suspend: a Notification, as `NAME` or `notification/NAME`, or the promotions of a Pipeline, as `promotions/PIPELINE`.
    #[arg(value_name = "NAME", value_parser = named::suspendable)]
    what: Suspendable,
    /// Only promotions to this environment. It must have a promotion policy of its own.
    environment: Option<String>,
    #[command(flatten)]
    pub(super) place: Place,
}

#[derive(Debug, Args)]
pub(super) struct ResumeArgs {
    /// What to resume: a Notification, as `NAME` or `notification/NAME`, or the promotions of a Pipeline, as `promotions/PIPELINE`.
    #[arg(value_name = "NAME", value_parser = named::suspendable)]
    what: Suspendable,
    /// Only promotions to this environment. It must have a promotion policy of its own.
    environment: Option<String>,
    /// Do not ask before messages are sent or deleted.
    #[arg(short, long)]
    yes: bool,
    /// First delete the pending deliveries of the Notification. They are never sent, and the audit no longer shows them.
    #[arg(long = "drop")]
    drops: bool,
    #[command(flatten)]
    pub(super) place: Place,
}

/// An object cannot be changed.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be {done}")]
struct ChangeError {
    what: String,
    done: &'static str,
    source: Box<kube::Error>,
}

/// Suspends, and prints how many messages wait.
pub(super) async fn suspend(args: SuspendArgs) -> anyhow::Result<()> {
    match args.what {
        Suspendable::Notification(name) => {
            refuse_environment(args.environment.as_deref())?;
            let site = Site::open(&args.place).await?;
            let notification = site.notification(&name).await?;
            suspend_notification(&site, notification).await
        }
        Suspendable::Promotions(pipeline) => {
            change_promotions(&args.place, &pipeline, args.environment.as_deref(), Verb::Suspend).await
        }
    }
}

/// Resumes, after it has asked.
pub(super) async fn resume(args: ResumeArgs) -> anyhow::Result<()> {
    match args.what {
        Suspendable::Notification(name) => {
            refuse_environment(args.environment.as_deref())?;
            let site = Site::open(&args.place).await?;
            let notification = site.notification(&name).await?;
            Box::pin(resume_notification(&site, notification, args.drops, args.yes)).await
        }
        Suspendable::Promotions(_) if args.drops => Err(usage("--drop is only for a Notification; leave it out")),
        Suspendable::Promotions(pipeline) => {
            change_promotions(&args.place, &pipeline, args.environment.as_deref(), Verb::Resume).await
        }
    }
}

fn refuse_environment(environment: Option<&str>) -> anyhow::Result<()> {
    match environment {
        Some(_) => Err(usage("an environment is only for promotions/PIPELINE; leave it out, or write promotions/PIPELINE")),
        None => Ok(()),
    }
}

fn usage(text: &str) -> anyhow::Error {
    Ended::new(Code::Usage, text).into()
}

async fn suspend_notification(site: &Site<'_>, notification: Notification) -> anyhow::Result<()> {
    let (name, mut out) = (notification.name_any(), io::stdout());
    let Some(changed) = change(site, notification, Verb::Suspend).await? else {
        return Ok(writeln!(out, "{name} is already suspended")?);
    };
    let waiting = match site.pending(&changed).await {
        Ok(rows) => Some(words::Waiting::of(&rows)),
        // It is suspended, so the command has not failed.
        Err(error) => {
            writeln!(io::stderr(), "relaybook: {}", failure::said(error.as_ref(), site.access).await)?;
            None
        }
    };
    writeln!(out, "{}", words::suspended(&site.namespace, &name, waiting))?;
    if let Some(warning) = words::layered(Verb::Suspend, &name, &site.layers(&name, Verb::Suspend).await?) {
        writeln!(io::stderr(), "{warning}")?;
    }
    warn_of_owner(&changed.metadata, None)
}

async fn resume_notification(site: &Site<'_>, notification: Notification, drops: bool, yes: bool) -> anyhow::Result<()> {
    let (name, mut out) = (notification.name_any(), io::stdout());
    let mut written = None;
    if is_suspended(&notification) {
        let rows = site.pending(&notification).await?;
        if drops {
            refuse_part(site, &notification, rows.len()).await?;
        }
        if !rows.is_empty() {
            confirm(&words::Waiting::of(&rows).announcement(drops, now()), yes)?;
        }
        // The person may have needed an hour to answer.
        let mut notification = site.notification(&name).await?;
        if drops {
            if !is_suspended(&notification) {
                return Err(Ended::new(Code::No, format!("{name} was resumed meanwhile; nothing was deleted")).into());
            }
            dropped::pending(site, &notification, rows).await?;
            notification = site.notification(&name).await?;
        }
        written = change(site, notification, Verb::Resume).await?;
    }
    let layers = site.layers(&name, Verb::Resume).await?;
    match &written {
        Some(_) if layers.is_empty() => writeln!(out, "{name} is resumed")?,
        Some(_) => writeln!(out, "{name} is no longer suspended by its Notification")?,
        None if layers.is_empty() => writeln!(out, "{name} is not suspended")?,
        None => writeln!(out, "{name} is not suspended by its Notification, so nothing was changed")?,
    }
    if let Some(words) = words::layered(Verb::Resume, &name, &layers) {
        writeln!(out, "{words}")?;
    }
    written.map_or(Ok(()), |changed| warn_of_owner(&changed.metadata, None))
}

/// Refuses to delete if not all that waits can be deleted, or if some of it does not wait because of the suspension.
async fn refuse_part(site: &Site<'_>, notification: &Notification, known: usize) -> anyhow::Result<()> {
    let name = notification.name_any();
    let layers = site.layers(&name, Verb::Suspend).await?;
    if !layers.is_empty() {
        let text = format!(
            "--drop would also delete messages that are not suspended, because layers of {name} set suspend to false: {}; \
             nothing was changed",
            layers.join(", ")
        );
        return Err(Ended::new(Code::No, text).into());
    }
    let waiting = notification.status.as_ref().map_or(0, |status| status.pending);
    let hidden = waiting - i64::try_from(known).unwrap_or(i64::MAX);
    if hidden > 0 {
        let text = format!(
            "{hidden} more messages of {name} wait where you cannot list them, so --drop cannot delete them; nothing was \
             changed"
        );
        return Err(Ended::new(Code::Unanswered, text).into());
    }
    Ok(())
}

/// Changes the Notification. If somebody else has changed it since it was read, it is read again. Returns the new object, or `None` if there
/// was nothing to change.
async fn change(site: &Site<'_>, mut notification: Notification, verb: Verb) -> anyhow::Result<Option<Notification>> {
    let api: Api<Notification> = Api::namespaced(site.client.clone(), &site.namespace);
    let (name, mut tries) = (notification.name_any(), 0);
    loop {
        if is_suspended(&notification) == verb.value() {
            return Ok(None);
        }
        tries += 1;
        let changed = of_notification(&notification, verb)?.try_write(Unowned::User.into(), &api, &name).await;
        match changed.map_err(kube::Error::from) {
            Ok(changed) => return Ok(Some(changed)),
            Err(error) if tries < TRIES && is_outdated(&error) => notification = site.notification(&name).await?,
            Err(error) => return Err(unchanged(format!("Notification {}/{name}", site.namespace), verb, error)),
        }
    }
}

async fn change_promotions(place: &Place, name: &str, environment: Option<&str>, verb: Verb) -> anyhow::Result<()> {
    let (client, namespace) = place.open().await?;
    let api: Api<Pipeline> = Api::namespaced(client.clone(), &namespace);
    let (subject, mut out, mut tries) = (words::promotions(name, environment), io::stdout(), 0);
    loop {
        let pipeline = live::pipeline(&client, &namespace, name).await?;
        let found = promotions(&pipeline, environment, verb)?;
        for other in &found.others {
            writeln!(io::stderr(), "{}", words::other(verb, &namespace, name, other))?;
        }
        if found.is_suspended == verb.value() {
            let state = if verb.value() { "already suspended" } else { "not suspended" };
            return Ok(writeln!(out, "{subject} are {state}")?);
        }
        tries += 1;
        let changed = found.patch(&pipeline, verb)?.try_write(Unowned::User.into(), &api, name).await;
        match changed.map_err(kube::Error::from) {
            Ok(_) => {
                match verb {
                    Verb::Suspend => {
                        writeln!(out, "{}", words::promotions_suspended(&namespace, name, environment))?;
                    }
                    Verb::Resume => writeln!(out, "{subject} are resumed")?,
                }
                let set = pipeline.spec.pipeline_set.as_ref().map(|made_by| made_by.name.as_str());
                return warn_of_owner(&pipeline.metadata, set);
            }
            Err(error) if tries < TRIES && is_outdated(&error) => {}
            Err(error) => return Err(unchanged(format!("Pipeline {namespace}/{name}"), verb, error)),
        }
    }
}

/// Whether a patch was refused because the object is not the one that was read. A failed test is 422 Invalid, and so is a missing path.
fn is_outdated(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409 | 422))
}

fn unchanged(what: String, verb: Verb, error: kube::Error) -> anyhow::Error {
    let done = if verb.value() { "suspended" } else { "resumed" };
    ChangeError { what, done, source: Box::new(error) }.into()
}

/// Warns if the object is declared elsewhere, because the change does not last then.
fn warn_of_owner(metadata: &ObjectMeta, pipeline_set: Option<&str>) -> anyhow::Result<()> {
    match owner(metadata, pipeline_set) {
        Some(owner) => Ok(writeln!(io::stderr(), "{}", owner.warning())?),
        None => Ok(()),
    }
}

/// Announces what happens, and asks the person. Without a terminal nobody can answer, so `yes` is necessary.
fn confirm(announcement: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(writeln!(io::stdout(), "{announcement}")?);
    }
    if !io::stdin().is_terminal() {
        return Err(usage(&format!("{announcement}; nothing was changed: without a terminal, confirm with --yes")));
    }
    let (mut err, mut answer) = (io::stderr(), String::new());
    write!(err, "{announcement}. Continue? [y/N] ")?;
    err.flush()?;
    io::stdin().read_line(&mut answer)?;
    if is_yes(&answer) { Ok(()) } else { Err(Ended::new(Code::No, "nothing was changed").into()) }
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].iter().any(|yes| answer.trim().eq_ignore_ascii_case(yes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_continues() {
        for (answer, expected) in
            [("y\n", true), ("Yes\r\n", true), (" y ", true), ("", false), ("\n", false), ("n\n", false), ("yep\n", false)]
        {
            assert_eq!(is_yes(answer), expected, "{answer:?}");
        }
    }

    #[test]
    fn a_refused_patch_is_repeated_only_if_the_object_has_changed() {
        let api = |code: u16| kube::Error::Api(kube::core::Status::failure("no", "x").with_code(code).boxed());
        for (code, expected) in [(404, true), (409, true), (422, true), (400, false), (403, false), (500, false)] {
            assert_eq!(is_outdated(&api(code)), expected, "{code}");
        }
    }
}
