//! Tests that `relaybook lint` and the API server agree: both check the same manifests. The API server says how to correct what it refuses.
//! Also tests the command line of `relaybook lint`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use futures::{StreamExt as _, stream};
use relaybook_api::ObjectName;
use relaybook_tools::lint::{File, Options, Source, lint};
use serde_json::{Value, json};

use crate::support::World;
use crate::validation::{
    app, bad, by_commit, by_pull_request, endpoint, environments, good, named, notification, object, pipeline, post,
    promoting, promotion, prune,
};

/// Cases that the API server accepts and lint refuses, with the reason.
const MORE: &[(&str, &str)] = &[
    ("a delivery", "the controller creates them by the same API; people do not write them"),
    ("a delivery with its outcome", "the controller creates them by the same API; people do not write them"),
    ("a name that the API server makes", "kubectl apply cannot apply it"),
    ("a field that no transition has", "templates are compiled by the controller"),
    ("a header with an unknown helper", "templates are compiled by the controller"),
    ("a header twice, but for capitals", "a rule that compares keys of maps exceeds its budget"),
    ("a branch with a space", "names of branches are checked by the controller"),
    ("a literal IPv6 address", "http requires a flag of the controller"),
    ("a parameter that the template does not take", "parameters are known to the controller"),
    ("a promotion under another name", "the promotion controller withdraws it"),
    ("a path upwards", "paths are checked by the controller"),
    ("a repository over http", "http requires a flag of the controller"),
    ("a selector with an unknown operator", "the common schema of label selectors allows any string"),
    ("a template that a layer brings", "without a layer it is incomplete, which only the controller reports"),
    ("a template that is no JSON", "templates are compiled by the controller"),
    ("a title with an unknown field", "templates are compiled by the controller"),
    ("a URL that is no repository", "only the controller knows the URLs of each forge"),
    ("http to any host", "http requires a flag of the controller"),
    ("many targets", "all have the same name, which a rule cannot check within its budget"),
    ("more than 256 targets", "the schema limits only the targets of one environment"),
    ("no parameter where one is needed", "parameters are known to the controller"),
    ("the least notification", "it is incomplete, so it sends nothing"),
    ("two targets of one name", "the controller composes the names"),
];

/// Maximum number of manifests that are posted at a time.
const POSTS: usize = 16;

/// What is special about a manifest, and the manifest.
type Case = (&'static str, Value);

/// Returns all cases. Those of `bad` and `good` come first.
fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = bad().into_iter().map(|(what, object, _)| (what, object)).chain(good()).collect();
    // Both tables omit fields by setting them to null.
    for (_, object) in &mut all {
        prune(object);
    }
    all.into_iter().chain(metadata()).chain(types()).chain(bounds()).chain(nulls()).chain(controllers()).collect()
}

fn with_metadata(metadata: Value) -> Value {
    let mut object = notification(json!({}));
    object["metadata"] = metadata;
    object
}

fn metadata() -> Vec<Case> {
    let labels = |labels: Value| with_metadata(json!({"name": "n", "labels": labels}));
    let mut elsewhere = notification(json!({}));
    elsewhere["specs"] = json!({});
    let with_status = |status: Value| {
        let mut object = notification(json!({}));
        object["status"] = status;
        object
    };
    let mut bare = notification(json!({}));
    bare.as_object_mut().unwrap().remove("spec");
    vec![
        ("a name with a dot", with_metadata(json!({"name": "a.b"}))),
        ("a name with capitals", with_metadata(json!({"name": "Deploys"}))),
        ("a name that ends with a dash", with_metadata(json!({"name": "deploys-"}))),
        ("no name", with_metadata(json!({}))),
        ("a name that is a number", with_metadata(json!({"name": 5}))),
        ("a name that the API server makes", with_metadata(json!({"generateName": "n-"}))),
        ("labels", labels(json!({"team": "a", "example.com/tier": "Front_end.1", "empty": ""}))),
        ("a label with a space", labels(json!({"team": "a b"}))),
        ("a label that is a number", labels(json!({"team": 1}))),
        ("a label's key with two slashes", labels(json!({"a/b/c": "d"}))),
        ("a label that is too long", labels(json!({"team": "a".repeat(64)}))),
        ("an annotation with any text", with_metadata(json!({"name": "n", "annotations": {"Note": "any text / at all"}}))),
        ("an annotation's key with a space", with_metadata(json!({"name": "n", "annotations": {"a b": ""}}))),
        ("an unknown field of the metadata", with_metadata(json!({"name": "n", "lables": {}}))),
        ("an unknown field of the object", elsewhere),
        ("no spec", bare),
        ("a status", with_status(json!({"pending": 1}))),
        ("a status that does not fit", with_status(json!({"pending": "many"}))),
        ("an unknown field of the status", with_status(json!({"pendin": 1}))),
        ("a finalizer", with_metadata(json!({"name": "n", "finalizers": ["example.com/hold"]}))),
        ("finalizers that are a text", with_metadata(json!({"name": "n", "finalizers": "example.com/hold"}))),
        ("an unknown kind", object("Notificaton", "n", json!({}))),
        ("a promotion under another name", named("to-prod".to_owned(), promotion(json!({})))),
    ]
}

fn types() -> Vec<Case> {
    let one = json!([{"namespace": "a"}]);
    vec![
        ("a spec that is a text", object("Notification", "n", json!("x"))),
        ("triggers that are an object", notification(json!({"triggers": {"type": "Deployed"}}))),
        ("a trigger that is a text", notification(json!({"triggers": ["Deployed"]}))),
        ("a trigger without a type", notification(json!({"triggers": [{"environments": ["dev"]}]}))),
        ("a header that is a number", endpoint(json!({"headers": {"X-A": 1}}))),
        ("suspend in words", notification(json!({"suspend": "yes"}))),
        ("a rate with a fraction", notification(json!({"delivery": {"rate": {"perSecond": 1.5}}}))),
        ("a rate with a fraction of nothing", notification(json!({"delivery": {"rate": {"perSecond": 5.0}}}))),
        ("a rate in words", notification(json!({"delivery": {"rate": {"perSecond": "5"}}}))),
        ("a timeout that is a number", endpoint(json!({"timeout": 15}))),
        ("environments that are an object", pipeline(json!({"appRef": app(), "environments": {"dev": one}}))),
        ("a target that is a text", environments(json!([{"name": "dev", "targets": ["a"]}]))),
        ("a target without a namespace", environments(json!([{"name": "dev", "targets": [{}]}]))),
        ("an environment without a name", environments(json!([{"targets": one}]))),
        (
            "an appRef without a kind",
            pipeline(json!({"appRef": {"apiVersion": "v1", "name": "a"}, "environments": [
            {"name": "dev", "targets": one}]})),
        ),
    ]
}

fn bounds() -> Vec<Case> {
    let one = json!([{"namespace": "a"}]);
    let many = |n: usize| (0..n).map(|i| json!({"name": format!("e{i}"), "targets": one})).collect::<Value>();
    let spread = |n: usize| (0..n).map(|i| json!({"namespace": format!("n{i}")})).collect::<Value>();
    vec![
        ("32 environments", environments(many(32))),
        ("33 environments", environments(many(33))),
        ("256 targets", environments(json!([{"name": "dev", "targets": spread(256)}]))),
        ("257 targets of one environment", environments(json!([{"name": "dev", "targets": spread(257)}]))),
        ("a long name of an environment", environments(json!([{"name": "d".repeat(64), "targets": one}]))),
        ("an environment without a letter", environments(json!([{"name": "", "targets": one}]))),
        ("33 triggers", notification(json!({"triggers": vec![json!({"type": "Failed"}); 33]}))),
        ("a URL that is far too long", endpoint(json!({"url": format!("https://example.com/{}", "a".repeat(5000))}))),
        ("a body that is far too long", notification(json!({"template": {"inline": {"body": "a".repeat(300_000)}}}))),
        (
            "an environment three times",
            environments(json!([
            {"name": "dev", "targets": one}, {"name": "dev", "targets": one}, {"name": "dev", "targets": one}])),
        ),
    ]
}

fn nulls() -> Vec<Case> {
    vec![
        ("a null of what can be null", endpoint_with("urlFrom", Value::Null)),
        ("a null of what must be there", named_null()),
        ("a null entry of a list", notification(json!({"triggers": [null]}))),
        ("an object that is null", endpoint_with("tls", Value::Null)),
        ("a null header", endpoint_with("headers", json!({"X-A": null}))),
    ]
}

fn endpoint_with(field: &str, value: Value) -> Value {
    let mut object = notification(json!({}));
    object["spec"]["endpoint"][field] = value;
    object
}

fn named_null() -> Value {
    let mut object = environments(json!([{"name": "dev", "targets": [{"namespace": "a"}]}]));
    object["spec"]["environments"][0]["name"] = Value::Null;
    object
}

/// Manifests that only the controllers can refuse, and manifests that they accept.
fn controllers() -> Vec<Case> {
    let body = |body: &str| notification(json!({"template": {"inline": {"body": body}}}));
    let builtin = |name: &str, parameters: Value| {
        let mut object = notification(json!({}));
        object["spec"]["template"] = json!({"builtin": name, "parameters": parameters});
        object
    };
    let mut elsewhere = notification(json!({}));
    elsewhere["spec"]["template"] = json!({"configMapKeyRef": {"name": "t", "key": "k"}});
    let one = json!([{"namespace": "a"}]);
    let half = (0..129).map(|i| json!({"namespace": format!("n{i}")})).collect::<Value>();
    vec![
        ("a template in a ConfigMap that is elsewhere", elsewhere),
        ("a field that no transition has", body(r#"{"a": "{{revison}}"}"#)),
        ("a template that is no JSON", body("{")),
        ("a header with an unknown helper", endpoint(json!({"headers": {"X-A": "{{shout revision}}"}}))),
        ("a header twice, but for capitals", endpoint(json!({"headers": {"X-A": "1", "x-a": "2"}}))),
        ("http to a service", endpoint(json!({"url": "http://chat.team-a.svc:8080/in"}))),
        ("http to any host", endpoint(json!({"url": "http://example.com/in"}))),
        ("a built-in template", builtin("slack", json!({}))),
        ("a parameter that the template does not take", builtin("slack", json!({"chanel": "x"}))),
        ("no parameter where one is needed", builtin("telegram", json!({}))),
        (
            "a selector with an unknown operator",
            notification(
                json!({"pipelineSelector": {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["x"]}]}}),
            ),
        ),
        (
            "two targets of one name",
            environments(json!([{"name": "dev", "targets": [{"namespace": "a"}, {"namespace": "a"}]}])),
        ),
        (
            "more than 256 targets",
            environments(json!([{"name": "dev", "targets": half}, {"name": "prod", "targets": half}])),
        ),
        (
            "a pipeline with a name of its own",
            named("shop".to_owned(), environments(json!([{"name": "dev", "targets": one}]))),
        ),
    ]
}

fn options() -> Options {
    Options {
        namespace: "linted".to_owned(),
        config_map: ObjectName::new("relaybook-system", "relaybook-config"),
        cluster_name: "in-cluster".to_owned(),
        allow_http: false,
        cross_namespace_refs: true,
    }
}

/// Returns the findings of lint for each case. Pipelines are checked separately, because their layers would override the Notifications.
fn verdicts(cases: &[Case]) -> BTreeMap<&'static str, Vec<String>> {
    let (pipelines, others): (Vec<_>, Vec<_>) = cases.iter().partition(|(_, object)| object["kind"] == "Pipeline");
    let findings = [pipelines, others].map(|cases| {
        let files: Vec<_> = cases.iter().map(|(what, object)| File::named(what, object.to_string())).collect();
        lint(&files, &options()).unwrap().findings
    });
    let findings = findings.concat();
    let said = |what: &str| findings.iter().filter(|f| f.file == what).map(|f| format!("{f} ({:?})", f.source)).collect();
    cases.iter().map(|(what, _)| (*what, said(what))).collect()
}

/// Posts manifests without storing them. Returns the answers of the API server in the same order.
async fn posted<'a>(world: &World, manifests: impl Iterator<Item = &'a Value>) -> Vec<Result<Value, String>> {
    let posts: Vec<_> = manifests.map(|manifest| post(world, manifest, true)).collect();
    stream::iter(posts).buffered(POSTS).collect().await
}

/// Returns the answers about `bad` that do not contain their words, and those about `good` that are refusals.
fn unexpected(cases: &[Case], answers: &[Result<Value, String>]) -> Vec<String> {
    let refused = bad().into_iter().map(|(_, _, words)| Some(words));
    let expected = refused.chain(good().into_iter().map(|_| None));
    let mut wrong = Vec::new();
    for ((words, (what, _)), answer) in expected.zip(cases).zip(answers) {
        match (answer, words) {
            (Ok(_), None) => {}
            (Err(message), Some(words)) if message.contains(words) => {}
            (Ok(_), Some(words)) => wrong.push(format!("{what}: the API server accepts it instead of: {words}")),
            (Err(message), _) => wrong.push(format!("{what}: the API server refuses it: {message}")),
        }
    }
    wrong
}

#[tokio::test]
async fn the_api_server_refuses_invalid_objects_with_a_remedy_and_lint_agrees() {
    let world = World::new("linted").await;
    let cases = renamed(cases());
    let said = verdicts(&cases);
    assert!(cases.len() >= 60 && said.len() == cases.len(), "{} cases, {} names", cases.len(), said.len());
    let answers = posted(&world, cases.iter().map(|(_, object)| object)).await;
    let (mut wrong, mut more) = (unexpected(&cases, &answers), BTreeSet::new());
    for ((what, _), answer) in cases.iter().zip(&answers) {
        match (answer, said[what].as_slice()) {
            (Ok(_), []) => {}
            (Err(_), findings) if !findings.is_empty() => {}
            (Ok(_), findings) if MORE.iter().any(|(case, _)| case == what) => {
                let by_schema = findings.iter().any(|f| f.ends_with("(Rule)"));
                assert!(!by_schema, "{what}: a rule of the schema: {findings:?}");
                more.insert(*what);
            }
            (Ok(_), findings) => wrong.push(format!("{what}: the API server accepts it, lint refuses it: {findings:#?}")),
            (Err(refused), _) => wrong.push(format!("{what}: lint accepts it, the API server refuses it: {refused}")),
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let listed: BTreeSet<_> = MORE.iter().map(|(what, _)| *what).collect();
    assert_eq!(more, listed, "MORE must list exactly the cases that only lint refuses");
}

/// Collects every manifest in which one value is replaced by an odd one.
fn mutants(of: &Value, at: &str, found: &mut Vec<(String, Value)>) {
    let odd = [json!(null), json!("x"), json!(""), json!(-1), json!(1.5), json!([]), json!({"x": 1})];
    for (index, odd) in odd.into_iter().enumerate().filter(|_| at.starts_with("/spec") || at.starts_with("/metadata/")) {
        let mut mutant = of.clone();
        *mutant.pointer_mut(at).unwrap() = odd;
        found.push((format!("{at} {index}"), mutant));
    }
    let names: Vec<String> = match of.pointer(at).unwrap() {
        Value::Object(fields) => fields.keys().map(|name| name.replace('/', "~1")).collect(),
        Value::Array(items) => (0..items.len()).map(|index| index.to_string()).collect(),
        _ => Vec::new(),
    };
    for name in names {
        mutants(of, &format!("{at}/{name}"), found);
    }
}

/// Returns a Notification and two Pipelines that use most fields.
fn full() -> [Value; 5] {
    let secret = json!({"name": "s", "key": "k"});
    let notification = notification(json!({
        "suspend": false,
        "pipelineSelector": {"matchLabels": {"team": "a"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
        "triggers": [{"type": "Deployed", "environments": ["prod"]}],
        "endpoint": {
            "headers": {"X-Team": "a"}, "method": "PUT", "timeout": "15s", "connectTimeout": "5s",
            "auth": {"token": {"secretKeyRef": secret, "header": "X-Token", "scheme": ""}},
            "headersFrom": {"secretRef": {"name": "s"}},
            "signing": {"secretRef": {"name": "s"}, "scheme": "BodyHex", "header": "X-Signature"},
            "tls": {"caFrom": {"secretKeyRef": secret}, "clientCertificate": {"secretRef": {"name": "s"}}},
        },
        "template": {"inline": {"contentType": "text/plain"}, "parameters": {"a": "b"}},
        "delivery": {
            "ordering": "Target", "supersede": true, "rate": {"perSecond": 5, "burst": 5},
            "retry": {"initial": "1s", "max": "1m", "maxAge": "1h"}, "retain": {"perLane": 5, "maxAge": "1h"},
        },
    }));
    let target = json!({"namespace": "a", "appRef": {"apiVersion": "v1", "kind": "K", "name": "b"}});
    let promoting = promoting(json!({
        "manual": true, "after": "30m", "suspend": true, "timeout": "24h", "strategy": {"notification": {}},
        "retain": {"perEnvironment": 5, "maxAge": "720h"}, "retry": {"initial": "10s", "max": "10m", "maxAge": "24h"},
    }));
    let with_commit = by_commit(json!({
        "paths": ["apps/prod"], "branch": "main", "secretRef": {"name": "s"}, "author": {"name": "a", "email": "a@example.com"},
    }));
    let with_request = by_pull_request(json!({
        "apiUrl": "https://git.example.com/api/v1", "baseBranch": "main", "paths": ["apps/prod"], "secretRef": {"name": "s"},
        "tls": {"caFrom": {"secretKeyRef": secret}, "clientCertificate": {"secretRef": {"name": "s"}}},
        "title": "t", "body": "b", "labels": ["a"], "interval": "1m",
    }));
    let plain = environments(json!([{"name": "dev", "targets": [target]}]));
    let mut all = [notification, plain, promoting, with_commit, with_request];
    for object in &mut all {
        object["metadata"] = json!({"name": "n", "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a.b/c"]});
    }
    all
}

#[tokio::test]
async fn lint_and_the_api_server_agree_on_every_field() {
    let world = World::new("linted-fields").await;
    let mut wrong = Vec::new();
    for object in full() {
        assert!(post(&world, &object, true).await.is_ok());
        let mut all = Vec::new();
        mutants(&object, "", &mut all);
        assert!(all.len() > 100, "{}", all.len());
        let files: Vec<_> = all.iter().map(|(what, object)| File::named(what, object.to_string())).collect();
        let report = lint(&files, &options()).unwrap();
        let answers = posted(&world, all.iter().map(|(_, object)| object)).await;
        for ((what, _), taken) in all.iter().zip(answers) {
            // Findings of the controllers do not count: they check more than the API server.
            let said: Vec<_> =
                report.findings.iter().filter(|f| f.file == *what && f.source != Source::Controller).collect();
            match (taken, said.is_empty()) {
                (Ok(_), true) | (Err(_), false) => {}
                (Ok(_), false) => wrong.push(format!("{what}: the API server accepts it, lint refuses it: {said:?}")),
                (Err(refused), true) => wrong.push(format!("{what}: lint accepts it, the API server refuses it: {refused}")),
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Makes the names of the cases unique, because two tables may use the same name.
fn renamed(cases: Vec<Case>) -> Vec<Case> {
    let mut seen = BTreeSet::new();
    let name = |what: &'static str, seen: &mut BTreeSet<&'static str>| {
        let mut name = what;
        while !seen.insert(name) {
            name = format!("{name}, another").leak();
        }
        name
    };
    cases.into_iter().map(|(what, object)| (name(what, &mut seen), object)).collect()
}

fn run(args: &[&str], stdin: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_relaybook"))
        .arg("lint")
        .args(args)
        .env("KUBECONFIG", "/does/not/exist")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("relaybook runs");
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn lint_works_in_a_pre_commit_hook() {
    let folder = crate::support::tmp().join("linted");
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let good = write("good.yaml", &notification(json!({})).to_string());
    let bad = write("bad.yml", &format!("# a comment\n{}\n---\nkind: [", notification(json!({"trigers": []}))));
    write("notes.txt", "kind: [");

    let well = run(&[&good], "");
    assert_eq!(
        (well.status.code(), words(&well.stdout), words(&well.stderr)),
        (Some(0), String::new(), "relaybook: no problems, 1 object checked\n".to_owned())
    );

    let wrong = run(&[folder.to_str().unwrap()], "");
    let lines = words(&wrong.stdout);
    assert_eq!(
        (wrong.status.code(), words(&wrong.stderr)),
        (Some(1), "relaybook: 2 problems, 2 objects checked\n".to_owned())
    );
    let lines: Vec<_> = lines.lines().collect();
    assert!(
        lines[0].starts_with(&format!("{bad}:2: Notification n: spec.trigers: ")) && lines[0].contains("triggers?"),
        "{lines:?}"
    );
    assert!(lines.len() == 2 && lines[1].starts_with(&format!("{bad}:4: not YAML: ")), "{lines:?}");

    let from_stdin = run(&["-", "-o", "json"], &endpoint(json!({"method": "GET"})).to_string());
    let found: Value = serde_json::from_slice(&from_stdin.stdout).unwrap();
    let message = found[0]["message"].as_str().unwrap();
    assert!(from_stdin.status.code() == Some(1) && message.contains("POST, PUT, PATCH"), "{found}");
    assert_eq!(
        found,
        json!([{"file": "<stdin>", "line": 1, "kind": "Notification", "name": "n", "field": "spec.endpoint.method",
            "message": message, "source": "schema"}])
    );
    assert_eq!(serde_json::to_value(Source::Controller).unwrap(), "controller");

    let template = "{\"text\": \"{{pipline.name}} {{revison}}\"}";
    let found = run(&["-"], &notification(json!({"template": {"inline": {"body": template}}})).to_string());
    let body = "<stdin>:1: Notification n: spec.template.inline.body: line 1, column";
    assert_eq!(
        (found.status.code(), words(&found.stdout)),
        (
            Some(1),
            format!(
                "{body} 11: there is no field `pipline.name`; did you mean `pipeline.name`?\n{body} 28: there is no field `revison`; did \
                 you mean `revision`?\n"
            )
        )
    );

    for (args, code, said) in
        [(&["/does/not/exist.yaml"][..], 1, "cannot be read"), (&[], 2, "FILE"), (&["--nope", "-"], 2, "--nope")]
    {
        let output = run(args, "");
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(code), true), "{args:?}");
        assert!(words(&output.stderr).contains(said), "{}", words(&output.stderr));
    }
}

#[test]
fn the_global_configuration_is_checked_with_the_layers_over_it() {
    let global = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ours", "namespace": "ops"},
        "data": {"config.yaml": "defaults:\n  endpoint: {url: 'https://example.com/in'}\nnotifications:\n- name: audit\n"}});
    let mut over = notification(json!({"template": {"inline": {"body": "{}"}}}));
    over["spec"]["endpoint"] = Value::Null;
    let all = format!("{global}\n---\n{over}\n");
    let with = run(&["-", "--config-map", "ours"], &all);
    let told = words(&with.stdout);
    let expected = "<stdin>:1: ConfigMap ours: notifications[0].triggers: is missing: set it\n";
    assert!(with.status.code() == Some(1) && told.starts_with(expected), "{told}");
    assert!(!told.contains("Notification"), "its endpoint comes from the defaults: {told}");
    assert!(words(&with.stderr).ends_with(" 2 objects checked\n"), "{}", words(&with.stderr));

    let without = run(&["-"], &all);
    let expected = "<stdin>:3: Notification n: spec.endpoint: is missing: set it\n";
    assert_eq!((without.status.code(), words(&without.stdout).as_str()), (Some(1), expected));
}

#[test]
fn lint_reads_folders_recursively_and_fails_without_manifests() {
    let root = crate::support::tmp().join("linted-tree");
    let _ = std::fs::remove_dir_all(&root);
    let write = |name: &str, text: &str| {
        let file = root.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let lint = |at: &str| {
        let output = run(&[root.join(at).to_str().unwrap()], "");
        (output.status.code(), words(&output.stdout), words(&output.stderr))
    };
    let deep = write("nested/a/b/deep.yml", &notification(json!({"trigers": []})).to_string());
    write("nested/a/good.json", &notification(json!({})).to_string());
    write("nested/a/kustomization.yaml", "resources: [good.json]\n");
    write("nested/a/config.yaml", "log: {level: debug}\nnotifications: off\n");
    write("nested/chart/values.yaml", "image: web\n");
    write("nested/chart/Chart.yaml", "name: web\n");
    write("nested/chart/templates/notification.yaml", "apiVersion: relaybook.dev/v1alpha1\n{{ if .Values.chat }}\n");
    write("nested/templates/config-map.yaml", "kind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n");
    std::fs::write(root.join("nested/binary.json"), [0xff, 0xfe]).unwrap();
    // None of these is read: hidden files, other extensions, and links that form a cycle or lead nowhere.
    let broken = notification(json!({"hidden": true})).to_string();
    write("nested/.git/hidden.yaml", &broken);
    write("nested/.hidden.yaml", &broken);
    write("nested/notes.txt", &broken);
    std::os::unix::fs::symlink("..", root.join("nested/a/circle")).unwrap();
    std::os::unix::fs::symlink("nowhere.yaml", root.join("nested/a/gone.yaml")).unwrap();
    let (code, out, err) = lint("nested");
    assert!(code == Some(1) && out.lines().count() == 1, "{out}{err}");
    assert!(out.starts_with(&format!("{deep}:1: Notification n: spec.trigers: ")), "{out}");
    assert!(err.ends_with("relaybook: 1 problem, 2 objects checked\n"), "{err}");
    assert!(
        err.contains("binary.json cannot be read: line 1: it is UTF-16 text; convert it")
            && err.contains("config-map.yaml:2: skipped: not YAML"),
        "{err}"
    );
    assert!(err.contains("nested/chart/templates: templates of a Helm chart: skipped; pipe "), "{err}");
    let latin = root.join("latin.yaml");
    std::fs::write(&latin, b"kind: Notification\n# caf\xe9\n").unwrap();
    let (code, _, err) = lint("latin.yaml");
    let problem = format!("{} cannot be read: line 2: the byte 0xE9 is not UTF-8", latin.display());
    assert!(code == Some(1) && err.contains(&problem) && err.contains("iconv"), "{err}");

    std::fs::create_dir(root.join("empty")).unwrap();
    for (at, said) in [
        ("nested/chart/values.yaml", "found no Pipeline, no Notification and no global configuration in "),
        ("nested/chart", " (2 files read)\n"),
        ("empty", "relaybook: nothing was checked: found no *.yaml, *.yml or *.json file in "),
    ] {
        let (code, out, err) = lint(at);
        assert!(code == Some(1) && out.is_empty() && err.contains(said), "{at}: {out}{err}");
    }
    let stdin = run(&["-"], "");
    assert!(stdin.status.code() == Some(1) && words(&stdin.stderr).contains("nothing was checked"), "{stdin:?}");
}
