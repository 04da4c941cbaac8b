//! Templates of request bodies.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::data::parameters::{Parameter, Visibility};
use super::error::RenderError;
use super::escape::context::EscapeContext;
use super::lang::commits::needs_commit;
use super::lang::compile;
use super::lang::eval::Program;
use super::lang::fields;
use super::lang::reads::{look_ups, reads_test};
use super::shared::{BodyKey, Shared};
use super::{MAX_BODY, Parameters, Values};
use relaybook_api::values::looked_up::LookUps;

static SHARED: Shared<Inner> = Shared::new();

/// The compiled template of a body. Equal templates share one compiled program. Values are escaped for the content type. If the content
/// type is JSON, the rendered body is valid JSON.
#[derive(Clone, Debug)]
pub struct Body(Arc<Inner>, Visibility);

#[derive(Debug)]
struct Inner {
    content_type: String,
    is_json: bool,
    program: Program,
    /// Names of the parameters that the template uses.
    named: BTreeSet<String>,
    /// Names of the values of earlier answers that the template uses.
    remembered: BTreeSet<String>,
}

impl Body {
    /// Compiles a template. `content_type` is the whole value of the header, including its parameters.
    pub fn compile(content_type: &str, source: &str, parameters: &Parameters) -> Result<Self, RenderError> {
        // Every branch is compiled, so the program is valid wherever the parameters that it uses have a value.
        let suits = |inner: &Inner| {
            inner.named.iter().all(|name| parameters.get(name) == Parameter::Set)
                && (inner.remembered.is_empty()
                    || parameters.remembered().is_some_and(|has| inner.remembered.is_subset(has)))
        };
        let made = SHARED.get_or_compile(BodyKey::new(content_type, source), suits, || {
            let is_one_line = content_type.chars().all(|c| matches!(c, ' '..='~'));
            let context =
                EscapeContext::of_content_type(content_type).filter(|_| is_one_line).ok_or(RenderError::ContentType)?;
            let program = compile::compile(source, context, parameters)?;
            let (is_json, named) = (matches!(context, EscapeContext::Json(_)), program.parameters());
            let remembered = program.names_below("remembered");
            Ok(Inner { content_type: content_type.to_owned(), is_json, program, named, remembered })
        });
        made.map(|made| Self(made, parameters.visibility()))
    }

    /// Returns the value of the content-type header.
    #[must_use]
    pub fn content_type(&self) -> &str {
        &self.0.content_type
    }

    /// Returns the names of the parameters that any branch lists with `each`.
    pub(crate) fn listed(&self) -> BTreeSet<String> {
        fields::listed(&self.0.program)
    }

    /// Whether rendering fails for every revision that contains no commit.
    #[must_use]
    pub fn needs_commit(&self, parameters: &Parameters) -> bool {
        needs_commit(&self.0.program, parameters)
    }

    /// Whether any branch uses the field `test`, or a parameter that uses it.
    #[must_use]
    pub fn reads_test(&self, parameters: &Parameters) -> bool {
        reads_test(&self.0.program, &parameters.seen_with(self.1))
    }

    /// What a forge must be asked for before it is rendered.
    #[must_use]
    pub fn look_ups(&self, parameters: &Parameters) -> LookUps {
        look_ups(&self.0.program, &parameters.seen_with(self.1))
    }

    /// Renders the body for one transition, with at most [`MAX_BODY`] bytes.
    pub fn render(&self, values: &Values) -> Result<String, RenderError> {
        let output = self.0.program.run(values, self.1, MAX_BODY)?;
        if self.0.is_json {
            let not_json = |e| RenderError::NotJson(e).changeable_if(output.changeable);
            serde_json::from_str::<Json>(&output.text).map_err(not_json)?;
        }
        Ok(output.text)
    }
}

/// Any JSON value, parsed and discarded. This is as strict as parsing a `Value`. `IgnoredAny` is less strict: it accepts half of a
/// surrogate pair.
struct Json;

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Json {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        while fields.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::render::Data;
    use relaybook_api::TransitionType;

    fn render(content_type: &str, source: &str, message: &str) -> Result<String, RenderError> {
        let mut data = Data::sample(TransitionType::Failed);
        message.clone_into(&mut data.message);
        Body::compile(content_type, source, &Parameters::default())?.render(&data.values())
    }

    #[test]
    fn quotes_and_line_breaks_survive_json() {
        let message = "a \"quoted\"\nline \\ \u{1f}\u{2028} ü";
        let body = render("application/json", r#"{"text":"{{pipeline.name}}: {{message}}","m":{{json message}} }"#, message)
            .unwrap();
        let parsed: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(parsed, json!({"text": format!("podinfo: {message}"), "m": message}));
    }

    #[test]
    fn json_within_a_json_string_is_escaped_once() {
        let body = render("application/vnd.acme+json", r#"{"payload":"{{json target.cluster}}"}"#, "").unwrap();
        let parsed: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(parsed["payload"], r#"{"kind":"","name":"in-cluster","namespace":""}"#);
    }

    #[test]
    fn values_are_escaped_for_the_content_type() {
        for (content_type, source, expected) in [
            ("text/plain; charset=utf-8", "{{message}}", "<a> & 'b'\n"),
            ("text/html", "<p title=\"{{message}}\">", "<p title=\"&lt;a&gt; &amp; &#39;b&#39;\n\">"),
            ("application/xml", "<m>{{json message}}</m>", "<m>&quot;&lt;a&gt; &amp; &#39;b&#39;\\n&quot;</m>"),
            (
                "application/x-www-form-urlencoded",
                "text={{message}}&x={{id}}",
                "text=%3Ca%3E+%26+%27b%27%0A&x=msg_5f3d2c1b0a9e8d7c",
            ),
        ] {
            assert_eq!(render(content_type, source, "<a> & 'b'\n").unwrap(), expected);
        }
    }

    #[test]
    fn an_invalid_body_or_content_type_is_refused() {
        for (content_type, source, word) in [
            ("application/yaml", "a: {{id}}", "text/plain"),
            ("text/plain;\r\nx: y", "", "content type"),
            ("application/json", r#"{"drifted": {{drifted}} }"#, "line 1, column 13: a value outside of a JSON string"),
            ("application/json", r#"{"a": {{upper (json id)}} }"#, "`json`"),
            ("application/json", r#"{"a": "b\\{{id}}"}"#, "backslash"),
            ("application/json", r#"{"a": "\u00{{id}}"}"#, "backslash"),
            ("application/json", "{\"a\": 1,}", "line 1, column 9"),
            ("application/json", "", "not JSON"),
            ("application/json", r#""\ud800""#, "not JSON"),
        ] {
            let message = render(content_type, source, "").unwrap_err().to_string();
            assert!(message.contains(word) && !message.contains('\n'), "{source}: {message}");
        }
    }

    #[test]
    fn a_compiled_body_is_shared_if_all_parameters_that_it_names_exist() {
        let compile = |source: &str, names: &[&str]| {
            let parameters = Parameters::compile(names.iter().map(|name| (*name, Some("{{id}}")))).unwrap();
            Body::compile("text/plain", source, &parameters)
        };
        let source = "{{#if drifted}}{{upper (default parameters.a 'x')}}{{else}}{{#with parameters}}{{b}}{{/with}}{{/if}} \
                      {{#each pipeline.labels}}{{../parameters.[c.d]}}{{/each}}";
        let source = &source.replace("(default parameters.a 'x')", "parameters.a");
        let one = compile(source, &["a", "b", "c.d"]).unwrap();
        assert_eq!(one.0.named.iter().collect::<Vec<_>>(), ["a", "b", "c.d"]);
        for more in ["e", "f", "g"] {
            let other = compile(source, &["a", "b", "c.d", more]).unwrap();
            assert!(Arc::ptr_eq(&one.0, &other.0), "{more} is not named");
        }
        for (names, missing) in [(&["b", "c.d"], "`parameters.a`"), (&["a", "c.d"], "`b`"), (&["a", "b"], "[c.d]")] {
            let message = compile(source, names).unwrap_err().to_string();
            assert!(message.contains(missing), "{message}");
        }
        let names = |program: &str| compile(program, &["a"]).unwrap().0.named.len();
        assert_eq!((names("{{json parameters}}"), names("{{#each parameters}}{{this}}{{/each}}")), (0, 0));
    }

    #[test]
    fn a_compiled_body_can_be_rendered_in_several_threads() {
        let body = Body::compile("application/json", r#"{"type":"{{type}}"}"#, &Parameters::default()).unwrap();
        assert_eq!(body.content_type(), "application/json");
        let threads: Vec<_> = Data::samples()
            .map(|data| {
                let body = body.clone();
                std::thread::spawn(move || {
                    (body.render(&data.values()).unwrap(), format!(r#"{{"type":"{}"}}"#, data.type_.as_str()))
                })
            })
            .collect();
        for thread in threads {
            let (found, expected) = thread.join().unwrap();
            assert_eq!(found, expected);
        }
    }

    proptest! {
        #[test]
        fn the_json_check_accepts_exactly_what_serde_json_reads(
            text in r#"([\[\]{},: ]|"[a-z]?"|"\\\\(u[dD][89cC]00|n|x)"|-?[0-9]{1,3}(\.[0-9])?(e[0-9]{1,3})?|true|null|nul|\x01|é){0,8}"#,
        ) {
            let read = |result: serde_json::Result<()>| result.map_err(|e| e.to_string());
            let expected = read(serde_json::from_str::<Value>(&text).map(drop));
            prop_assert_eq!(read(serde_json::from_str::<Json>(&text).map(drop)), expected, "{}", text);
        }
    }
}
