//! Names of objects as kubectl prints and accepts them: `NAME`, or `TYPE/NAME` with the singular, the plural or the short name of
//! the type, with or without its group.

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
}
