//! Property tests: what is true for every template and every value.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use super::{
    Body, Data, HeaderTemplate, MAX_BODY, MAX_NESTING, MAX_SOURCE, MAX_TAGS, Parameters, RenderError, UrlTemplate, Values,
};
use relaybook_api::TransitionType;

/// Returns data with this text as message, as revision, and in labels.
fn data(text: &str) -> Data {
    let mut data = Data::sample(TransitionType::Failed);
    text.clone_into(&mut data.message);
    text.clone_into(&mut data.revision);
    let labels = BTreeMap::from([(text.to_owned(), "x".to_owned()), ("team".to_owned(), text.to_owned())]);
    data.pipeline.labels = labels.into();
    data
}

/// Returns data with this text in all fields that can contain any text.
fn everywhere(text: &str) -> Data {
    let mut data = data(text);
    let texts = [
        &mut data.id,
        &mut data.pipeline.name,
        &mut data.pipeline.namespace,
        &mut data.pipeline.uid,
        &mut data.environment,
        &mut data.subject.name,
        &mut data.subject.app,
        &mut data.target.name,
        &mut data.target.namespace,
        &mut data.target.cluster.name,
        &mut data.target.app.kind,
        &mut data.target.app.name,
        &mut data.promotion.name,
        &mut data.promotion.from,
        &mut data.promotion.revision,
        &mut data.promotion.reason,
        &mut data.running_revision,
        &mut data.previous_revision,
        &mut data.reason,
        &mut data.notification.name,
    ];
    for field in texts {
        text.clone_into(field);
    }
    data
}

/// Returns data with many labels, for loops.
fn many_labels(count: usize) -> Data {
    let mut data = data("x");
    data.pipeline.labels = (0..count).map(|n| (format!("label-{n}"), "v".repeat(20))).collect::<BTreeMap<_, _>>().into();
    data
}

/// Runs on a small stack. A stack overflow would abort the process.
fn on_small_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(768 * 1024);
        thread.spawn_scoped(scope, work).unwrap().join().unwrap()
    })
}

/// Pieces of templates.
const PIECES: &str = r#"{{ }} {{{ }}} {{{{ }}}} {{# {{/ {{~ ~}} {{! {{!-- --}} {{> {{* {{& {{^}} {{else}} {{else~ \ \\ ( ) [ ] { } " ' . .. ../ / ./
    @root @index @key this as |a a= 1 -1.5E3 true null status message drifted pipeline.labels target typo é 🚩 % ? # & , : text
    and or not eq default json lookup truncate replace date time commit short upper if each with
    {{status}} {{json~message}} {{kind}} {{this}} {{@key}} {{../status}} {{!~note~}} {{default~pipeline.labels.team~""}} {"a":" "}
    {{#if~drifted}} {{#unless~drifted}} {{#if~(eq~type~"Failed")}} {{else~if~drifted}} {{else~unless~coalesced}} {{elseif~drifted}}
    {{#each~pipeline.labels}} {{#with~target.app}} {{/if}} {{/unless}} {{/each}} {{/with}} {{~#if~status~}} {{~else~}} {{~/if~}}"#;

/// Returns pieces of templates in any order, balanced or not. A `~` within a piece means a space. At the ends of a piece it is a `~`.
fn template() -> impl Strategy<Value = String> {
    let spaced = |piece: &str| {
        let inner = piece.trim_start_matches("{{~").trim_end_matches("~}}");
        piece.replacen(inner, &inner.replace('~', " "), 1)
    };
    let pieces: Vec<String> =
        PIECES.split_whitespace().map(spaced).chain([" ", "\n", "\r\n", "\t", "\0"].map(str::to_owned)).collect();
    vec((select(pieces), any::<bool>()), 0..24).prop_map(|pieces| {
        pieces.iter().flat_map(|(piece, space)| [piece.as_str(), if *space { " " } else { "" }]).collect()
    })
}

/// Returns conditions that are valid at any depth of scopes.
fn condition() -> impl Strategy<Value = String> {
    let leaf = select(vec![
        "@root.status",
        "@root.drifted",
        "@root.serial",
        "@root/pipeline/labels",
        "@root.pipeline.annotations",
        "\"\"",
        "'a'",
        "0",
        "1",
        "true",
        "false",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(3, 12, 2, |inner| {
        let call =
            (select(vec!["and", "or", "eq"]), inner.clone(), inner.clone()).prop_map(|(f, a, b)| format!("({f} {a} {b})"));
        prop_oneof![call, inner.prop_map(|a| format!("(not {a})"))]
    })
}

/// Returns well-formed templates with the features that Relaybook shares with Handlebars.
fn common_template() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[a-z \n\t\\\\{\"}]{0,4}"
            .prop_filter("no tags of its own", |text| !text.contains("{{") && !text.ends_with(['{', '\\'])),
        select(vec![
            "{{@root.status}}",
            "{{~@root.type~}}",
            "{{@root/target/app.kind}}",
            "{{! note }}",
            "\n{{!-- }} --}}\n",
            "\\{{raw}}",
            "{{eq 1 1}}",
            "{{#with @root.target}}{{name}}{{#with app}}{{./kind}}{{../namespace}}{{@root.status}}{{/with}}{{/with}}",
            "{{#each @root.pipeline.labels}}{{@index}}{{@key}}={{this}}{{@first}}{{@last}}{{/each}}",
            "{{#each @root.pipeline.labels}}{{#each @root.pipeline.labels}}{{@key}}{{../this}}{{/each}}{{/each}}",
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let body = || vec(inner.clone(), 0..4).prop_map(|nodes| nodes.concat());
        let name = || select(vec!["if", "unless"]);
        let chain = vec((name(), condition(), body()), 0..3).prop_map(|links| {
            links
                .into_iter()
                .map(|(name, c, body)| ["{{else ", name, " ", &c, "}}", &body].concat())
                .collect::<Vec<_>>()
                .concat()
        });
        let otherwise = prop_oneof![
            Just(String::new()),
            body().prop_map(|b| format!("{{{{else}}}}{b}")),
            body().prop_map(|b| format!("\n {{{{^}}}}\n{b}"))
        ];
        let choice = (name(), condition(), body(), chain, otherwise).prop_map(|(name, c, body, chain, otherwise)| {
            format!("{{{{#{name} {c}}}}}{body}{chain}{otherwise}{{{{/{name}}}}}")
        });
        let each = (select(vec!["labels", "annotations"]), body(), body())
            .prop_map(|(map, b, e)| format!("{{{{#each @root.pipeline.{map}}}}}{b}{{{{else}}}}{e}{{{{/each}}}}"));
        prop_oneof![choice, each, body()]
    })
}

/// Returns texts with characters that have a special meaning in some context.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[a-z \"'\\\\\n\r\t\u{0}<>&%+=/?#.;:@{}\\[\\]\u{e9}\u{2028}\u{1F6A9}]{0,20}",
        select(vec![
            ".", "..", "%2e", "%2E%2e", ".%2e", "/", "//", "../..", "a/../b", "?", "#", "&a=b", "", "\r\nX: y", "\\u0022",
            "{{id}}"
        ])
        .prop_map(str::to_owned),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_template_ends_in_a_text_or_an_error_of_one_line(source in template()) {
        let data = data("a \"b\"");
        on_small_stack(|| {
            for content_type in ["application/json", "text/plain", "text/html"] {
                let rendered = Body::compile(content_type, &source, &Parameters::default()).and_then(|body| body.render(&data.values()));
                if let Err(e) = rendered {
                    assert!(!e.to_string().contains('\n'), "{e}");
                }
            }
            let _ = HeaderTemplate::compile("X", &source, &Parameters::default()).map(|header| header.render(&data.values()));
            let _ = UrlTemplate::compile(&format!("https://example.com/{source}"), &Parameters::default()).map(|url| url.render(&data.values()));
            let _ = UrlTemplate::compile(&source, &Parameters::default()).map(|url| url.render(&data.values()));
        });
    }

    #[test]
    fn an_accepted_template_renders_as_in_handlebars(source in common_template()) {
        let data = data("x");
        let mut handlebars = handlebars::Handlebars::new();
        handlebars.set_strict_mode(true);
        handlebars.register_escape_fn(handlebars::no_escape);
        let expected = handlebars.render_template(&source, &data);
        match Body::compile("text/plain", &source, &Parameters::default()).and_then(|body| body.render(&data.values())) {
            Ok(text) => prop_assert_eq!(text, expected.unwrap()),
            Err(e) => prop_assert!(["nested", "tags", "is an object"].iter().any(|word| e.to_string().contains(word)), "{e}"),
        }
    }

    #[test]
    fn any_value_in_a_json_string_is_parsed_back(text in text()) {
        let body = Body::compile("application/json", r#"{"{{message}}":["{{revision}}","a {{default pipeline.labels.team ""}} b",{{json message}}]}"#, &Parameters::default());
        let body = body.unwrap().render(&data(&text).values()).unwrap();
        let parsed: Value = serde_json::from_str(&body).unwrap();
        let expected = serde_json::json!({ text.clone(): [text, format!("a {text} b"), text] });
        prop_assert_eq!(parsed, expected);
    }

    #[test]
    fn any_value_in_any_field_is_parsed_back(text in text()) {
        let data = everywhere(&text);
        let parameters = Parameters::compile([("own", Some("{{message}}"))]).unwrap();
        let values = Values::new(&data, &parameters).unwrap();
        let mut expected = serde_json::to_value(&data).unwrap();
        expected["parameters"] = serde_json::json!({"own": text});
        // What is recorded of an application object, and the answers of a forge, are parts of the whole only if there is something.
        expected["target"]["app"].as_object_mut().unwrap().retain(|_, value| *value != serde_json::json!({}) && *value != false);
        expected["git"].as_object_mut().unwrap().retain(|_, value| *value != "");
        expected.as_object_mut().unwrap().remove("pullRequest");
        let whole = Body::compile("application/json", "{{json @root}}", &parameters).unwrap().render(&values).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(&whole).unwrap(), expected);
        for field in ["id", "pipeline.name", "target.app.kind", "target.name", "message", "reason", "notification.name", "parameters.own"] {
            let body = Body::compile("application/json", &format!(r#"{{"a": "{{{{{field}}}}}"}}"#), &parameters).unwrap();
            let body: Value = serde_json::from_str(&body.render(&values).unwrap()).unwrap();
            prop_assert_eq!(&body["a"], &text, "{}", field);
        }
    }

    #[test]
    fn no_parameter_changes_the_shape_of_a_url_or_a_header(text in text()) {
        let parameters = Parameters::compile([("own", Some("{{message}}"))]).unwrap();
        let values = Values::new(&data(&text), &parameters).unwrap();
        let url = UrlTemplate::compile("https://example.com/a/{{parameters.own}}/b", &parameters).unwrap();
        if let Ok(url) = url.render(&values) {
            prop_assert_eq!((url.path_segments().unwrap().count(), url.query(), url.fragment()), (3, None, None));
            prop_assert_eq!(url.origin().ascii_serialization(), "https://example.com");
        }
        let header = HeaderTemplate::compile("X-Title", "{{parameters.own}}", &parameters).unwrap();
        prop_assert!(header.render(&values).is_ok_and(|value| !value.contains(['\r', '\n'])) || !text.is_ascii() || text.contains(|c: char| c.is_control()));
    }

    #[test]
    fn any_labels_render_to_valid_json(labels in proptest::collection::btree_map(text(), text(), 0..4)) {
        let mut data = data("");
        data.pipeline.labels = labels.clone().into();
        let source = r#"{ {{#each pipeline.labels}}"{{@key}}":"{{this}}"{{#unless @last}},{{/unless}}{{/each}} }"#;
        let body = Body::compile("application/json", source, &Parameters::default()).unwrap().render(&data.values()).unwrap();
        prop_assert_eq!(serde_json::from_str::<BTreeMap<String, String>>(&body).unwrap(), labels);
    }

    #[test]
    fn any_form_value_is_parsed_back(text in text()) {
        let body = Body::compile("application/x-www-form-urlencoded", "a=1&m={{message}}&b={{revision}}", &Parameters::default()).unwrap();
        let body = body.render(&data(&text).values()).unwrap();
        let pairs: Vec<(String, String)> = ::url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
        let expected = [("a", "1"), ("m", &text), ("b", &text)].map(|(k, v)| (k.to_owned(), v.to_owned()));
        prop_assert_eq!(pairs, expected);
    }

    #[test]
    fn no_value_ends_an_attribute_or_a_text(text in text()) {
        let body = Body::compile("text/html", "{{message}}", &Parameters::default()).unwrap().render(&data(&text).values()).unwrap();
        prop_assert!(!body.contains(['<', '>', '"', '\'', '`', '=', '\0']));
    }

    #[test]
    fn no_value_changes_the_shape_of_a_url(text in text()) {
        let url = UrlTemplate::compile("https://example.com:8443/a/{{message}}/b{{revision}}/c?d={{message}}&{{revision}}=e&f", &Parameters::default()).unwrap();
        match url.render(&data(&text).values()) {
            Ok(rendered) => {
                prop_assert_eq!(rendered.origin().ascii_serialization(), url.origin());
                prop_assert_eq!(rendered.path_segments().unwrap().count(), 4);
                let decode = |segment: &str| percent_encoding::percent_decode_str(segment).decode_utf8_lossy().into_owned();
                let segments: Vec<String> = rendered.path_segments().unwrap().map(decode).collect();
                prop_assert_eq!(segments, ["a".to_owned(), text.clone(), format!("b{text}"), "c".to_owned()]);
                let pairs: Vec<(String, String)> = rendered.query_pairs().into_owned().collect();
                let expected = [("d", &*text), (&*text, "e"), ("f", "")].map(|(k, v)| (k.to_owned(), v.to_owned()));
                prop_assert_eq!(pairs, expected);
                prop_assert!(rendered.fragment().is_none() && rendered.username().is_empty() && rendered.password().is_none());
            }
            Err(e) => prop_assert!(matches!(text.as_str(), "" | "." | ".."), "{text:?}: {e}"),
        }
    }

    #[test]
    fn no_value_adds_a_line_to_a_header(text in text()) {
        let header = HeaderTemplate::compile("X-Title", "a {{message}} {{json revision}}", &Parameters::default()).unwrap();
        match header.render(&data(&text).values()) {
            Ok(value) => prop_assert!(value.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b))),
            Err(e) => prop_assert!(text.chars().any(|c| !matches!(c, '\t' | ' '..='~')), "{text:?}: {e}"),
        }
    }
}

#[test]
fn compiled_templates_can_be_shared_between_threads() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<Body>();
    shared::<UrlTemplate>();
    shared::<HeaderTemplate>();
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    let n = MAX_SOURCE / 16;
    let deep = [
        format!("{}{}", "{{#if drifted}}".repeat(MAX_NESTING), "{{/if}}".repeat(MAX_NESTING)),
        format!("{{{{json {}id{}}}}}", "(not ".repeat(MAX_NESTING), ")".repeat(MAX_NESTING)),
        format!("{}{}", "{{#if drifted}}".repeat(200), "{{/if}}".repeat(200)),
        "{{#if drifted}}".repeat(MAX_TAGS),
        format!("{{{{#if drifted}}}}{}{{{{/if}}}}", "{{else if coalesced}}x".repeat(MAX_TAGS - 2)),
        format!("{{{{{}", "(".repeat(n)),
        format!("{{{{{}id{}}}}}", "(".repeat(n), ")".repeat(n)),
        format!("{{{{json {}}}}}", "(upper ".repeat(n)),
        format!("{{{{json {}", "[".repeat(n)),
        format!("{{{{json {}1{}}}}}", "[".repeat(n), "]".repeat(n)),
        format!("{{{{json {}", "{\"a\":".repeat(n)),
        format!("{{{{{}a}}}}", "a.".repeat(n)),
        format!("{{{{{}a}}}}", "../".repeat(n)),
        format!("{{{{{}a}}}}", "[a].".repeat(n)),
        format!("{{{{#with pipeline.labels}}}}{{{{{}a}}}}{{{{/with}}}}", "[a].".repeat(n)),
        format!("{{{{and {}}}}}", "id ".repeat(n)),
        format!("{{{{upper {}}}}}", "a=id ".repeat(n)),
    ];
    for source in deep {
        on_small_stack(|| {
            let start: String = source.chars().take(40).collect();
            match Body::compile("text/plain", &source, &Parameters::default()) {
                Ok(body) => assert!(body.render(&many_labels(2).values()).is_ok(), "{start}"),
                Err(e) => assert!(e.to_string().len() < 450, "{start}: {e}"),
            }
        });
    }
}

#[test]
fn the_work_of_rendering_is_bounded() {
    let nested = |inner: &str| {
        format!("{}{inner}{}", "{{#each @root.pipeline.labels}}".repeat(MAX_NESTING), "{{/each}}".repeat(MAX_NESTING))
    };
    let grow = "(replace ".repeat(14) + "\"aaaaaaaa\"" + &" \"a\" \"aaaaaaaa\")".repeat(14);
    for source in [
        nested(""),
        nested("x"),
        nested("{{@key}}"),
        format!("{{{{json {grow}}}}}"),
        "{{json pipeline.labels}}".repeat(MAX_TAGS),
    ] {
        let body = Body::compile("text/plain", &source, &Parameters::default()).unwrap();
        let start = std::time::Instant::now();
        let error = match body.render(&many_labels(500).values()).unwrap_err() {
            RenderError::Changeable(error) => *error,
            error => error,
        };
        let named = matches!(
            error,
            RenderError::TooMuchWork { .. } | RenderError::OutputTooLong(MAX_BODY) | RenderError::HelperFailed { .. }
        );
        assert!(named, "{error}");
        // The limit is generous, because tests run without optimisation and in parallel. It only shows that the run ends.
        assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
    }
}

/// A loop over a long parameter without a field is not free, and reads the parameter once.
#[test]
fn the_work_of_listing_fields_is_bounded() {
    let parameters = Parameters::compile([("a", Some(format!("a: {}", " ".repeat(60_000)).as_str()))]).unwrap();
    let labels = "{{#each @root.pipeline.labels}}";
    let source = format!("{labels}{labels}{{{{#each @root.parameters.a}}}}{{{{/each}}}}{}", "{{/each}}".repeat(2));
    let body = Body::compile("text/plain", &source, &parameters).unwrap();
    let render = |labels| body.render(&Values::new(&many_labels(labels), &parameters).unwrap());
    let start = std::time::Instant::now();
    assert_eq!(render(200).unwrap(), "");
    let error = render(500).unwrap_err().to_string();
    assert!(error.contains("too much work"), "{error}");
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

#[test]
fn compiling_is_not_quadratic() {
    let fill = |piece: &str| piece.repeat(MAX_SOURCE / piece.len());
    let tags = |tag: &str| format!("{}{}", "x".repeat(MAX_SOURCE - tag.len() * MAX_TAGS), tag.repeat(MAX_TAGS));
    for source in [
        fill("\\"),
        fill("{{!--"),
        fill("{{\""),
        fill("{{["),
        fill("}}"),
        fill("{ {"),
        tags("{{id}}"),
        tags("\\{{"),
        tags("{{! -- --}}"),
    ] {
        let start = std::time::Instant::now();
        let _ = Body::compile("text/plain", &source, &Parameters::default());
        assert!(start.elapsed().as_secs() < 10, "{:?}: {:?}", &source[..9], start.elapsed());
    }
}
