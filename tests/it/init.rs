//! `relaybook init`: its manifests become ready and report what happens, it asks only on a terminal, and writes all files or none.

mod terminal;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kube::ResourceExt;
use relaybook_api::conditions::ConditionStatus;
use relaybook_api::{Notification, Pipeline};

use crate::support::relaybook::Options;
use crate::support::{Receiver, Relaybook, World, control_plane, eventually};
use serde_json::json;

/// A folder that does not exist yet.
fn folder(name: &str) -> PathBuf {
    let folder = crate::support::tmp().join("init").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.parent().unwrap()).unwrap();
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs the command without a cluster and without a terminal. Returns exit code, stdout and stderr.
fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relaybook"));
    command.arg("init").args(args).env("KUBECONFIG", "/does/not/exist").stdin(Stdio::null());
    let output = command.output().expect("relaybook runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Applies all files of a folder as a person does.
async fn apply(world: &World, folder: &Path) {
    let mut command = Command::new(control_plane::kubectl());
    command.args(["apply", "-f"]).arg(folder).env("KUBECONFIG", &world.kubeconfig).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().expect("kubectl runs")).await.expect("joined");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn the_manifests_become_ready_and_report_exactly_the_chosen_changes() {
    let world = World::new("init-app").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.secret("slack", json!({"url": receiver.url("/slack")})).await;
    let dir = folder("app");
    let path = dir.to_str().unwrap();
    let args =
        ["init", "--app", "deploy/web", "--env", "prod=init-app", "--to", "slack", "--on", "deployments", "--dir", path];
    let (code, out, err) = world.command(&args).await;
    assert_eq!(code, Some(0), "{out}{err}");
    assert_eq!(
        out.lines().collect::<Vec<_>>(),
        [
            format!("{path}/pipeline-web.yaml             Pipeline init-app/web: 1 environment, 1 target"),
            format!(
                "{path}/notification-web-slack.yaml   Notification init-app/web-slack: Deployed, Progressing, Failed, Recovered"
            ),
            "Lint: no problems, 2 objects checked.".to_owned(),
        ]
    );
    for line in [
        "  kubectl create secret generic slack -n init-app --from-literal=url='URL'\n",
        &format!("  kubectl apply -f {path}/pipeline-web.yaml -f {path}/notification-web-slack.yaml\n"),
        "  relaybook test web-slack -n init-app\n",
        "  relaybook status -n init-app\n",
    ] {
        assert!(err.contains(line), "{line}: {err}");
    }
    assert!(!err.contains("exists already"), "{err}");
    // A second application in the same namespace has a Notification of its own.
    world.deploy("shop", "1").await;
    let (code, out, err) =
        world.command(&["init", "--app", "deploy/shop", "--env", "prod=init-app", "--to", "slack", "--dir", path]).await;
    assert_eq!(code, Some(0), "{out}{err}");
    apply(&world, &dir).await;
    let (code, _, err) = world.command(&args[..args.len() - 2]).await;
    let words = "warning: Notification init-app/web-slack exists already, and kubectl apply changes it";
    assert!(code == Some(0) && err.contains(words), "{err}");
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    for name in ["web", "shop"] {
        world.pipeline_condition(name, "Ready", |c| c.status == ConditionStatus::True).await;
    }
    assert!(receiver.log().is_empty());

    world.roll_out("web", "2").await;
    receiver.wait("/slack", 1).await;
    world.finish("web").await;
    receiver.wait("/slack", 2).await;
    world.roll_out("web", "3").await;
    receiver.wait("/slack", 3).await;
    world.fail("web", "no such image").await;
    receiver.wait("/slack", 4).await;
    // The rollback ends the failure.
    world.roll_out("web", "2").await;
    world.finish("web").await;
    eventually("the recovery is reported", async || {
        let texts: Vec<_> = receiver.to("/slack").iter().map(|request| request.json().to_string()).collect();
        if texts.iter().any(|text| text.contains("web: Recovered in prod")) { Ok(()) } else { Err(format!("{texts:?}")) }
    })
    .await;
    let texts: Vec<_> = receiver.log().iter().map(|request| request.json().to_string()).collect();
    for (text, type_) in texts.iter().zip(["Progressing", "Deployed", "Progressing", "Failed"]) {
        assert!(text.contains(&format!("web: {type_} in prod")), "{type_}: {text}");
    }
    // The rollback may be seen in progress.
    assert!([5, 6].contains(&texts.len()), "{texts:?}");
    world.break_("shop", "2", "no such image").await;
    let all = receiver.wait("/slack", texts.len() + 1).await;
    let last = all[texts.len()].json().to_string();
    assert!(last.contains("shop: Failed in prod"), "{last}");
    eventually("each message has its delivery", async || {
        let count = world.deliveries().await.len();
        if count == all.len() { Ok(()) } else { Err(count.to_string()) }
    })
    .await;
    assert_eq!(receiver.log().len(), all.len());
}

#[tokio::test]
async fn a_set_follows_all_objects_of_a_kind_and_copies_the_team() {
    let world = World::new("init-follow").await;
    let receiver = Receiver::start();
    world.deploy_with("web", "1", json!({"team": "shop"})).await;
    world.secret("slack", json!({"url": receiver.url("/slack")})).await;
    let dir = folder("follow");
    let args = ["init", "--follow", "deployments", "--to", "slack", "--dir", dir.to_str().unwrap()];
    let (code, out, err) = world.command(&args).await;
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(err.contains("relaybook: there are ") && err.contains(" deployments now, so at most "), "{err}");
    assert_eq!(names(&dir), ["notification-slack.yaml", "pipelineset-deployments.yaml"]);
    apply(&world, &dir).await;
    let _relaybook = Relaybook::start(&world).await;
    let pipeline = eventually("the set has made the pipeline", async || {
        let found = world.api::<Pipeline>().get_opt("deployment.init-follow.web").await.map_err(|e| e.to_string())?;
        found.ok_or_else(|| "none".to_owned())
    })
    .await;
    assert_eq!(pipeline.labels().get("team").map(String::as_str), Some("shop"));
    world.observed("deployment.init-follow.web").await;
    world.ready("slack").await;
    world.cursor("deployment.init-follow.web", "slack").await;
    world.break_("web", "2", "no such image").await;
    let told = receiver.wait("/slack", 1).await;
    let text = told[0].json().to_string();
    assert!(text.contains("Deployment init-follow/web: Failed"), "{text}");
    assert_eq!(receiver.log().len(), 1, "deployments are not reported by default");
}

#[tokio::test]
async fn what_the_controller_follows_already_gets_no_set() {
    let world = World::new("init-followed").await;
    let args = vec!["--follow=deployments".to_owned()];
    let _relaybook = Relaybook::with(&world, Options { args, ..Options::of(&world) }).await;
    let args = ["init", "--follow", "deployments", "--to", "slack", "--controller-namespace", "init-followed"];
    let (out, err) = eventually("the controller publishes what it follows", async || {
        let (code, out, err) = world.command(&args).await;
        assert_eq!(code, Some(0), "{out}{err}");
        if out.contains("kind: PipelineSet") { Err(err) } else { Ok((out, err)) }
    })
    .await;
    let notification: Notification = serde_saphyr::from_str(&out).expect("one Notification");
    assert_eq!((notification.name_any().as_str(), notification.namespace().as_deref()), ("slack", Some("init-followed")));
    assert!(err.contains("a Pipeline for each object of deployments already, so no set is necessary"), "{err}");
    // Without the cluster, nothing is known about the controller.
    let (code, out, err) = world.command(&[&args[..], &["--offline"]].concat()).await;
    assert!(code == Some(0) && out.contains("kind: PipelineSet"), "{out}{err}");
}

#[test]
fn what_is_missing_or_wrong_ends_the_command_at_once() {
    let app = ["--app", "deploy/web", "--env", "prod=web", "-n", "team-a"];
    let with = |more: &[&'static str]| [&app[..], more].concat();
    let dir = folder("wrong");
    let path = dir.to_str().unwrap();
    for (args, code, words) in [
        (vec![], 2, "--app or --follow, and --to are required without a terminal"),
        (vec!["--to", "slack"], 2, "--app or --follow is required without a terminal"),
        (vec!["--app", "deploy/web", "--to", "slack"], 2, "--env is required without a terminal"),
        (with(&[]), 2, "--to is required without a terminal"),
        (with(&["--to", "slak"]), 2, "no such receiver; did you mean slack?"),
        (with(&["--to", "gitea-commit-status"]), 2, "add --set owner=acme --set repository=podinfo --url https://gitea."),
        (with(&["--to", "slack", "--set", "sesame"]), 2, "--set: write NAME=VALUE"),
        (with(&["--to", "slack", "--secret", "sesame_1"]), 2, "--secret: write the name of a Secret"),
        (with(&["--to", "slack", "--url", "https://a.example/sesame"]), 2, "the URL of slack is a credential"),
        (with(&["--to", "slack", "--set", "title={{"]), 2, "; nothing was written; change the flags"),
        (with(&["--to", "generic", "--url", "http://a.example"]), 2, "the manifests would have "),
        (
            vec![
                "--app",
                "hr/web",
                "--env",
                "prod=web",
                "--to",
                "github-commit-status",
                "--set",
                "owner=a",
                "--set",
                "repository=b",
            ],
            2,
            "the revision of a HelmRelease is its chart version",
        ),
        (vec!["--follow", "kustomizations", "--to", "slack"], 5, "--offline does not ask"),
    ] {
        let began = Instant::now();
        let (found, out, err) = run(&[&args[..], &["--dir", path]].concat());
        assert_eq!((found, out.as_str()), (Some(code), ""), "{args:?}: {err}");
        assert!(err.contains(words) && !err.contains("sesame"), "{args:?}: {err}");
        // A question would never end.
        assert!(began.elapsed() < Duration::from_secs(5), "{args:?}");
        assert!(names(&dir).is_empty(), "{args:?}");
    }
}

#[test]
fn an_api_server_that_does_not_answer_ends_the_command() {
    // Nothing accepts the connections.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let dir = folder("silent");
    fs::create_dir_all(&dir).unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "silent",
        "clusters": [{"name": "silent", "cluster": {"server": server}}],
        "contexts": [{"name": "silent", "context": {"cluster": "silent", "user": "silent"}}],
        "users": [{"name": "silent", "user": {}}],
    });
    fs::write(dir.join("kubeconfig"), kubeconfig.to_string()).unwrap();
    let file = dir.join("kubeconfig");
    let args = ["--follow", "deployments", "--to", "slack", "-n", "team-a", "--kubeconfig", file.to_str().unwrap()];
    let (code, out, err) = run(&args);
    assert_eq!((code, out.as_str()), (Some(5), ""), "{err}");
    assert!(err.contains("the API server does not answer in time; --offline does not ask"), "{err}");
}

#[test]
fn existing_files_stay_and_nothing_else_is_written() {
    let dir = folder("existing");
    let args = ["--app", "deploy/web", "--env", "prod=web", "--to", "slack", "-n", "team-a", "--dir", dir.to_str().unwrap()];
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("notification-web-slack.yaml"), "mine").unwrap();
    let (code, out, err) = run(&args);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
    let words = "notification-web-slack.yaml exists. Nothing was written. Use another --dir or --name, or --force\n";
    assert!(err.ends_with(words), "{err}");
    assert_eq!(names(&dir), ["notification-web-slack.yaml"]);
    assert_eq!(fs::read_to_string(dir.join("notification-web-slack.yaml")).unwrap(), "mine");
    let (code, _, err) = run(&[&args[..], &["--name", "shop"]].concat());
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(names(&dir), ["notification-shop-slack.yaml", "notification-web-slack.yaml", "pipeline-shop.yaml"]);
    let (code, _, err) = run(&[&args[..], &["--force"]].concat());
    assert_eq!(code, Some(0), "{err}");
    assert!(fs::read_to_string(dir.join("notification-web-slack.yaml")).unwrap().contains("builtin: slack"));
}

#[test]
fn what_is_printed_is_what_lint_and_kubectl_read() {
    let args = ["--app", "app/web", "--env", "dev=argocd", "--to", "slack,github-issue-comment", "-n", "team-a"];
    let settings = ["--set", "owner=acme", "--set", "repository=podinfo", "--set", "issue=42", "--offline"];
    let (code, out, err) = run(&[&args[..], &settings].concat());
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(out.split("---\n").count(), 3, "{out}");
    assert!(
        err.contains("Pipeline team-a/web: 1 environment, 1 target\n") && err.contains("  kubectl apply -f - "),
        "{err}"
    );
    let words = "web-github-issue-comment sends to https://api.github.com; --url sets another address\n";
    assert!(err.contains(words) && err.contains("Recovered, to https://api.github.com\n"), "{err}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_relaybook"));
    command.args(["lint", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut lint = command.spawn().expect("relaybook starts");
    std::io::Write::write_all(&mut lint.stdin.take().unwrap(), out.as_bytes()).unwrap();
    let output = lint.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("no problems, 3 objects checked"), "{said}");
}
