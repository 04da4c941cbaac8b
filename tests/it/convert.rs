//! `relaybook convert`: what it writes is accepted by the API server and sends what the Alerts and subscriptions ask for; its exit codes
//! and outputs.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use relaybook_api::{Notification, Pipeline, PipelineSet};
use serde_json::{Value, json};

use crate::support::chart::Account;
use crate::support::world::apps::condition;
use crate::support::{Receiver, Relaybook, World, control_plane, eventually};

/// A folder that does not exist yet.
fn folder(name: &str) -> PathBuf {
    let folder = crate::support::tmp().join("convert").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.parent().unwrap()).unwrap();
    folder
}

/// The inputs of the unit tests.
fn inputs(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/tools/src/convert").join(folder);
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = all.filter(|path| !path.to_str().unwrap().ends_with(".out.yaml")).collect();
    all.sort();
    all
}

/// Runs the command for Flux without a cluster. Returns exit code, stdout and stderr.
fn run(args: &[&str], stdin: &str) -> (Option<i32>, String, String) {
    run_for("flux", args, stdin)
}

fn run_for(program: &str, args: &[&str], stdin: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relaybook"));
    command.args(["convert", program]).args(args).env("KUBECONFIG", "/does/not/exist");
    let pipe = || Stdio::piped();
    let mut process = command.stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().expect("relaybook starts");
    // A command that refuses its arguments does not read.
    let _ = process.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = process.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

const ALERT: &str = "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Alert\nmetadata: {name: chat, namespace: a}\nspec:\n  \
    providerRef: {name: chat}\n  eventSeverity: error\n  eventSources:\n    - {kind: Kustomization, name: '*'}\n";
const PROVIDER: &str = "apiVersion: notification.toolkit.fluxcd.io/v1beta3\nkind: Provider\nmetadata: {name: chat, namespace: a}\n\
    spec:\n  type: googlechat\n  secretRef: {name: url}\n";
const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: url, namespace: a}\nstringData: {address: 'https://sesame.example.com'}\n";

/// Applies the files of a folder with kubectl.
async fn apply(world: &World, folder: &Path) {
    let mut command = Command::new(control_plane::kubectl());
    command.args(["apply", "-f"]).arg(folder).env("KUBECONFIG", &world.kubeconfig).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().expect("kubectl runs")).await.expect("joined");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Waits until a set has made a pipeline, and its targets are observed.
async fn made(world: &World, pipeline: &str) {
    eventually("the set has made the pipeline", async || {
        let found = world.api::<Pipeline>().get_opt(pipeline).await.map_err(|error| error.to_string())?;
        found.map(drop).ok_or_else(|| pipeline.to_owned())
    })
    .await;
    world.observed(pipeline).await;
}

#[tokio::test]
async fn converted_alerts_report_what_they_name() {
    let world = World::new("convert-flux").await;
    let receiver = Receiver::start();
    for app in ["web", "shop"] {
        world.kustomize(app, "main@sha1:1").await;
    }
    for path in ["/all", "/web"] {
        world.secret(&format!("url-{}", &path[1..]), json!({"address": receiver.url(path)})).await;
    }
    let object = |kind: &str, name: &str, spec: Value| {
        json!({"apiVersion": "notification.toolkit.fluxcd.io/v1beta3", "kind": kind,
            "metadata": {"name": name, "namespace": world.ns}, "spec": spec})
    };
    let provider =
        |name: &str| object("Provider", name, json!({"type": "slack", "secretRef": {"name": format!("url-{name}")}}));
    let sources = |name: &str| json!([{"kind": "Kustomization", "name": name}]);
    let items = json!([
        provider("all"),
        provider("web"),
        object(
            "Alert",
            "errors",
            json!({"providerRef": {"name": "all"}, "eventSeverity": "error", "eventSources": sources("*")})
        ),
        object(
            "Alert",
            "web",
            json!({"providerRef": {"name": "web"}, "eventSources": sources("web"),
            "exclusionList": ["^quiet"], "summary": "the shop"})
        ),
    ]);
    let (input, out) = (folder("input.json"), folder("out"));
    fs::write(&input, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).unwrap();
    let (code, said, err) =
        world.command(&["convert", "flux", input.to_str().unwrap(), "--dir", out.to_str().unwrap()]).await;
    assert_eq!(code, Some(0), "{said}{err}");
    apply(&world, &out).await;

    let _relaybook = Relaybook::start(&world).await;
    for app in ["web", "shop"] {
        let pipeline = format!("kustomization.{}.{app}", world.ns);
        made(&world, &pipeline).await;
        world.cursor(&pipeline, "errors").await;
        world.cursor(&pipeline, "web").await;
    }
    let failed = |message: &str| vec![condition("Ready", "False", "HealthCheckFailed", message)];
    world.flux("shop", failed("no such image"), json!({"lastAttemptedRevision": "main@sha1:2"})).await;
    let told = receiver.wait("/all", 1).await[0].json().to_string();
    assert!(told.contains("kustomization/shop.convert-flux: Failed"), "{told}");
    world.flux("web", failed("quiet: no such image"), json!({"lastAttemptedRevision": "main@sha1:2"})).await;
    receiver.wait("/all", 2).await;
    world.applied("web", "main@sha1:3").await;
    let told: Vec<_> = receiver.wait("/web", 1).await.iter().map(|request| request.json().to_string()).collect();
    assert!(told[0].contains("kustomization/web.convert-flux: Deployed") && told[0].contains("the shop"), "{told:?}");
    // Nothing about the shop, and nothing that the Alert excludes.
    assert_eq!((receiver.to("/all").len(), receiver.to("/web").len()), (2, 1), "{told:?}");
}

#[tokio::test]
async fn the_api_server_accepts_what_is_written() {
    let world = World::new("convert-accepted").await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let of = |program: &'static str, folder: &str| inputs(folder).into_iter().map(move |input| (program, input));
    let notifications = of("flux", "testdata").chain(of("argocd", "argocd/testdata"));
    let pipelines = of("weave", "pipelines/testdata/weave").chain(of("kargo", "pipelines/testdata/kargo"));
    for (program, input) in notifications.chain(pipelines) {
        let (code, out, err) = run_for(program, &[input.to_str().unwrap(), "-o", "json"], "");
        assert_eq!(code, Some(0), "{}: {err}", input.display());
        let all: Value = serde_json::from_str(&out).unwrap();
        for file in all["files"].as_array().unwrap() {
            let mut object: Value = serde_saphyr::from_str(file["text"].as_str().unwrap()).unwrap();
            object["metadata"]["namespace"] = json!(world.ns);
            let kind = object["kind"].as_str().unwrap().to_owned();
            let what = format!("{}: {object}", input.display());
            let created = match kind.as_str() {
                "Pipeline" => {
                    let object: Pipeline = serde_json::from_value(object).unwrap();
                    world.api::<Pipeline>().create(&dry, &object).await.map(drop)
                }
                "PipelineSet" => {
                    let object: PipelineSet = serde_json::from_value(object).unwrap();
                    world.api::<PipelineSet>().create(&dry, &object).await.map(drop)
                }
                _ => {
                    let object: Notification = serde_json::from_value(object).unwrap();
                    world.api::<Notification>().create(&dry, &object).await.map(drop)
                }
            };
            assert!(created.is_ok(), "{what}: {created:?}");
        }
    }
}

#[test]
fn exit_codes_say_whether_everything_was_converted() {
    let good = format!("{SECRET}---\n{PROVIDER}---\n{ALERT}");
    let differs = good.replace("eventSeverity: error", "eventSeverity: info");
    let wrong = good.replace("  eventSeverity", "  color: red\n  eventSeverity");
    let template = good.replace("name: '*'", "name: '{{ .Values.name }}'");
    for (input, args, expected, words) in [
        (good.as_str(), &[][..], 0, "CONVERTED"),
        (&good, &["--strict"], 1, "1 field with another effect, or without a counterpart"),
        (&differs, &[], 0, "DIFFERS\n  <stdin>:18: Alert a/chat: spec.eventSeverity: info"),
        (&differs, &["--strict"], 1, "with another effect, or without a counterpart"),
        (&wrong, &[], 1, "1 error; nothing was converted"),
        (&template, &[], 1, "helm template"),
        (SECRET, &[], 1, "found no Alert and no Provider of Flux in -"),
        (PROVIDER, &[], 1, "nothing was converted: no Alert has a counterpart"),
        (&good, &["--force"], 2, "--dir"),
    ] {
        let (code, out, err) = run(&[&["-"][..], args].concat(), input);
        assert_eq!(code, Some(expected), "{args:?}: {out}{err}");
        assert!(err.contains(words) && !err.contains("sesame") && !out.contains("sesame"), "{words}: {out}{err}");
        assert_eq!(out.contains("kind: Notification"), !out.is_empty(), "{out}");
    }
    let (code, _, err) = run(&["/does/not/exist"], "");
    assert!(code == Some(1) && err.contains("cannot be read"), "{err}");
}

#[test]
fn files_are_written_once_and_the_report_is_on_stdout() {
    let (input, dir) = (folder("once"), folder("once-out"));
    fs::create_dir_all(&input).unwrap();
    fs::write(input.join("flux.yaml"), format!("{PROVIDER}---\n{ALERT}")).unwrap();
    fs::write(input.join("other.yaml"), "a: [\n").unwrap();
    let args = [input.to_str().unwrap(), "--dir", dir.to_str().unwrap()];
    let (code, out, err) = run(&args, "");
    assert_eq!(code, Some(0), "{err}");
    let path = dir.display();
    for line in [
        format!(
            "{path}/a.pipelineset-flux-kustomizations.yaml   PipelineSet a/flux-kustomizations: a Pipeline for each Kustomization of a"
        ),
        format!("{path}/a.notification-chat.yaml                 Notification a/chat: Failed, to google-chat"),
        "To switch without a gap, apply the manifests, compare the messages of both, and delete the Alerts.".to_owned(),
    ] {
        assert!(out.lines().any(|found| found == line), "{line}: {out}");
    }
    let (code, _, err) = run(&args, "");
    assert!(code == Some(1) && err.contains("Nothing was written. Use another --dir, or --force"), "{err}");
    let (code, ..) = run(&[&args[..], &["--force", "--no-triggers"]].concat(), "");
    assert_eq!(code, Some(0));
    let text = fs::read_to_string(dir.join("a.notification-chat.yaml")).unwrap();
    assert!(text.contains("  # triggers:\n  #   - type: Failed\n  triggers: []\n"), "{text}");
}

#[test]
fn the_configuration_of_argo_cd_is_converted_with_its_subscribers() {
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: argocd-notifications-cm, namespace: argocd}\ndata:\n  service.slack: |\n    \
        token: $slack-token\n  trigger.on-degraded: |\n    - when: app.status.operationState.phase == 'Failed'\n      send: [degraded]\n  \
        template.degraded: |\n    message: '{{.app.metadata.name}} has degraded'\n";
    let app = "---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata:\n  name: web\n  namespace: argocd\n  annotations: \
        {notifications.argoproj.io/subscribe.on-degraded.slack: deploys}\n";
    let whole = format!("{config}{app}");
    let drift = whole.replace("operationState.phase == 'Failed'", "sync.status == 'OutOfSync'");
    for (input, args, expected, words) in [
        (whole.as_str(), &["--strict"][..], 0, "CONVERTED"),
        (
            &drift,
            &[],
            0,
            "DIFFERS\n  <stdin>:8: ConfigMap argocd/argocd-notifications-cm: data[trigger.on-degraded][0].when: Drifted",
        ),
        (&drift, &["--strict"], 1, "with another effect, or without a counterpart"),
        (config, &[], 1, "the input needs the Applications and AppProjects that subscribe"),
        (app, &[], 1, "add the file with argocd-notifications-cm"),
        (SECRET, &[], 1, "found no ConfigMap argocd-notifications-cm in -"),
    ] {
        let (code, out, err) = run_for("argocd", &[&["-"][..], args].concat(), input);
        assert_eq!(code, Some(expected), "{args:?}: {out}{err}");
        assert!(err.contains(words), "{words}: {out}{err}");
    }
    let (_, out, _) = run_for("argocd", &["-"], &whole);
    assert!(out.contains("name: slack-degraded") && out.contains("{{target.app.name}} has degraded"), "{out}");
}

#[tokio::test]
async fn converted_subscriptions_report_the_applications_that_subscribe() {
    let world = World::new("convert-argocd").await;
    let receiver = Receiver::start();
    let crd = control_plane::foreign("argoproj.io", "v1alpha1", "Application", "applications");
    control_plane::install(&world.client, &crd).await;
    let gvk = GroupVersionKind::gvk("argoproj.io", "v1alpha1", "Application");
    let apps: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.ns, &ApiResource::from_gvk(&gvk));
    let key = "notifications.argoproj.io/subscribe.on-sync-failed.hook";
    let app = |name: &str, annotations: Value| {
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": name, "namespace": world.ns, "annotations": annotations}})
    };
    let (web, quiet) = (app("web", json!({(key): ""})), app("quiet", json!({"example.com/x": "y"})));
    for object in [&web, &quiet] {
        let object = serde_json::from_value(object.clone()).unwrap();
        apps.create(&PostParams::default(), &object).await.expect("created");
    }
    let status = async |name: &str, phase: &str, revision: &str| {
        let (time, result) = ("2026-11-26T05:00:00Z", json!({"revision": revision}));
        let status = json!({
            "sync": {"status": "Synced", "revision": revision}, "health": {"status": "Healthy"}, "reconciledAt": time,
            "history": [{"id": 1, "revision": "1"}],
            "operationState": {"phase": phase, "finishedAt": time, "syncResult": result, "message": "no such image"},
        });
        let patch = Patch::Merge(json!({"status": status}));
        apps.patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
    };
    status("web", "Succeeded", "1").await;
    status("quiet", "Succeeded", "1").await;
    let texts = json!({
        "service.webhook.hook": format!("url: {}\n", receiver.url("/in")),
        "trigger.on-sync-failed": "- when: app.status.operationState.phase in ['Error', 'Failed']\n  send: [failed]\n",
        "template.failed": "webhook:\n  hook:\n    method: POST\n    body: |\n      {\"app\": \"{{.app.metadata.name}}\", \
            \"phase\": \"{{.app.status.operationState.phase}}\", \"error\": \"{{.app.status.operationState.message}}\"}\n",
    });
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "argocd-notifications-cm", "namespace": world.ns}, "data": texts});
    let (input, out) = (folder("argocd.json"), folder("argocd-out"));
    fs::write(&input, json!({"apiVersion": "v1", "kind": "List", "items": [config, web, quiet]}).to_string()).unwrap();
    let args = ["convert", "argocd", "--allow-http", input.to_str().unwrap(), "--dir", out.to_str().unwrap()];
    let (code, said, err) = world.command(&args).await;
    assert_eq!(code, Some(0), "{said}{err}");
    apply(&world, &out).await;

    let _relaybook = Relaybook::start(&world).await;
    for name in ["web", "quiet"] {
        let pipeline = format!("application.{}.{name}", world.ns);
        made(&world, &pipeline).await;
        world.cursor(&pipeline, "hook-failed").await;
    }
    status("quiet", "Failed", "2").await;
    status("web", "Failed", "2").await;
    let told = receiver.wait("/in", 1).await[0].json();
    assert_eq!(told, json!({"app": "web", "phase": "Failed", "error": "no such image"}));
    status("web", "Error", "3").await;
    let told = receiver.wait("/in", 2).await[1].json();
    assert_eq!((&told["app"], &told["phase"]), (&json!("web"), &json!("Error")));
}

#[tokio::test]
async fn objects_of_a_cluster_are_converted_with_the_rights_of_the_person() {
    let world = World::new("convert-live").await;
    let group = "notification.toolkit.fluxcd.io";
    let object = |text: &str| {
        let mut object: Value = serde_saphyr::from_str(text).unwrap();
        object["metadata"]["namespace"] = json!(world.ns);
        object
    };
    for (kind, plural, text) in [("Alert", "alerts", ALERT), ("Provider", "providers", PROVIDER)] {
        control_plane::install(&world.client, &control_plane::foreign(group, "v1beta3", kind, plural)).await;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1beta3", kind));
        let api: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.ns, &resource);
        let object = serde_json::from_value(object(text)).unwrap();
        eventually("the object is created", async || {
            api.create(&PostParams::default(), &object).await.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }
    // Neither account may read a Secret.
    for (name, resources, expected, words) in [
        ("convert-alerts", json!(["alerts"]), 1, "cannot list providers: "),
        ("convert-all", json!(["alerts", "providers"]), 0, "CONVERTED"),
    ] {
        let rules = json!([{"apiGroups": [group], "resources": resources, "verbs": ["list"]}]);
        let role: ClusterRole = serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules})).unwrap();
        Api::all(world.client.clone()).create(&PostParams::default(), &role).await.expect("created");
        let account = Account::bound(&world.client, &world.ns, name, name).await;
        let may = format!("list alerts.{group} {}", world.ns);
        eventually("the right is enforced", async || if account.may(&may).await { Ok(()) } else { Err(may.clone()) }).await;
        let kubeconfig = account.kubeconfig(&world.kubeconfig, name).await;
        let report = folder(&format!("{name}.json"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_relaybook"));
        command.args(["convert", "flux", "--live", "-n", &world.ns, "--report", report.to_str().unwrap()]);
        command.env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output().expect("relaybook runs")).await.expect("joined");
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.code() == Some(expected) && err.contains(words), "{out}{err}");
        assert_eq!(out.contains("kind: Notification"), expected == 0, "{out}");
        let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
        let items = report["items"].as_array().unwrap();
        assert!(items.iter().any(|item| item["kind"] == "Alert" && item["file"] == "alerts in the cluster"), "{report}");
    }
}
