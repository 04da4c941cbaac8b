//! The request of a recorded delivery.

use super::request::{MASK, preview};
use super::{LayeredNotification, Preview, PreviewError};
use relaybook_api::values::permalink::{PageUrl, encoded};
use relaybook_api::{DeliverySpec, delivery};
use relaybook_settings::config::{Given, is_secret};
use relaybook_settings::render::{Data, Texts};

/// What a recorded delivery is rendered with, besides its transition.
#[derive(Clone, Debug)]
pub struct Recorded<'a> {
    /// The recorded transition.
    pub spec: &'a DeliverySpec,
    /// The namespace of the Delivery.
    pub namespace: &'a str,
    /// Number of earlier deliveries that it replaces.
    pub superseded: i64,
    /// The current labels of the pipeline.
    pub labels: Texts,
    /// Its current annotations.
    pub annotations: Texts,
    /// Name of the local cluster.
    pub cluster: &'a str,
    /// The URL of the audit page, for links.
    pub page_url: Option<&'a PageUrl>,
}

/// Returns the request of a recorded delivery, with the current settings, and with all possible credentials masked.
pub fn recorded(
    notification: &LayeredNotification,
    recorded: &Recorded<'_>,
    given: &Given<'_>,
) -> Result<Preview, PreviewError> {
    let wrong = |problem| PreviewError::Notification { name: notification.name.clone(), problem };
    let (sending, _) = notification.compiled(given).map_err(wrong)?;
    let spec = recorded.spec;
    let id = delivery::webhook_id(spec);
    let data = Data::new(&id, spec, &recorded.labels, &recorded.annotations, &notification.namespace);
    let data = data.with_context(spec, recorded.cluster);
    let data = data.with_links(recorded.page_url, recorded.namespace, &delivery::name(spec));
    let data = data.with_web(spec, notification.web());
    let data = Data { superseded: recorded.superseded, ..data };
    let rendered = sending.render(&data).map_err(wrong)?;
    Ok(masked(preview(&notification.name, &sending, &rendered, &data), &rendered.credentials))
}

/// Masks the values of parameters that can be credentials, also as JSON and in a URL, and all headers whose
/// names are masked in the effective settings. A preview of a person's own masks fewer.
pub(super) fn masked(preview: Preview, credentials: &[String]) -> Preview {
    let json = |text: &str| {
        let quoted = serde_json::Value::from(text).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    };
    let mut spellings: Vec<String> = credentials
        .iter()
        .flat_map(|value| [value.clone(), json(value), encoded(value)])
        .filter(|text| !text.is_empty())
        .collect();
    // The longest first, because one can contain another.
    spellings.sort_by_key(|text| std::cmp::Reverse(text.len()));
    let hide = |text: &str| spellings.iter().fold(text.to_owned(), |text, value| text.replace(value.as_str(), MASK));
    let headers = preview.headers.iter().map(|(name, value)| {
        let value = if is_secret(name) && !preview.masked.contains(name) { MASK.to_owned() } else { hide(value) };
        (name.clone(), value)
    });
    Preview { url: hide(&preview.url), body: hide(&preview.body), headers: headers.collect(), ..preview }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use relaybook_api::TransitionType;

    #[test]
    fn credentials_of_parameters_are_masked_in_each_spelling() {
        let headers = [("x-jwt", "abc"), ("x-team", "a \"quoted\" b"), ("authorization", "Bearer ***")];
        let preview = Preview {
            notification: "n".to_owned(),
            trigger: TransitionType::Deployed,
            method: "POST",
            url: "https://a.example/in?key=a%20%22quoted%22%20b".to_owned(),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            headers_from: None,
            masked: BTreeSet::from(["authorization".to_owned()]),
            has_keys: false,
            body: r#"{"key": "a \"quoted\" b", "text": "harmless"}"#.to_owned(),
            answer: None,
            success: None,
        };
        let shown = masked(preview, &["a \"quoted\" b".to_owned(), String::new()]);
        assert_eq!(shown.url, "https://a.example/in?key=***");
        assert_eq!(shown.body, r#"{"key": "***", "text": "harmless"}"#);
        let expected = [("x-jwt", "***"), ("x-team", "***"), ("authorization", "Bearer ***")];
        assert_eq!(shown.headers, BTreeMap::from(expected.map(|(name, value)| (name.to_owned(), value.to_owned()))));
    }
}
