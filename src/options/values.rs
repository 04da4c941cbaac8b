//! The values of options: their defaults, and their parsers. The error of a parser says what is allowed.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};

use relaybook_pipelines::sets::Followed;

/// The defaults of `relaybook run`. A command assumes them if nothing else is known.
pub(crate) const CLUSTER_NAME: &str = "in-cluster";
pub(crate) const CONFIG_MAP: &str = "relaybook-config";
pub(crate) const NAMESPACE: &str = "relaybook-system";

/// Returns a variable of the environment, unless it is empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the namespace of this pod, or the default.
pub(crate) fn own_namespace() -> String {
    variable("POD_NAMESPACE").unwrap_or_else(|| NAMESPACE.to_owned())
}

/// Returns the name of this pod, or of this machine.
pub(crate) fn identity() -> String {
    variable("POD_NAME").unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

/// Parses a duration. It can have days, which are 24 hours long.
pub(crate) fn span(text: &str) -> Result<jiff::SignedDuration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<i64>().ok()).and_then(|days| days.checked_mul(24));
    let parsed = match days {
        Some(hours) => jiff::SignedDuration::try_from_hours(hours),
        None => text.parse().ok(),
    };
    parsed.filter(jiff::SignedDuration::is_positive).ok_or_else(|| "must be a duration such as 30m, 12h or 7d".to_owned())
}

/// Parses a duration from one second to one day. The minimum is one second because a network call can take that long.
pub(crate) fn grace(text: &str) -> Result<Duration, String> {
    let span = span(text).ok().and_then(|span| Duration::try_from(span).ok());
    let fits = span.filter(|span| (Duration::from_secs(1)..=Duration::from_hours(24)).contains(span));
    fits.ok_or_else(|| "must be a duration from 1s to 24h, such as 90s or 2m".to_owned())
}

/// Parses a kind of `--follow`.
pub(crate) fn followed() -> impl TypedValueParser<Value = Followed> {
    let names = PossibleValuesParser::new(Followed::ALL.map(Followed::name));
    let of = |name: String| Followed::ALL.into_iter().find(|kind| kind.name() == name);
    names.try_map(move |name| of(name).ok_or("unknown kind"))
}

/// Parses the ID of a shard. It becomes a part of the names of Leases, and is the value of a label.
pub(crate) fn shard(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !text.is_empty() && text.len() <= 40 && text.chars().all(fits) && !text.starts_with('-') && !text.ends_with('-') {
        Ok(text.to_owned())
    } else {
        Err("must have only lower case letters, digits and dashes, at most 40 characters, such as eu-1".to_owned())
    }
}

/// Parses the key of a label (<https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set>).
pub(crate) fn label_key(text: &str) -> Result<String, String> {
    let (prefix, name) = text.rsplit_once('/').unwrap_or(("", text));
    let ends = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let is_name = name.len() <= 63 && ends(name) && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let is_prefix = prefix.len() <= 253 && ends(prefix) && prefix.chars().all(is_part);
    if is_name && (is_prefix || !text.contains('/')) {
        Ok(text.to_owned())
    } else {
        Err("must be the key of a label, such as example.com/shard".to_owned())
    }
}

/// Parses a cluster name. It has no slash, because it becomes a part of subjects.
pub(crate) fn cluster_name(text: &str) -> Result<String, String> {
    let fits =
        !text.is_empty() && text.len() <= 253 && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.');
    if fits {
        Ok(text.to_owned())
    } else {
        Err("must have only letters, digits, dashes and dots, at most 253 characters".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::values::shard::SHARD_LABEL;

    #[test]
    fn durations_can_be_given_in_days() {
        for (text, seconds) in [("90s", Some(90)), ("1h30m", Some(5400)), ("7d", Some(604_800)), ("0s", None), ("x", None)] {
            assert_eq!(span(text).ok().map(|span| span.as_secs()), seconds, "{text}");
        }
    }

    #[test]
    fn keys_of_labels_can_have_a_prefix() {
        for good in ["shard", "a", "example.com/a-b_c.D", SHARD_LABEL] {
            assert_eq!(label_key(good).as_deref(), Ok(good));
        }
    }
}
