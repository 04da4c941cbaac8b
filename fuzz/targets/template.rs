//! Fuzzes templates with any values. Rendering must end in a result or an error, and each result must be valid as a body, URL
//! or header.
//!
//! In: a byte for the content type (from `a`), then fields in UTF-8 that end with U+001F: the template, a message, a revision,
//! a label, a parameter. Missing fields are empty. So a seed is readable text. Out: nothing, or a panic.
#![no_main]

use std::collections::BTreeSet;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use relaybook_api::TransitionType;
use relaybook_api::notification::Builtin;
use relaybook_settings::render::{
    Body, Data, HeaderTemplate, MAX_BODY, MAX_LINE, Parameters, RenderError, SampleContext, UrlTemplate, Values, builtin,
};

const CONTENT_TYPES: [&str; 6] = [
    "application/json",
    "text/plain",
    "text/html",
    "application/x-www-form-urlencoded",
    "application/cloudevents+json; charset=utf-8",
    "application/xml",
];

/// A parameter that no built-in template has. Its value is the template itself.
const OWN: &str = "own";

/// The names of all parameters of built-in templates, so that built-in templates compile.
static NAMES: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let declared = Builtin::ALL.into_iter().flat_map(|name| &builtin(name).metadata.parameters);
    declared.map(|parameter| parameter.name.as_str()).collect()
});

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let content_type = CONTENT_TYPES[usize::from(choice.wrapping_sub(b'a')) % CONTENT_TYPES.len()];
    let text = String::from_utf8_lossy(rest);
    let mut fields = text.splitn(5, '\u{1f}');
    let mut next = || fields.next().unwrap_or_default();
    let (template, message, revision, label, parameter) = (next(), next(), next(), next(), next());

    let transitions = transitions(message, revision, label);
    let given = parameters(template, parameter);
    as_body(content_type, template, &given, &transitions);
    as_url(template, &given, &transitions);
    as_url(&format!("https://example.com:8443/{template}"), &given, &transitions);
    as_header(template, &given, &transitions);
    // The template as the value of a parameter, which may be used in a body, a URL and a header.
    if let Ok(own) =
        Parameters::compile([(OWN, Some(template))]).map_err(|wrong| wrong.iter().for_each(|(_, error)| told(error)))
    {
        as_body(content_type, "{\"a\":\"{{parameters.own}}\",\"b\":{{json parameters}} }", &own, &transitions);
        as_url("https://example.com/{{parameters.own}}/?{{parameters.own}}=", &own, &transitions);
        as_header("{{parameters.own}}", &own, &transitions);
    }
});

/// Returns a transition of each type, with these texts.
fn transitions(message: &str, revision: &str, label: &str) -> Vec<Data> {
    let mut context = SampleContext::sample(("deploys".to_owned(), "team-a".to_owned()));
    context.labels = [("team", label), (label, "x")].map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let transition = |type_| {
        let mut data = context.transition(type_);
        if !message.is_empty() {
            message.clone_into(&mut data.message);
        }
        if !revision.is_empty() {
            revision.clone_into(&mut data.revision);
        }
        data
    };
    TransitionType::ALL.map(transition).into()
}

/// Returns the parameters that the template may refer to, all with this value if it is a valid template.
fn parameters(template: &str, value: &str) -> Parameters {
    let named = || NAMES.iter().filter(|name| template.contains(**name));
    let given = Parameters::compile(named().map(|name| (*name, Some(value))));
    given.unwrap_or_else(|wrong| {
        wrong.iter().for_each(|(_, error)| told(error));
        Parameters::compile(named().map(|name| (*name, Some("#deploys")))).expect("a literal text is a template")
    })
}

fn as_body(content_type: &str, template: &str, parameters: &Parameters, transitions: &[Data]) {
    let Some(body) = right(Body::compile(content_type, template, parameters)) else { return };
    let mut before = Vec::new();
    each(parameters, transitions, |values| {
        let Some(text) = right(body.render(values)) else { return before.push(None) };
        assert!(text.len() <= MAX_BODY);
        if content_type.contains("json") {
            let read = serde_json::from_str::<serde_json::Value>(&text);
            assert!(read.is_ok(), "{read:?}: {text}");
        }
        before.push(Some(text));
    });
    let mut again = before.into_iter();
    each(parameters, transitions, |values| {
        assert_eq!(Some(body.render(values).ok()), again.next(), "each attempt sends the same bytes");
    });
}

fn as_url(template: &str, parameters: &Parameters, transitions: &[Data]) {
    let Some(source) = right(UrlTemplate::compile(template, parameters)) else { return };
    each(parameters, transitions, |values| {
        let Some(url) = right(source.render(values)) else { return };
        let (host, port) = (url.host_str().expect("it has a host"), url.port_or_known_default().expect("it has a port"));
        assert_eq!(format!("{}://{host}:{port}", url.scheme()), source.origin(), "{url}");
        assert!(url.username().is_empty() && url.password().is_none(), "{url}");
        assert!(url.as_str().len() <= MAX_LINE, "{} bytes", url.as_str().len());
    });
}

fn as_header(template: &str, parameters: &Parameters, transitions: &[Data]) {
    let Some(header) = right(HeaderTemplate::compile("X-Title", template, parameters)) else { return };
    each(parameters, transitions, |values| {
        let Some(text) = right(header.render(values)) else { return };
        assert!(text.len() <= MAX_LINE);
        assert!(!text.contains(['\r', '\n']) && http::HeaderValue::from_str(&text).is_ok(), "{text:?}");
    });
}

fn each(parameters: &Parameters, transitions: &[Data], mut render: impl FnMut(&Values)) {
    for data in transitions {
        match Values::new(data, parameters) {
            Ok(values) => render(&values),
            Err(error) => told(&error),
        }
    }
}

/// Returns the result, or checks the error.
fn right<T>(result: Result<T, RenderError>) -> Option<T> {
    result.inspect_err(told).ok()
}

/// Checks that an error is one line that fits into a status.
fn told(error: &RenderError) {
    for message in error.each().map(ToString::to_string) {
        assert!(!message.contains('\n') && message.len() < 1024, "{message}");
    }
}
