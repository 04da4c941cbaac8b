//! The controllers publish their settings in the ConfigMap `relaybook-info`. `relaybook explain` and `relaybook render` use these settings.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use crate::support::chart::Release;
use crate::support::control_plane::ControlPlane;
use crate::support::relaybook::{Options, command};
use crate::support::{Fault, Proxy, Receiver, Relaybook, World, eventually};

const NAME: &str = "relaybook-info";

/// Creates the namespace of a team, with a notification that needs `--allow-http`.
async fn team(plane: &ControlPlane, ns: &str) -> World {
    let world = World::on(&plane.kubeconfig, ns).await;
    world.pipeline("shop", &["dev/web"]).await;
    world.notification("hook", &Receiver::start(), json!({})).await;
    world
}

/// Runs a command. Returns the first element of its JSON output, and its stderr.
async fn run(world: &World, args: &[&str]) -> (Value, String) {
    let output = command(world, &[args, &["-n", &world.ns, "-o", "json"]].concat()).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{args:?}: {said}");
    (serde_json::from_slice::<Value>(&output.stdout).expect("JSON")[0].clone(), said)
}

/// Waits until this key of the ConfigMap contains these words.
async fn published(world: &World, key: &str, words: &str) -> ConfigMap {
    eventually(&format!("{key} with {words}"), async || {
        let found = world.api::<ConfigMap>().get_opt(NAME).await.map_err(|e| e.to_string())?.ok_or("none")?;
        let text = found.data.as_ref().and_then(|data| data.get(key)).cloned().unwrap_or_default();
        if text.contains(words) { Ok(found) } else { Err(text) }
    })
    .await
}

/// Writes the kubeconfig of a user who has no permissions of their own.
fn person(plane: &ControlPlane, name: &str) -> PathBuf {
    let mut file = Kubeconfig::read_from(&plane.kubeconfig).expect("a kubeconfig");
    for user in file.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        user.impersonate = Some(name.to_owned());
    }
    let path = crate::support::tmp().join(format!("published-{name}"));
    // JSON is YAML.
    std::fs::write(&path, serde_json::to_vec(&file).expect("JSON")).expect("written");
    path
}

fn options(world: &World, watch: &World, args: &[&str]) -> Options {
    Options { watch: vec![watch.ns.clone()], args: args.iter().map(ToString::to_string).collect(), ..Options::of(world) }
}

#[tokio::test]
async fn explain_and_render_use_the_settings_of_the_running_controller() {
    let plane = ControlPlane::start().expect("a control plane");
    let (a, b) = (team(&plane, "team-a").await, team(&plane, "team-b").await);
    let (tools, system) =
        (World::on(&plane.kubeconfig, "tools").await, World::on(&plane.kubeconfig, "relaybook-system").await);

    // As long as no controller has published its settings, the commands say so, and name the settings that they assume.
    let (one, said) = run(&a, &["explain", "shop"]).await;
    assert_eq!(
        (&one["judgedBy"]["configuration"], &one["problem"]["reason"]),
        (&json!("Unknown"), &json!("InsecureScheme"))
    );
    assert!(
        said.contains(
            "is unknown: there is no ConfigMap relaybook-info in any namespace; assumed: --cluster-name=in-cluster"
        )
    );
    assert_eq!((said.lines().count(), &one["judgedBy"]["assumed"][1]), (1, &json!("--allow-http=false")), "{said}");

    let mut first = options(&tools, &a, &["--cluster-name", "eu-1"]);
    first.env.push(("RELAYBOOK_PROXY", "http://someone:sesame@127.0.0.1:9".to_owned()));
    let mut relaybook = Relaybook::with(&tools, first).await;
    // The second controller does not send to loopback addresses.
    let second = Options { loopback: false, ..options(&system, &b, &["--cluster-name", "us-1"]) };
    let _other = Relaybook::with(&system, second).await;
    for (world, cluster) in [(&tools, "eu-1"), (&system, "us-1")] {
        for key in ["dispatch.yaml", "pipeline.yaml"] {
            let object = published(world, key, &format!("clusterName: {cluster}")).await;
            assert!(!serde_json::to_string(&object).unwrap().contains("sesame"), "{object:?}");
        }
    }
    for (world, controller, cluster) in [(&a, "tools", "eu-1"), (&b, "relaybook-system", "us-1")] {
        for args in [&["explain", "shop"][..], &["render", "hook", "--pipeline", "shop"]] {
            let (one, said) = run(world, args).await;
            let by = &one["judgedBy"];
            assert_eq!((&by["configuration"], &by["allowHttp"]), (&json!("Published"), &json!(true)), "{said}");
            assert_eq!((&by["controllerNamespace"], &by["clusterName"]), (&json!(controller), &json!(cluster)));
            assert_eq!(by["version"], env!("CARGO_PKG_VERSION"));
            let told = said.contains("the controller does not send it: destination forbidden: a loopback address");
            let forbidden = told || one["problem"]["reason"] == "DestinationForbidden";
            assert_eq!((forbidden, said.lines().any(|_| !told)), (controller == "relaybook-system", false), "{one} {said}");
            assert!(forbidden || one.get("problem").is_none(), "{one}");
        }
        let (one, _) = run(world, &["explain", "shop"]).await;
        assert_eq!(one["targets"][0], format!("dev/{cluster}/{}/web", world.ns));
        // A flag overrides the published settings.
        let (one, said) = run(world, &["explain", "shop", "--allow-http=false"]).await;
        assert_eq!((said.as_str(), &one["problem"]["reason"]), ("", &json!("InsecureScheme")));
        let text = command(world, &["explain", "shop", "-n", &world.ns]).await.stdout;
        let line = format!("# settings from ConfigMap {controller}/relaybook-info of the running controller, version ");
        assert!(String::from_utf8_lossy(&text).starts_with(&line), "{}", String::from_utf8_lossy(&text));
    }
    // `--controller-namespace` selects the settings. The command warns that this controller does not watch the pipeline.
    let (one, said) = run(&a, &["explain", "shop", "--controller-namespace", "relaybook-system"]).await;
    assert_eq!(one["judgedBy"]["clusterName"], "us-1");
    assert!(said.contains("the controller in namespace relaybook-system does not watch namespace team-a"), "{said}");

    few_permissions(&plane, &a, &tools).await;
    relaybook.stop().await;
    written_only_when_it_changes(&tools, &a).await;
}

/// Checks that the commands report a missing permission to read the ConfigMap, and that `rbac.infoReaders` grants it.
async fn few_permissions(plane: &ControlPlane, team: &World, controller: &World) {
    let mut jane = World::on(&plane.kubeconfig, "of-jane").await;
    jane.ns.clone_from(&team.ns);
    let view = json!({"metadata": {"name": "jane"}, "rules": [
        {"apiGroups": ["relaybook.dev"], "resources": ["pipelines", "notifications"], "verbs": ["get", "list"]}]});
    team.create::<k8s_openapi::api::rbac::v1::Role>(view).await;
    let binding = json!({"metadata": {"name": "jane"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "jane"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    team.create::<k8s_openapi::api::rbac::v1::RoleBinding>(binding).await;
    jane.kubeconfig = person(plane, "jane");
    let explain = ["explain", "shop", "--controller-namespace", "tools"];
    eventually("jane may read pipelines", async || {
        let output = command(&jane, &["explain", "shop", "-n", "team-a"]).await;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    })
    .await;
    for (args, namespace) in [(&["explain", "shop"][..], "relaybook-system"), (&explain, "tools")] {
        let (one, said) = run(&jane, args).await;
        let words = format!("reading ConfigMap relaybook-info in namespace {namespace} is forbidden; the chart value rbac");
        assert!(said.contains(&words), "{said}");
        assert_eq!(
            (&one["judgedBy"]["configuration"], &one["problem"]["reason"]),
            (&json!("Unknown"), &json!("InsecureScheme"))
        );
    }

    let values = json!({"rbac": {"infoReaders": ["system:authenticated"]}});
    let release = Release::render("relaybook", &controller.ns, &values).expect("the chart renders");
    let of_readers = |object: &Value| object["metadata"]["name"] == "relaybook-info";
    release.apply(&plane.kubeconfig, false, of_readers).expect("applied");
    eventually("jane reads what is published", async || {
        let (one, said) = run(&jane, &explain).await;
        let judged = (&one["judgedBy"]["configuration"], one.get("problem").is_none());
        if judged == (&json!("Published"), true) { Ok(()) } else { Err(said) }
    })
    .await;
}

/// Checks that a restart with the same flags writes nothing, that a restart with other flags does, and that a deleted ConfigMap is
/// created again.
async fn written_only_when_it_changes(world: &World, watch: &World) {
    let proxy = Proxy::start(&world.kubeconfig, "published").await;
    let start = async |args: &[&str]| {
        let options = Options { kubeconfig: Some(proxy.kubeconfig.clone()), ..options(world, watch, args) };
        Relaybook::with(world, options).await
    };
    let reads = proxy.rule(|call| call.method == "GET" && call.path.ends_with(NAME), Fault::Late(std::time::Duration::ZERO));
    let writes =
        proxy.rule(|call| call.method == "PATCH" && call.path.ends_with(NAME), Fault::Late(std::time::Duration::ZERO));
    let before = world.api::<ConfigMap>().get(NAME).await.unwrap();
    let mut same = start(&["--cluster-name", "eu-1"]).await;
    proxy.hit(reads, 2).await;
    same.stop().await;
    assert_eq!(proxy.hits(writes), 0);
    assert_eq!(world.api::<ConfigMap>().get(NAME).await.unwrap().resource_version(), before.resource_version());

    let mut changed = start(&["--cluster-name", "eu-2"]).await;
    published(world, "dispatch.yaml", "clusterName: eu-2").await;
    published(world, "pipeline.yaml", "clusterName: eu-2").await;
    changed.stop().await;
    world.delete::<ConfigMap>(NAME).await;
    let _again = start(&["--cluster-name", "eu-2"]).await;
    published(world, "dispatch.yaml", "clusterName: eu-2").await;
    published(world, "pipeline.yaml", "clusterName: eu-2").await;
}
