//! Tests `relaybook wait`: the exit code and the last line, while the status of a real Pipeline changes.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::Instant;

use futures::future::join_all;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use relaybook_api::Pipeline;
use serde_json::json;

use crate::support::relaybook::signal;
use crate::support::wait::heavy;
use crate::support::{Fault, Oracle, Proxy, Receiver, Relaybook, World, eventually, reaper};

/// A `relaybook wait` that runs.
struct Waiter {
    child: Child,
    progress: BufReader<ChildStderr>,
}

impl Waiter {
    /// Starts the command, and waits until its progress has a line with these words.
    async fn start(world: &World, args: &[&str], words: &'static str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relaybook"));
        command.arg("wait").args(args).args(["-n", &world.ns]).env("KUBECONFIG", &world.kubeconfig);
        let streams = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = streams.spawn().expect("relaybook runs");
        reaper::born(child.id());
        let progress = BufReader::new(child.stderr.take().expect("it was asked for"));
        Self { child, progress }.shows(words).await
    }

    /// Waits until the progress has a line with these words.
    async fn shows(mut self, words: &'static str) -> Self {
        let read = move || {
            let mut line = String::new();
            while !line.contains(words) {
                line.clear();
                assert!(self.progress.read_line(&mut line).expect("text") > 0, "it has ended before: {words}");
            }
            self
        };
        tokio::task::spawn_blocking(read).await.expect("joined")
    }

    /// Waits until the command ends. Returns how it ended, and its stdout.
    async fn ended(mut self) -> (ExitStatus, String) {
        let read = move || {
            let mut text = String::new();
            self.child.stdout.take().expect("it was asked for").read_to_string(&mut text).expect("text");
            let status = self.child.wait().expect("it ends");
            reaper::dead(self.child.id());
            (status, text)
        };
        tokio::task::spawn_blocking(read).await.expect("joined")
    }
}

/// Waits until a target of `prod` shows this status.
async fn shown(world: &World, status: &str) {
    eventually(&format!("prod is {status}"), async || {
        let environments = world.get_pipeline("shop").await.status.unwrap_or_default().environments;
        let targets: Vec<_> = environments.iter().filter(|e| e.name == "prod").flat_map(|e| &e.targets).collect();
        let is = targets.iter().any(|target| format!("{:?}", target.status) == status);
        if is { Ok(()) } else { Err(format!("{targets:?}")) }
    })
    .await;
}

#[tokio::test]
async fn the_exit_code_says_whether_the_environment_runs_the_revision() {
    let world = World::new("waiting").await;
    let receiver = Receiver::start();
    world.deploy("api", "1").await;
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/api", "prod/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;

    // What is there, and what is not.
    let (code, out, err) = world.command(&["wait", "shop", "prod", "--revision", "1"]).await;
    assert!(code == Some(0) && out.starts_with("shop/prod  runs 1"), "{code:?} {out} {err}");
    let (code, out, err) = world.command(&["wait", "nope", "--revision", "1"]).await;
    let words = "relaybook: Pipeline waiting/nope cannot be read: pipelines.relaybook.dev \"nope\" not found";
    assert!(code == Some(5) && out.is_empty() && err.starts_with(words), "{code:?} {out} {err}");
    let (code, _, err) = world.command(&["wait", "shop", "qa", "--revision", "1"]).await;
    assert!(code == Some(5) && err.contains("has no environment qa; it has dev, prod, fence"), "{code:?} {err}");
    let (code, out, err) = world.command(&["wait", "shop", "prod", "--revision", "9", "--timeout", "1s"]).await;
    let words = "shop/prod  not 9 after 1s: prod did not try 9; it runs 1; no environment before it runs that\n";
    assert!(code == Some(4) && out == words, "{code:?} {out} {err}");
    assert_eq!(err, "shop/prod  runs 1; 9 is not tried yet\n");

    // A rollout, for an account that may only get and watch this pipeline.
    let rules = json!([{"apiGroups": ["relaybook.dev"], "resources": ["pipelines"], "resourceNames": ["shop"],
        "verbs": ["get", "watch"]}]);
    world.create::<Role>(json!({"metadata": {"name": "waits"}, "rules": rules})).await;
    let subjects = json!([{"kind": "User", "name": "ci", "apiGroup": "rbac.authorization.k8s.io"}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "waits"});
    world.create::<RoleBinding>(json!({"metadata": {"name": "waits"}, "roleRef": role, "subjects": subjects})).await;
    eventually("the role is in force", async || {
        let (code, _, err) = world.command(&["wait", "shop", "prod", "--revision", "1", "--as", "ci"]).await;
        if code == Some(0) { Ok(()) } else { Err(err) }
    })
    .await;
    let (code, _, err) = world.command(&["wait", "shop", "prod", "--revision", "1", "--as", "nobody"]).await;
    assert!(code == Some(5) && err.contains("is forbidden") && err.contains("bind a role"), "{code:?} {err}");
    let args = ["shop", "prod", "--revision", "2", "--since", "1m", "--notified", "--as", "ci"];
    let waiter = Waiter::start(&world, &args, "runs 1; 2 is not tried yet").await;
    world.roll_out("web", "2").await;
    let waiter = waiter.shows("InProgress 2 (0/1 targets)").await;
    world.finish("web").await;
    let (status, out) = waiter.ended().await;
    assert!(status.success() && out.starts_with("shop/prod  runs 2 since ") && out.lines().count() == 1, "{status} {out}");
    let dispatched = world.get_pipeline("shop").await.status.unwrap().dispatched.unwrap();
    assert!(dispatched.cursors.iter().all(|cursor| cursor.serial > 0), "{dispatched:?}");

    // A rollout that fails, and one that another one replaces.
    let waiter = Waiter::start(&world, &["shop", "prod", "--revision", "3", "--failed-for", "1s"], "not tried yet").await;
    world.break_("web", "3", "no such image").await;
    let (status, out) = waiter.ended().await;
    let failed = out.starts_with("shop/prod  Failed 3 after ") && out.contains("no such image");
    assert!(status.code() == Some(1) && failed && out.lines().count() == 1, "{status} {out}");
    shown(&world, "Failed").await;
    let waiter = Waiter::start(&world, &["shop", "prod", "--revision", "3", "--failed-for", "5m"], "Failed 3: ").await;
    world.ship("web", "4").await;
    let (status, out) = waiter.ended().await;
    assert!(status.code() == Some(3) && out.starts_with("shop/prod  Replaced 3 by 4: "), "{status} {out}");

    // A signal, and the end of the pipeline.
    let waiter = Waiter::start(&world, &["shop", "prod", "--revision", "9"], "not tried yet").await;
    // A shell lets a program in the background ignore SIGINT, so the test sends another one.
    signal(waiter.child.id(), "TERM");
    let (status, out) = waiter.ended().await;
    assert!(status.signal() == Some(15) && out.is_empty(), "{status} {out}");
    Oracle::new(&world, &receiver).lane("shop/hook/prod/web", &["Deployed 2", "Failed 3", "Deployed 4"]).check().await;
    let waiter = Waiter::start(&world, &["shop", "prod", "--revision", "9"], "not tried yet").await;
    world.delete_any::<Pipeline>("shop").await;
    let (status, out) = waiter.ended().await;
    assert!(status.code() == Some(5) && out.is_empty(), "{status} {out}");
}

/// Number of jobs that wait for the same revision.
const WAITERS: usize = 20;
/// The API server ends a watch after two minutes. Then the next one begins, and no read is necessary.
const WATCH: u64 = 110;

#[tokio::test]
async fn many_jobs_read_once_and_then_only_watch() {
    let _alone = heavy().await;
    let mut world = World::new("waiting-many").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["prod/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    let proxy = Proxy::start(&world.kubeconfig, "waiting-many").await;
    world.kubeconfig.clone_from(&proxy.kubeconfig);
    // The rules count, and fail no call. The first rule that matches counts.
    let count = || Fault::Times(0, Box::new(Fault::Refuse(500)));
    let watches = proxy.rule(|call| call.is_watch() && call.query.contains("metadata.name%3Dshop"), count());
    let reads = proxy.rule(|call| call.method == "GET" && call.path.ends_with("/waiting-many/pipelines/shop"), count());
    let others = proxy.rule(|_| true, count());

    let began = Instant::now();
    let args = ["shop", "prod", "--revision", "6", "--timeout", "5m"];
    let waiters = join_all((0..WAITERS).map(|_| Waiter::start(&world, &args, "runs 1; 6 is not tried yet"))).await;
    proxy.hit(watches, WAITERS).await;
    for revision in ["2", "3", "4", "5"] {
        world.ship("web", revision).await;
        world.observed_at("shop", revision, &["web"]).await;
    }
    let waiters = join_all(waiters.into_iter().map(|waiter| waiter.shows("runs 5; 6 is not tried yet"))).await;
    world.ship("web", "6").await;
    for (status, out) in join_all(waiters.into_iter().map(Waiter::ended)).await {
        let runs = out.starts_with("shop/prod  runs 6") && out.lines().count() == 1;
        assert!(status.success() && runs, "{status} {out}");
    }
    let most = WAITERS * (1 + usize::try_from(began.elapsed().as_secs() / WATCH).unwrap());
    assert_eq!((proxy.hits(reads), proxy.hits(others)), (WAITERS, 0), "calls beyond one read and one watch of each");
    let watches = proxy.hits(watches);
    assert!((WAITERS..=most).contains(&watches), "{watches} watches, at most {most} expected");
    let changes = ["Deployed 2", "Deployed 3", "Deployed 4", "Deployed 5", "Deployed 6"];
    Oracle::new(&world, &receiver).lane("shop/hook/prod/web", &changes).check().await;
}
