//! The forms that people send: their fields, and the actions that they request.
//!
//! Every action is a POST from a page of this server, with the token of its forms, and happens with the permissions of the caller.

use futures::{StreamExt as _, stream};
use kube::Api;

use crate::access::caller::Caller;
use crate::read::call::{call, in_time};
use crate::screens::undelivered::Resent;
use crate::trouble::{Trouble, Wanted};
use relaybook_api::values::names::{is_label, is_subdomain};
use relaybook_api::{Pipeline, now};
use relaybook_core::promotion::ask::{self, AskError, Found};
use relaybook_promotions::request::command::{self, CommandError};
use relaybook_tools::audit::redeliver;

/// Number of redeliveries that are requested at once.
const PARALLEL: usize = 8;
/// Maximum number of deliveries in one form.
const MOST: usize = 100;

/// The fields of a form.
#[derive(Debug, Default)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads the body of a request.
    pub(super) fn read(body: &[u8]) -> Self {
        Self(url::form_urlencoded::parse(body).into_owned().collect())
    }

    /// Returns the value of a field, or an empty text.
    pub(super) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value)
    }

    /// Returns all values of a field.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}

/// Returns a path of this server, or that of the overview. A path with two slashes would be another host.
pub(super) fn local_path(text: &str) -> &str {
    let is_local = text.starts_with('/') && !text.starts_with("//") && !text.starts_with("/\\");
    let is_plain = text.len() <= 4096 && text.bytes().all(|c| c.is_ascii_graphic() && c != b'\\');
    if is_local && is_plain { text } else { "/" }
}

/// Requests that one delivery is sent again.
pub(super) async fn resend(caller: &Caller, namespace: &str, name: &str) -> Result<(), Trouble> {
    let wanted = Wanted::new("get and patch", "deliveries", Some(namespace));
    let value = format!("{}-{:04x}", now(), fastrand::u16(..));
    in_time(redeliver(&caller.client, namespace, name, &value, false), |e| Trouble::of_redelivery(&e, &wanted)).await
}

/// Requests that all selected deliveries are sent again. Each is named `NAMESPACE/NAME`.
pub(super) async fn resend_all(caller: &Caller, form: &Form) -> Resent {
    let names: Vec<String> = form.all("delivery").take(MOST).map(str::to_owned).collect();
    let sent = stream::iter(names).map(|full| async move {
        let parts = full.split_once('/').filter(|(namespace, name)| is_label(namespace) && is_subdomain(name));
        let Some((namespace, name)) = parts else {
            return (full.clone(), Err(Trouble::Other("This is not the name of a delivery".to_owned())));
        };
        let result = resend(caller, namespace, name).await;
        (full.clone(), result)
    });
    let mut resent = Resent::default();
    let mut results = sent.buffered(PARALLEL);
    while let Some((name, result)) = results.next().await {
        match result {
            Ok(()) => resent.requested += 1,
            Err(trouble) => resent.failed.push((name, trouble.sentence())),
        }
    }
    resent
}

/// Approves the promotion that the form shows, as `relaybook approve` does. Returns a sentence with what was done.
pub(super) async fn approve(caller: &Caller, (namespace, name): (&str, &str), form: &Form) -> Result<String, Trouble> {
    let (environment, revision) = (form.get("environment"), form.get("revision"));
    let api: Api<Pipeline> = Api::namespaced(caller.client.clone(), namespace);
    let pipeline = call(&Wanted::new("get", "pipelines", Some(namespace)), api.get_opt(name)).await?;
    let gone = || Trouble::Other(format!("Nothing was approved: Pipeline {namespace}/{name} does not exist any more"));
    let pipeline = pipeline.ok_or_else(gone)?;
    let wanted = Wanted::new("list", "promotions", Some(namespace));
    let all = in_time(command::of_pipeline(&caller.client, &pipeline), |e| Trouble::new(&e.0, &wanted)).await?;
    let all: Vec<_> = all.iter().collect();
    let refused = |error: AskError| Trouble::Other(nothing(&error.to_string()));
    let found = ask::approve(&pipeline, environment, Some(revision), &all).map_err(refused)?;
    if let Some(why) = other(&found, form.get("promotion")) {
        return Err(Trouble::Other(nothing(why)));
    }
    match found {
        Found::Approved(_) => Ok(format!("The promotion of {revision} to {environment} was approved before.")),
        Found::Waits(promotion) => {
            let wanted = Wanted::new("patch", "promotions", Some(namespace));
            let approval = command::approve(&caller.client, promotion);
            let failed = |error| match error {
                CommandError::Approve(_, error) => Trouble::new(&error, &wanted),
                other => Trouble::Other(nothing(&other.to_string())),
            };
            in_time(approval, failed).await?;
            Ok(format!("The promotion of {revision} to {environment} is approved."))
        }
    }
}

/// Returns why the promotion that was found is not the one that the person saw. `uid`: that of the one on the page.
fn other(found: &Found<'_>, uid: &str) -> Option<&'static str> {
    let (promotion, why) = match found {
        Found::Waits(promotion) => (promotion, "another promotion waits now; look at it first"),
        Found::Approved(promotion) => (promotion, "another promotion has replaced it, and is approved; look at it first"),
    };
    (promotion.metadata.uid.as_deref() != Some(uid)).then_some(why)
}

/// Returns why nothing was approved, as a sentence without its full stop.
fn nothing(why: &str) -> String {
    match why.strip_prefix("nothing was approved") {
        Some(rest) => format!("Nothing was approved{rest}"),
        None => format!("Nothing was approved: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::{Promotion, PromotionSpec};

    #[test]
    fn only_the_promotion_that_was_shown_is_approved() {
        let mut promotion = Promotion::new("p", PromotionSpec::default());
        promotion.metadata.uid = Some("u1".to_owned());
        let waits = Some("another promotion waits now; look at it first");
        let approved = Some("another promotion has replaced it, and is approved; look at it first");
        for (found, uid, why) in [
            (Found::Waits(&promotion), "u1", None),
            (Found::Approved(&promotion), "u1", None),
            (Found::Waits(&promotion), "u2", waits),
            (Found::Waits(&promotion), "", waits),
            (Found::Approved(&promotion), "u2", approved),
        ] {
            assert_eq!(other(&found, uid), why, "{uid}");
        }
    }

    #[test]
    fn only_local_paths_are_accepted_as_return_paths() {
        for (text, path) in [
            ("/pipelines/a/b?x=1", "/pipelines/a/b?x=1"),
            ("", "/"),
            ("https://evil.example", "/"),
            ("//evil.example", "/"),
            ("/\\evil.example", "/"),
            ("/a\\b", "/"),
            ("/a\r\nSet-Cookie: x=y", "/"),
            ("javascript:alert(1)", "/"),
        ] {
            assert_eq!(local_path(text), path, "{text:?}");
        }
    }

    #[test]
    fn a_refused_approval_is_one_sentence() {
        for (why, sentence) in [
            (
                "no promotion to prod waits for an approval",
                "Nothing was approved: no promotion to prod waits for an approval",
            ),
            ("nothing was approved, because x was deleted", "Nothing was approved, because x was deleted"),
            ("nothing was approved: x is for 3, and not for 2", "Nothing was approved: x is for 3, and not for 2"),
        ] {
            assert_eq!(nothing(why), sentence);
        }
    }

    #[test]
    fn a_form_can_have_a_field_several_times() {
        let form = Form::read(b"token=t&delivery=a%2Fb&delivery=c/d");
        assert_eq!((form.get("token"), form.get("none")), ("t", ""));
        assert_eq!(form.all("delivery").collect::<Vec<_>>(), ["a/b", "c/d"]);
    }
}
