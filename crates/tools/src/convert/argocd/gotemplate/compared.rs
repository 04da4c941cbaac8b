//! Generated templates say the same as in Go. `hack/gotemplate` renders the sources, and Relaybook renders what they become.
//!
//! A template is refused, or names a difference, or all samples give the same bytes. What does not compile is refused, as in `message`.

mod grammar;

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::*;
use grammar::Grammar;
use relaybook_api::delivery::AppObject;
use relaybook_api::pipeline::Recorded;
use relaybook_api::{State, Status, TransitionType};
use relaybook_settings::render::{Data, Parameters, SampleContext, TextTemplate, Texts, Values};

const TEMPLATES: usize = 300;
/// The least number of templates that are converted, and of those that name no difference.
const LEAST: (usize, usize) = (150, 100);

const REVISION: &str = "5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";
/// The annotation with the recipient.
const CHANNEL: &str = "notifications.argoproj.io/subscribe.on-sync-failed.slack";
const MESSAGE: &str = "one or more objects \"failed\": <b>&\nDeployment/shop – naïve, exit 'code' 1 🚩";

/// Returns an Application that is healthy and in sync.
fn application() -> Value {
    let time = "2025-11-21T07:47:14Z";
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {
            "name": "shop-api", "namespace": "argocd",
            "labels": {"team": "checkout", "app.kubernetes.io/part-of": "shop"},
            "annotations": {CHANNEL: "deploys-prod", "example.com/owner": "Zoë \"Z\" <z@example.com>"},
        },
        "spec": {"project": "default", "source": {"repoURL": "https://github.com/acme/shop.git", "path": "apps/shop api"}},
        "status": {
            "sync": {"status": "Synced", "revision": REVISION}, "reconciledAt": time,
            "health": {"status": "Healthy", "lastTransitionTime": time},
            "operationState": {
                "phase": "Succeeded", "message": "successfully synced (all tasks run)", "startedAt": time, "finishedAt": time,
                "operation": {"sync": {"revision": REVISION}}, "syncResult": {"revision": REVISION},
            },
        },
    })
}

/// Returns an Application as Argo CD has it, and the data of the change that Relaybook observes. `more`: what is other than in [`application`].
fn sample(more: &Value, type_: TransitionType, state: State) -> (Value, Data) {
    let mut app = application();
    json_patch::merge(&mut app, more);
    let text = |pointer: &str| app.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
    let texts = |pointer: &str| match app.pointer(pointer) {
        Some(texts) => serde_json::from_value(texts.clone()).unwrap(),
        None => BTreeMap::new(),
    };
    let fields = [".spec.project", ".spec.source.path"].map(|path| (path.to_owned(), text(&path.replace('.', "/"))));
    let (labels, annotations) = (texts("/metadata/labels"), texts("/metadata/annotations"));
    let recorded = Recorded { labels, annotations, fields: BTreeMap::from(fields), cut: false };
    let mut spec = SampleContext::sample(("deploys".to_owned(), "argocd".to_owned())).delivery(type_);
    if let Some(target) = &mut spec.subject.target {
        target.namespace = text("/metadata/namespace");
        target.app = AppObject { api_version: text("/apiVersion"), kind: text("/kind"), name: text("/metadata/name") };
    }
    let (revision, repository) = (text("/status/operationState/syncResult/revision"), text("/spec/source/repoURL"));
    spec.to = State { revision, repository, recorded: Some(Box::new(recorded)), ..state };
    let data = Data::new("msg_1", &spec, &Texts::default(), &Texts::default(), "argocd");
    (app, data)
}

/// Returns a healthy Application, one whose sync failed, and a degraded one without labels.
fn samples() -> [(Value, Data); 3] {
    let state = |status, reason: &str, message: &str, drifted| {
        let (reason, message) = (reason.to_owned(), message.to_owned());
        State { status, reason, message, drifted, ..State::default() }
    };
    let failed = json!({
        "metadata": {"labels": {"team": null}},
        "status": {"sync": {"status": "OutOfSync"}, "operationState": {"phase": "Failed", "message": MESSAGE}},
    });
    let health = json!({"status": "Degraded", "message": "1 of 3 pods – not ready"});
    let degraded = json!({"metadata": {"labels": null}, "status": {"health": health}});
    [
        sample(&json!({}), TransitionType::Deployed, state(Status::Current, "", "", false)),
        sample(&failed, TransitionType::Failed, state(Status::Failed, "SyncFailed", MESSAGE, true)),
        sample(&degraded, TransitionType::Failed, state(Status::Failed, "Degraded", "1 of 3 pods – not ready", false)),
    ]
}

/// Returns the key `context` of the configuration.
fn context() -> BTreeMap<String, String> {
    let all = [
        ("argocdUrl", "https://cd.example.com/?a=1&b=2"),
        ("team", "Zürich & <Söhne>"),
        ("note", "a \"b\" 'c'"),
        ("empty", ""),
        ("line", "a\u{2028}b<"),
        ("brace", "{status}}"),
        ("tag", "{{status}}"),
    ];
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// A source, and what it becomes. `None`: it is refused.
struct Case {
    source: String,
    made: Option<(Made, TextTemplate)>,
}

impl Case {
    fn new(source: String, scene: Scene<'_>) -> Self {
        let made = convert(&source, scene, Spot::Plain).ok().and_then(|made| {
            let template = TextTemplate::compile(&made.text, &Parameters::default()).ok()?;
            Some((made, template))
        });
        Self { source, made }
    }

    /// Whether it is converted, and names no difference.
    fn is_exact(&self) -> bool {
        self.made.as_ref().is_some_and(|(made, _)| made.differs.is_empty())
    }

    /// Returns what is wrong with the text for a sample.
    fn wrong(&self, data: &Data, go: &Result<String, String>) -> Option<String> {
        let (made, template) = self.made.as_ref()?;
        let values = Values::new(data, &Parameters::default());
        let ours = values.and_then(|values| template.render(&values)).map_err(|error| error.to_string());
        let is_right = ours.is_ok() && (!self.is_exact() || ours == *go);
        let text = || format!("{:?}\n  becomes {:?}\n  Go:   {go:?}\n  ours: {ours:?}", self.source, made.text);
        (!is_right).then(text)
    }
}

/// Returns the texts and errors of Go for each case and sample.
fn rendered_by_go(questions: &[Value]) -> Vec<Result<String, String>> {
    let lines: String = questions.iter().flat_map(|question| [question.to_string(), "\n".to_owned()]).collect();
    let mut go = Command::new("go");
    go.args(["run", "."]).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../hack/gotemplate"));
    go.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = go.spawn().unwrap_or_else(|error| panic!("this test needs the program `go` (https://go.dev): {error}"));
    let mut input = child.stdin.take().unwrap();
    // The answers come while questions are written, so both run at the same time.
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "hack/gotemplate: {}", String::from_utf8_lossy(&output.stderr));
    writer.join().unwrap().unwrap();
    let answer = |line: &str| {
        let mut answer: BTreeMap<String, String> = serde_json::from_str(line).unwrap();
        answer.remove("text").ok_or_else(|| answer.remove("error").unwrap())
    };
    String::from_utf8(output.stdout).unwrap().lines().map(answer).collect()
}

#[test]
fn a_template_says_the_same_as_in_go_or_names_a_difference() {
    let (samples, context) = (samples(), context());
    // The annotation has the same value, so that each sample has the same recipient.
    let recipients = [Recipient::Constant("deploys-prod".to_owned()), Recipient::Annotation(CHANNEL.to_owned())];
    let mut grammar = Grammar(fastrand::Rng::with_seed(7));
    let case = |at: usize| {
        let (recipient, is_local) = (&recipients[at % 2], at % 4 < 2);
        Case::new(grammar.source(at), Scene { service: "slack", recipient, context: &context, is_local })
    };
    let cases: Vec<Case> = (0..TEMPLATES).map(case).collect();
    let question = |case: &Case, app: &Value| {
        let data = json!({"app": app, "context": context, "serviceType": "slack", "recipient": "deploys-prod"});
        json!({"source": case.source, "data": data})
    };
    let pairs = cases.iter().flat_map(|case| samples.iter().map(move |sample| (case, sample)));
    let questions: Vec<Value> = pairs.map(|(case, (app, _))| question(case, app)).collect();
    let answers = rendered_by_go(&questions);
    assert_eq!(answers.len(), questions.len());
    let wrong_case = |(case, answers): (&Case, &[Result<String, String>])| {
        samples.iter().zip(answers).find_map(|((_, data), go)| case.wrong(data, go))
    };
    let wrong: Vec<String> = cases.iter().zip(answers.chunks(samples.len())).filter_map(wrong_case).collect();
    let first: Vec<&str> = wrong.iter().take(10).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{} of {TEMPLATES} templates differ:\n{}", wrong.len(), first.join("\n"));
    let converted = cases.iter().filter(|case| case.made.is_some()).count();
    let exact = cases.iter().filter(|case| case.is_exact()).count();
    assert!(converted >= LEAST.0 && exact >= LEAST.1, "{converted} are converted, {exact} without a difference");
}
