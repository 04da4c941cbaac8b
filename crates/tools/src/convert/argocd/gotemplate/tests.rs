//! Which templates are converted, what they become, and which are refused.

use relaybook_settings::render::{Body, Parameters, TextTemplate};

use super::*;

/// Converts a source for Slack. `!`: it was refused.
fn made(source: &str, spot: Spot) -> String {
    let context = BTreeMap::from([
        ("argocdUrl".to_owned(), "https://cd.example.com".to_owned()),
        ("brace".to_owned(), "{status}}".to_owned()),
    ]);
    let recipient = Recipient::Constant("deploys".to_owned());
    let scene = Scene { service: "slack", recipient: &recipient, context: &context, is_local: false };
    match convert(source, scene, spot) {
        Ok(made) => made.text,
        Err(refusal) => format!("!{}", refusal.why),
    }
}

/// Templates, and what they become in plain text.
const CONVERTED: &[(&str, &str)] = &[
    ("", ""),
    ("plain { text }", "plain { text }"),
    ("{{.app.metadata.name}} in {{ .app.metadata.namespace }}", "{{target.app.name}} in {{target.namespace}}"),
    ("{{.app.status.sync.revision}}{{.app.status.operationState.syncResult.revision}}", "{{revision}}{{revision}}"),
    ("{{.app.status.operationState.message}}", "{{message}}"),
    (
        "{{.context.argocdUrl}}/applications/{{.app.metadata.name}}",
        "https://cd.example.com/applications/{{target.app.name}}",
    ),
    ("{{if eq .serviceType \"slack\"}}:tada:{{end}} x", ":tada: x"),
    ("{{if ne .serviceType \"slack\"}}{{ .app.unknown }}{{else}}y{{end}}", "y"),
    ("to {{.recipient}}", "to deploys"),
    ("a {{- /* b */ -}} c", "ac"),
    ("{{\"{{\"}}x", "\\{{x"),
    ("{{$.app.metadata.name | upper}}", "{{upper target.app.name}}"),
    ("{{ .app.metadata.name | trunc 10 | upper }}", "{{upper (truncate target.app.name 10 \"\")}}"),
    ("{{ replace \"a\" \"b\" .app.metadata.name }}", "{{replace target.app.name \"a\" \"b\"}}"),
    (
        "{{ .app.metadata.labels.team | default \"nobody\" }}",
        "{{default (default target.app.labels.[team] \"\") \"nobody\"}}",
    ),
    ("{{ index .app.metadata.labels \"a.b/c\" }}", "{{default target.app.labels.[a.b/c] \"\"}}"),
    (
        "{{ index .app.metadata.annotations \"notifications.argoproj.io/x\" }}",
        "{{default target.app.annotations.[notifications.argoproj.io/x] \"\"}}",
    ),
    ("{{ .app.spec.project }}", "{{default target.app.fields.[.spec.project] \"\"}}"),
    ("{{ index .context \"argocdUrl\" }}", "https://cd.example.com"),
    (
        "{{ coalesce .app.status.health.message .app.metadata.name \"x\" }}",
        "{{default (default message target.app.name) \"x\"}}",
    ),
    ("{{ printf \"%s-%v\" .app.metadata.name .context.argocdUrl }}", "{{target.app.name}}-https://cd.example.com"),
    ("{{ if .app.metadata.name }}\na\n{{ end }}", "{{#if target.app.name}}\na\n{{/if}}"),
    ("{{ ternary \"a\" \"b\" (eq .app.metadata.name \"web\") }}", "{{#if (eq target.app.name \"web\")}}a{{else}}b{{/if}}"),
    (
        "{{if eq .app.metadata.name \"a\" \"b\"}}x{{else if contains \"c\" .app.metadata.name}}y{{else}}z{{end}}",
        "{{#if (or (eq target.app.name \"a\") (eq target.app.name \"b\"))}}x{{else if (contains target.app.name \"c\")}}y{{else}}z{{/if}}",
    ),
    (
        "{{if and (hasPrefix \"a\" .app.metadata.name) (not (hasSuffix \"b\" .app.metadata.name))}}x{{end}}",
        "{{#if (and (startsWith target.app.name \"a\") (not (endsWith target.app.name \"b\")))}}x{{/if}}",
    ),
    ("{{if or (eq .serviceType \"slack\") .app.metadata.name}}x{{end}}", "x"),
    ("{{if and (eq .serviceType \"slack\") .app.status.health.message}}x{{end}}", "{{#if message}}x{{/if}}"),
    ("{{if .app.status.operationState}}x{{else}}y{{end}}", "x"),
    ("{{if eq .app.status.sync.status \"OutOfSync\"}}x{{end}}", "{{#if drifted}}x{{/if}}"),
    ("{{if ne .app.status.health.status \"Healthy\"}}x{{end}}", "{{#if (not (eq status \"Current\"))}}x{{/if}}"),
    ("{{if eq .app.status.health.status \"Suspended\"}}x{{else}}y{{end}}", "y"),
    (
        "{{.app.status.sync.status}}",
        "{{#if drifted}}OutOfSync{{else if (eq reason \"ComparisonError\")}}Unknown{{else}}Synced{{/if}}",
    ),
    (
        "{{.app.status.health.status | lower}}",
        "{{#if (eq status \"Current\")}}healthy{{else if (eq status \"InProgress\")}}progressing{{else}}degraded{{/if}}",
    ),
    ("{{.app.status.operationState.finishedAt}}", "{{date time \"%Y-%m-%dT%H:%M:%SZ\"}}"),
    ("a{{range $i, $c := .app.status.conditions}}{{if $i}},{{end}}{{$c.type}}{{end}}b", "ab"),
    ("{{call .repo.FullNameByRepoURL .app.spec.source.repoURL}}", "{{target.source.owner}}/{{target.source.project}}"),
    (
        "{{if .app.spec.source}}{{.app.spec.source.repoURL}}{{else if .app.spec.sources}}x{{end}}",
        "{{target.source.repository}}",
    ),
    ("{{quote .app.metadata.name}}", "\"{{target.app.name}}\""),
    (
        "{{urlquery .app.metadata.name}}{{sha256sum .app.metadata.name}}",
        "{{urlencode target.app.name}}{{sha256 target.app.name}}",
    ),
];

/// Templates that have no counterpart, and a part of the reason.
const REFUSED: &[(&str, &str)] = &[
    ("{{.app.unknown}}", "no such field"),
    ("{{.app.spec.destination.server}}", "a change has no such field"),
    ("{{.context.missing}}", "has no such value"),
    ("{{.secrets.token}}", "could not be masked"),
    ("{{$x := .app.metadata.name}}{{$x}}", "variable"),
    ("{{with .app}}{{.x}}{{end}}", "no counterpart"),
    ("{{template \"x\"}}", "no counterpart"),
    ("{{len .app.metadata.name}}", "the function has no counterpart"),
    ("{{regexMatch \"a\" .app.metadata.name}}", "the function has no counterpart"),
    ("{{now}}", "the function has no counterpart"),
    ("{{(call .repo.GetCommitMetadata .app.status.sync.revision).Author}}", "a field of a result"),
    ("{{call .time.Parse .app.status.reconciledAt}}", "the function has no counterpart"),
    ("{{call .sync.GetInfoItem .app \"x\"}}", "the function has no counterpart"),
    ("{{trunc -3 .app.metadata.name}}", "with a number of characters"),
    ("{{printf \"%d\" .app.metadata.name}}", "only %s and %v"),
    ("{{upper .app.spec.source}}", "cannot be an argument"),
    ("{{eq .app.metadata.name \"x\"}}", "a condition cannot be a value"),
    ("{{index .app.metadata.annotations \"example.com/x\"}}", "only if it is public"),
    ("{{.app.metadata.name}}}", "a brace follows a tag"),
    ("{ {{- .app.metadata.name}}", "a brace is before a tag"),
    ("\\{{.app.metadata.name}}", "a backslash"),
    ("{{\"{\"}}{{.context.brace}}", "a brace is before a tag"),
    ("\\{{\"{{status}}\"}}", "a backslash"),
    ("{{printf \"a\\\\%s\" .app.metadata.name}}", "a backslash"),
    ("{{printf \"{%s\" .app.metadata.name}}", "a brace is before a tag"),
    ("{{ternary \"a\" \"b\" .app.metadata.name}}", "no counterpart"),
    ("{{replace \"\" \"x\" .app.metadata.name}}", "an empty text"),
    ("{{trunc 0 .app.metadata.name}}", "with a number"),
    ("{{gt .app.metadata.name \"a\"}}", "no counterpart"),
    ("{{eq .app.metadata.name 5}}", "a comparison with a number"),
    ("{{upper (or .app.metadata.name \"a\")}}", "cannot be an argument"),
    ("{{replace \"{\" \"x\" .app.metadata.name}}", "such characters"),
    ("{{if .app.metadata.name}}x", "not closed"),
];

#[test]
fn templates_become_templates_that_relaybook_accepts() {
    for (source, expected) in CONVERTED {
        let text = made(source, Spot::Plain);
        assert_eq!(text, *expected, "{source}");
        if let Err(error) = TextTemplate::compile(&text, &Parameters::default()) {
            panic!("{source}: {text}: {error}");
        }
    }
}

#[test]
fn what_has_no_counterpart_is_refused() {
    for (source, words) in REFUSED {
        let text = made(source, Spot::Plain);
        assert!(text.starts_with('!') && text.contains(words), "{source}: {text}");
    }
}

#[test]
fn texts_fit_into_json() {
    for (source, spot, expected) in [
        ("a \"{{.app.metadata.name}}\"\n", Spot::Quoted, "a \\\"{{target.app.name}}\\\"\\n"),
        ("{{.context.argocdUrl}}\"", Spot::Quoted, "https://cd.example.com\\\""),
        ("{\"a\": {{.app.metadata.name | toJson}}}", Spot::Json, "{\"a\": {{json target.app.name}} }"),
        (
            "{\"a\": {{quote .app.metadata.name}}, \"b\": \"{{.app.metadata.name}}\"}",
            Spot::Json,
            "{\"a\": {{json target.app.name}}, \"b\": \"{{target.app.name}}\"}",
        ),
    ] {
        let text = made(source, spot);
        assert_eq!(text, expected, "{source}");
        let body = if spot == Spot::Quoted { format!("{{\"text\": \"{text}\"}}") } else { text };
        if let Err(error) = Body::compile("application/json", &body, &Parameters::default()) {
            panic!("{body}: {error}");
        }
    }
}

#[test]
fn random_sources_are_converted_or_refused() {
    const PARTS: [&str; 24] = [
        "{{",
        "}}",
        "{{- ",
        " -}}",
        "if ",
        "else",
        "end",
        "range ",
        ".app.metadata.name",
        ".app.status.sync.status",
        "eq ",
        "\"x\"",
        "'",
        "`",
        "(",
        ")",
        " | ",
        "upper ",
        "$x := ",
        "{",
        "}",
        "\\",
        "é\n",
        "/* */",
    ];
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let source: String = (0..random.usize(0..14)).map(|_| PARTS[random.usize(0..PARTS.len())]).collect();
        for spot in [Spot::Plain, Spot::Quoted, Spot::Json] {
            made(&source, spot);
        }
    }
}
