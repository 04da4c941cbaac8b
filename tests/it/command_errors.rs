//! Error messages of the commands if the API server is unreachable or rejects the request. Also checks that kubeconfig, proxy, user and
//! selector work as in kubectl.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::config::Kubeconfig;
use serde_json::{Value, json};

use crate::support::relaybook::items;
use crate::support::{Receiver, Relaybook, World};

/// Writes a copy of the world's kubeconfig in which one field is changed.
fn kubeconfig(world: &World, name: &str, field: &str, change: impl Fn(&mut Value)) -> PathBuf {
    let mut file = serde_json::to_value(Kubeconfig::read_from(&world.kubeconfig).expect("a kubeconfig")).expect("JSON");
    change(file.pointer_mut(field).expect("the kubeconfig has this field"));
    let folder = crate::support::tmp().join("unanswered");
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(name);
    std::fs::write(&path, serde_json::to_vec(&file).expect("JSON")).expect("written");
    path
}

/// Runs a command with `--kubeconfig`. The variable `KUBECONFIG` names a file that does not exist, and must not be used.
async fn run(kubeconfig: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relaybook"));
    command.args(args).arg("--kubeconfig").arg(kubeconfig).env("KUBECONFIG", "/nowhere").stdin(Stdio::null());
    tokio::task::spawn_blocking(move || command.output().expect("relaybook runs")).await.expect("joined")
}

/// Runs a command that must fail, because it gets no answer. Returns the last line of its stderr.
async fn failure(kubeconfig: &Path, args: &[&str]) -> String {
    let output = run(kubeconfig, args).await;
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(5), "{said}");
    for rust in ["Status {", "ApiError", "ServiceError", "Some(", "client error", "panicked", "'\""] {
        assert!(!said.contains(rust), "{said}");
    }
    assert!(said.lines().all(|line| line.starts_with("relaybook: ")), "{said}");
    said.lines().last().and_then(|line| line.strip_prefix("relaybook: ")).expect("a line").to_owned()
}

#[tokio::test]
async fn an_api_server_error_is_one_sentence_with_place_and_remedy() {
    let world = World::new("unanswered").await;
    let file = Kubeconfig::read_from(&world.kubeconfig).expect("a kubeconfig");
    let server = file.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap();
    let context = file.current_context.unwrap();
    let place = |server: &str| format!("(server {}, context {context})", server.trim_end_matches('/'));
    let explain = ["explain", "nope", "-n", "unanswered"];
    let what = "Pipeline unanswered/nope cannot be read: ";
    assert_eq!(
        failure(&world.kubeconfig, &explain).await,
        format!("{what}pipelines.relaybook.dev \"nope\" not found {}", place(&server))
    );

    let forbidden = "is forbidden: User \"nobody\" cannot";
    let end = format!("{}; bind a role that allows this, or choose another --context", place(&server));
    for (args, what) in [
        (&["audit"][..], "deliveries cannot be listed: deliveries.relaybook.dev"),
        (&["explain", "nope"], "Pipeline unanswered/nope cannot be read: pipelines.relaybook.dev \"nope\""),
        (&["render", "nope"], "Notification unanswered/nope cannot be read: notifications.relaybook.dev \"nope\""),
        (&["redeliver", "--parked"], "deliveries cannot be listed: deliveries.relaybook.dev"),
        (&["redeliver", "nope"], "delivery nope cannot be sent again: deliveries.relaybook.dev \"nope\""),
        (&["audit", "--watch"], "deliveries cannot be watched: the list failed: deliveries.relaybook.dev"),
    ] {
        let said = failure(&world.kubeconfig, &[args, &["-n", "unanswered", "--as", "nobody"]].concat()).await;
        assert!(said.starts_with(&format!("{what} {forbidden}")) && said.ends_with(&end), "{said}");
    }

    let wrong = kubeconfig(&world, "token", "/users/0/user", |user| *user = json!({"token": "sesame"}));
    assert_eq!(
        failure(&wrong, &explain).await,
        format!(
            "{what}Unauthorized {}; the credentials are not accepted or have expired: log in again, or choose another --context",
            place(&server)
        )
    );

    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let url = format!("https://{closed}");
    let down = kubeconfig(&world, "down", "/clusters/0/cluster", |cluster| cluster["server"] = json!(url));
    let remedy = format!("{}; check that the API server runs, and that this is the right context", place(&url));
    for (args, what) in [
        (&explain[..], what),
        (&["redeliver", "nope"], "delivery nope cannot be sent again: "),
        (&["check"], "the version of the API server cannot be read: "),
    ] {
        let said = failure(&down, args).await;
        assert!(said.starts_with(&format!("{what}Connection refused")) && said.ends_with(&remedy), "{said}");
    }

    let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "/no/such/login", "installHint": "ask the shelf"});
    let plugin = kubeconfig(&world, "plugin", "/users/0/user", |user| *user = json!({"exec": exec}));
    let said = failure(&plugin, &explain).await;
    let remedy = "; install /no/such/login, the credential plugin of this context: ask the shelf";
    assert!(said.contains("the exec plugin cannot be started: ") && said.ends_with(remedy), "{said}");

    let stranger = kubeconfig(&world, "stranger", "/clusters/0/cluster", |cluster| {
        let cluster = cluster.as_object_mut().expect("an object");
        cluster.remove("certificate-authority-data");
        cluster.remove("certificate-authority");
    });
    let said = failure(&stranger, &explain).await;
    let remedy = "; check certificate-authority and server of this context in the kubeconfig";
    assert!(said.contains("invalid peer certificate") && said.ends_with(remedy), "{said}");
}

#[tokio::test]
async fn an_unusable_kubeconfig_is_reported_with_a_remedy() {
    let world = World::new("unusable").await;
    let user = |name: &str, user: Value| kubeconfig(&world, name, "/users/0/user", |old| *old = user.clone());
    let server =
        |name: &str, url: &str| kubeconfig(&world, name, "/clusters/0/cluster", |cluster| cluster["server"] = json!(url));
    let nothing = kubeconfig(&world, "nothing", "", |file| *file = json!({"contexts": "none"}));
    let file = "/no/such/kubeconfig";
    let missing = format!("{file} cannot be read: No such file or directory (os error 2); use another kubeconfig");
    let data = json!({"client-certificate": "/no/such/file", "client-key-data": ""});
    for (kubeconfig, words) in [
        (PathBuf::from(file), missing.as_str()),
        (nothing, "it is not a kubeconfig: "),
        (user("lines", json!({"token": "x\ny"})), "the token of this context contains an invalid character"),
        (server("words", "nonsense"), "the server of this context is not a URL; write it as https://HOST:PORT"),
        (server("scheme", "ftp://127.0.0.1"), "the server of this context is not a URL; write it as https://HOST:PORT"),
        (user("file", data), "its client-certificate cannot be read from /no/such/file: No such file"),
    ] {
        let said = failure(&kubeconfig, &["audit"]).await;
        assert!(said.contains(words), "{said}");
    }
    let said = failure(&world.kubeconfig, &["audit", "--context", "elsewhere"]).await;
    assert!(said.ends_with("it has no context elsewhere; `kubectl config get-contexts` lists its contexts"), "{said}");

    let failing = |script: &str| {
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]});
        user("failing", json!({"exec": exec}))
    };
    let output = run(&failing("echo log in first >&2; exit 3"), &["audit"]).await;
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains("the exec plugin failed with exit status: 3") && said.contains("run sh manually"), "{said}");
    assert!(said.contains("log in first") && !said.contains("no error"), "{said}");
}

/// Starts an HTTP proxy that supports CONNECT. Returns its URL, and the number of tunnels that it has opened.
fn tunnels() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (url, opened) = (format!("http://{}", listener.local_addr().expect("its address")), Arc::new(AtomicUsize::new(0)));
    let count = opened.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut lines = BufReader::new(stream.try_clone().expect("another handle")).lines().map_while(Result::ok);
            let Some(first) = lines.next() else { continue };
            let target =
                first.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).expect("a tunnel").to_owned();
            lines.find(String::is_empty);
            tunnel(stream, TcpStream::connect(target).expect("the API server"));
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    (url, opened)
}

fn tunnel(mut stream: TcpStream, upstream: TcpStream) {
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("answered");
    let there = (stream.try_clone().expect("another handle"), upstream.try_clone().expect("another handle"));
    for (mut from, mut to) in [there, (upstream, stream)] {
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    }
}

#[tokio::test]
async fn kubeconfig_user_selector_and_proxy_work_as_in_kubectl() {
    let world = World::new("asked").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web", "prod/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;

    let (proxy, opened) = tunnels();
    let behind = kubeconfig(&world, "proxy", "/clusters/0/cluster", |cluster| cluster["proxy-url"] = json!(proxy));
    let audit = ["audit", "-n", "asked", "--pipeline", "shop", "-o", "json"];
    for (args, environments) in [
        (&[][..], &["dev", "prod"][..]),
        (&["-l", "relaybook.dev/environment=prod"], &["prod"]),
        (&["-l", "relaybook.dev/environment in (prod,test)", "--as", "anyone", "--as-group", "system:masters"], &["prod"]),
    ] {
        let before = opened.load(Ordering::Relaxed);
        let output = run(&behind, &[&audit, args].concat()).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let rows = items(&output.stdout);
        let of = |row: &Value| row["subject"].as_str().unwrap().split('/').next().unwrap().to_owned();
        let mut found: Vec<_> =
            rows.iter().filter(|row| !row["subject"].as_str().unwrap().contains("fence")).map(of).collect();
        found.sort();
        assert_eq!(found, environments, "{rows:#?}");
        assert!(opened.load(Ordering::Relaxed) > before, "it went through the proxy");
    }
    let output = run(&behind, &["audit", "-n", "asked", "-l", "a in"]).await;
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("deliveries cannot be listed"));
}

#[tokio::test]
async fn a_closed_pipe_ends_every_command_silently() {
    let world = World::new("piped").await;
    let receiver = Receiver::start();
    world.deploy("web", "1").await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &receiver, json!({})).await;
    let _relaybook = Relaybook::start(&world).await;
    world.settled().await;
    world.ship("web", "2").await;
    world.fence("shop", &["hook"]).await;
    let wrong = crate::support::tmp().join("piped.yaml");
    std::fs::write(&wrong, "apiVersion: relaybook.dev/v1alpha1\nkind: Pipeline\nmetadata: {name: a}\n").expect("written");
    let wrong = wrong.to_str().expect("a path");
    let setters = crate::support::tmp().join("piped-setters.yaml");
    std::fs::write(&setters, "a: 1 # {\"$promotion\": \"a:b:c\"}\n").expect("written");
    let setters = setters.to_str().expect("a path");
    for args in [
        &["crds"][..],
        &["templates"],
        &["templates", "show", "slack"],
        &["completion", "bash"],
        &["lint", wrong],
        &["setters", setters],
        &["setters", setters, "--promotion", "a:b:c", "--revision", "2", "-o", "json"],
        &["audit", "-n", "piped"],
        &["audit", "-n", "piped", "-o", "json"],
        &["audit", "-n", "piped", "-o", "yaml"],
        &["version", "-o", "json"],
        &["explain", "shop", "-n", "piped"],
        &["render", "hook", "-n", "piped", "--allow-http"],
        &["redeliver", "--parked", "--dry-run", "-n", "piped"],
        &["--help"],
        &["run", "--help"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relaybook"));
        command.args(args).env("KUBECONFIG", &world.kubeconfig).stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || {
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("relaybook runs");
            // The reading end of stdout is closed before the first byte.
            drop(child.stdout.take());
            child.wait_with_output().expect("it ends")
        })
        .await
        .expect("joined");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let harmless = said.is_empty() || said == "no parked deliveries found\n";
        assert!(output.status.code() == Some(0) && harmless, "{args:?}: {:?} {said}", output.status);
    }
}
