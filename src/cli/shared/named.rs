//! Names of objects as kubectl prints and accepts them: `NAME`, or `TYPE/NAME` with the singular, the plural or the short name of
//! the type, with or without its group. Also the name of what can be suspended: `promotions/PIPELINE` is no object.

use relaybook_api::{GROUP, VERSION};

/// A kind of object that an argument names.
#[derive(Debug)]
struct Kind {
    kind: &'static str,
    /// The singular, the plural and the short name of the type.
    types: [&'static str; 3],
}

const PIPELINE: Kind = Kind { kind: "Pipeline", types: ["pipeline", "pipelines", "rbp"] };
const NOTIFICATION: Kind = Kind { kind: "Notification", types: ["notification", "notifications", "rbn"] };
const DELIVERY: Kind = Kind { kind: "Delivery", types: ["delivery", "deliveries", "dlv"] };
const PROMOTION: Kind = Kind { kind: "Promotion", types: ["promotion", "promotions", "promo"] };

/// What [`suspendable`] accepts.
const SUSPENDABLE: &str = "write notification/NAME, or promotions/PIPELINE for the promotions of a Pipeline";

/// What can be suspended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Suspendable {
    /// The Notification of this name.
    Notification(String),
    /// The promotions of the Pipeline of this name.
    Promotions(String),
}

/// Parses what can be suspended: `NAME` or `notification/NAME`, or `promotions/PIPELINE`. Only the plural means the promotions of a Pipeline,
/// because the singular names one Promotion.
pub(crate) fn suspendable(text: &str) -> Result<Suspendable, String> {
    let Some((type_, name)) = text.split_once('/') else { return Ok(Suspendable::Notification(text.to_owned())) };
    if name.is_empty() || name.contains('/') {
        return Err(format!("exactly one name must follow the type; {SUSPENDABLE}"));
    }
    if NOTIFICATION.has(type_) {
        return Ok(Suspendable::Notification(name.to_owned()));
    }
    if type_.eq_ignore_ascii_case("promotions") {
        return Ok(Suspendable::Promotions(name.to_owned()));
    }
    if PIPELINE.has(type_) {
        return Err(format!(
            "Pipelines cannot be suspended; write promotions/{name} for the promotions of {name}, or notification/NAME for a Notification"
        ));
    }
    Err(match [DELIVERY, PROMOTION].into_iter().find(|kind| kind.has(type_)) {
        Some(other) => format!("a {} cannot be suspended; {SUSPENDABLE}", other.kind),
        None => format!("there is no type {type_:?} in {GROUP}; {SUSPENDABLE}"),
    })
}

/// Parses the name of a Pipeline.
pub(crate) fn pipeline(text: &str) -> Result<String, String> {
    PIPELINE.name(text)
}

/// Parses the name of a Notification.
pub(crate) fn notification(text: &str) -> Result<String, String> {
    NOTIFICATION.name(text)
}

/// Parses the name of a Delivery.
pub(crate) fn delivery(text: &str) -> Result<String, String> {
    DELIVERY.name(text)
}

/// Returns the name of a Pipeline as `kubectl get -o name` prints it. [`pipeline`] can parse it.
pub(crate) fn of_pipeline(name: &str) -> String {
    format!("{}.{GROUP}/{name}", PIPELINE.types[0])
}

/// Returns the name of a Delivery as `kubectl get -o name` prints it. [`delivery`] can parse it.
pub(crate) fn of_delivery(name: &str) -> String {
    format!("{}.{GROUP}/{name}", DELIVERY.types[0])
}

/// Returns the name of a Promotion as `kubectl get -o name` prints it.
pub(crate) fn of_promotion(name: &str) -> String {
    format!("{}.{GROUP}/{name}", PROMOTION.types[0])
}

impl Kind {
    fn name(&self, text: &str) -> Result<String, String> {
        let Some((type_, name)) = text.split_once('/') else { return Ok(text.to_owned()) };
        let expected = format!("write NAME or {}/NAME", self.types[0]);
        if !self.has(type_) {
            let other = [PIPELINE, NOTIFICATION, DELIVERY, PROMOTION].into_iter().find(|kind| kind.has(type_));
            return Err(match other {
                Some(other) => format!("this names a {}, not a {}; {expected}", other.kind, self.kind),
                None => format!("there is no type {type_:?} in {GROUP}; {expected}"),
            });
        }
        if name.is_empty() || name.contains('/') {
            return Err(format!("exactly one name must follow the type; {expected}"));
        }
        Ok(name.to_owned())
    }

    /// Whether a type such as `dlv`, `Delivery.relaybook.dev` or `deliveries.v1alpha1.relaybook.dev` means this kind.
    fn has(&self, type_: &str) -> bool {
        let type_ = type_.to_ascii_lowercase();
        let (short, group) = type_.split_once('.').unwrap_or((&type_, GROUP));
        let group = group.strip_prefix(VERSION).and_then(|group| group.strip_prefix('.')).unwrap_or(group);
        group == GROUP && self.types.contains(&short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_kubectl_prints_and_accepts_them() {
        for text in ["web", "pipeline/web", "pipelines/web", "rbp/web", "Pipeline/web", "pipeline.relaybook.dev/web"] {
            assert_eq!(pipeline(text), Ok("web".to_owned()), "{text}");
        }
        for text in ["x", "notification/x", "notifications/x", "rbn/x", "notifications.v1alpha1.relaybook.dev/x"] {
            assert_eq!(notification(text), Ok("x".to_owned()), "{text}");
        }
        for text in ["a-1", "delivery/a-1", "deliveries/a-1", "dlv/a-1", "dlv.relaybook.dev/a-1", &of_delivery("a-1")] {
            assert_eq!(delivery(text), Ok("a-1".to_owned()), "{text}");
        }
        for (text, words) in [
            ("pipeline/web", "this names a Pipeline, not a Delivery; write NAME or delivery/NAME"),
            ("rbn.relaybook.dev/web", "this names a Notification, not a Delivery"),
            (&of_promotion("web-prod-1"), "this names a Promotion, not a Delivery"),
            ("pod/web", "there is no type \"pod\" in relaybook.dev"),
            ("delivery.example.com/web", "there is no type \"delivery.example.com\""),
            ("delivery/", "exactly one name"),
            ("delivery/a/b", "exactly one name"),
            ("/a", "there is no type \"\""),
        ] {
            let error = delivery(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn what_can_be_suspended_is_a_notification_or_the_promotions_of_a_pipeline() {
        for text in ["chat", "notification/chat", "rbn/chat", "notifications.relaybook.dev/chat"] {
            assert_eq!(suspendable(text), Ok(Suspendable::Notification("chat".to_owned())), "{text}");
        }
        for text in ["promotions/web", "Promotions/web"] {
            assert_eq!(suspendable(text), Ok(Suspendable::Promotions("web".to_owned())), "{text}");
        }
        for (text, words) in [
            (
                "pipeline/web",
                "Pipelines cannot be suspended; write promotions/web for the promotions of web, or notification/NAME",
            ),
            ("rbp/web", "Pipelines cannot be suspended"),
            ("promotion/web-prod-1", "a Promotion cannot be suspended; write notification/NAME, or promotions/PIPELINE"),
            (&of_promotion("web-prod-1"), "a Promotion cannot be suspended"),
            (&of_delivery("a-1"), "a Delivery cannot be suspended"),
            ("pod/web", "there is no type \"pod\" in relaybook.dev"),
            ("promotions/", "exactly one name must follow the type"),
            ("notification/a/b", "exactly one name must follow the type"),
        ] {
            let error = suspendable(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
