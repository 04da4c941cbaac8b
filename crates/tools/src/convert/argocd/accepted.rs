//! Whether a text is a template that Relaybook accepts. Pure.
//!
//! In: the template of a body or a URL. Out: whether it compiles, and gives a valid result for samples of transitions.

use relaybook_api::TransitionType;
use relaybook_settings::render::{Body, Data, Parameters, UrlTemplate, Values};

/// Returns why a body is no template of Relaybook: it does not compile, or the body of a sample is not valid.
pub(super) fn fault(content_type: &str, body: &str) -> Option<String> {
    let body = match Body::compile(content_type, body, &Parameters::default()) {
        Ok(body) => body,
        Err(error) => return Some(error.to_string()),
    };
    samples().find_map(|values| body.render(&values).err()).map(|error| error.to_string())
}

/// Whether a text is the template of a URL.
pub(super) fn is_url(text: &str) -> bool {
    let valid = |url: UrlTemplate| samples().all(|values| url.render(&values).is_ok());
    UrlTemplate::compile(text, &Parameters::default()).is_ok_and(valid)
}

/// Returns samples of transitions that have a revision.
fn samples() -> impl Iterator<Item = Values> {
    use TransitionType::{Deployed, Drifted, Failed, Progressing, Recovered};
    let all = [Progressing, Deployed, Failed, Recovered, Drifted].into_iter();
    all.filter_map(|type_| Values::new(&Data::sample(type_), &Parameters::default()).ok())
}
