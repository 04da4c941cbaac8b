//! `helm test`: its Pod checks whether the installation can work. The command of the Pod is run here as a process, with a token of its
//! service account.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{SETS, kubeconfig, of_set, render};
use crate::support::chart::Release;
use crate::support::control_plane::{self, ControlPlane};
use crate::support::relaybook::Options;
use crate::support::{Relaybook, World, eventually};

/// The command of the test Pod, for a release whose Service is at this address.
struct Check {
    args: Vec<String>,
    namespace: String,
    kubeconfig: PathBuf,
}

impl Check {
    fn of(release: &Release, kubeconfig: &Path, address: Option<&str>) -> Self {
        let pod = release.test_pod();
        assert_eq!(pod["serviceAccountName"], release.account());
        let args = pod["containers"][0]["args"].as_array().expect("a list").iter();
        let mut args: Vec<String> = args.map(|arg| arg.as_str().expect("a text").to_owned()).collect();
        for arg in &mut args {
            // There is no Service here, so the URL is replaced by the address of the process. Its name and port must be those of the chart.
            if let (Some(url), Some(address)) = (arg.strip_prefix("--ready-url="), address) {
                let of_metrics = |service: &&Value| service["spec"]["ports"][0]["name"] == "http";
                let service = release.of("Service").find(of_metrics).expect("a Service");
                let (name, port) =
                    (service["metadata"]["name"].as_str().unwrap(), service["spec"]["ports"][0]["port"].as_u64());
                assert_eq!(url, format!("http://{name}.{}:{}/readyz", release.namespace, port.expect("a port")));
                *arg = format!("--ready-url=http://{address}/readyz");
            }
        }
        Self { args, namespace: release.namespace.clone(), kubeconfig: kubeconfig.to_owned() }
    }

    /// Returns the check before an installation in a namespace.
    fn before(namespace: &str, kubeconfig: &Path, more: &[&str]) -> Self {
        let args = ["check", "--pre"].iter().chain(more).map(|arg| (*arg).to_owned()).collect();
        Self { args, namespace: namespace.to_owned(), kubeconfig: kubeconfig.to_owned() }
    }

    /// Removes the check whether the controller is ready.
    fn without_readiness(mut self) -> Self {
        self.args.retain(|arg| !arg.starts_with("--ready-url="));
        self
    }

    /// Removes the wait: each check runs once.
    fn once(mut self) -> Self {
        self.args.retain(|arg| !arg.starts_with("--wait="));
        self
    }

    /// Runs the command. Returns its exit code, the lines on stdout, and stderr.
    async fn run(&self) -> (Option<i32>, Vec<String>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relaybook"));
        command.args(&self.args).env("KUBECONFIG", &self.kubeconfig).env("POD_NAMESPACE", &self.namespace);
        command.stdin(Stdio::null());
        let ended = tokio::task::spawn_blocking(move || command.output().expect("relaybook runs")).await.expect("joined");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (ended.status.code(), text(ended.stdout).lines().map(str::to_owned).collect(), text(ended.stderr))
    }
}

fn failed(lines: &[String]) -> Vec<&str> {
    lines.iter().filter_map(|line| line.strip_prefix("FAILED  ")).collect()
}

#[tokio::test]
async fn helm_test_checks_crds_permissions_and_readiness() {
    let plane = ControlPlane::with(Vec::new()).expect("a control plane");
    let own = World::on(&plane.kubeconfig, "relaybook-system").await;
    an_empty_cluster_is_ready_for_an_installation_by_an_administrator(&plane).await;
    let release = render("relaybook", "relaybook-system", &serde_json::json!({}));
    let account = release.as_its_account(&plane.kubeconfig).await;
    let options = Options { watch: Vec::new(), kubeconfig: Some(account.clone()), ..Options::of(&own) };
    let mut relaybook = Relaybook::begin(&own, options).await;
    relaybook.wait_listening().await;
    let address = relaybook.address().to_owned();
    let check = || Check::of(&release, &account, Some(&address));

    // Without CRDs Relaybook waits for them.
    eventually("it is not ready", async || relaybook.ready().await.map_or_else(|_| Ok(()), Err)).await;
    let (code, lines, words) = check().once().run().await;
    let wrong = failed(&lines);
    assert_eq!((code, wrong.len()), (Some(1), 2), "{lines:#?}");
    assert!(wrong[0].starts_with("CRDs of version ") && wrong[0].contains("missing: Pipeline, Notification, Delivery"));
    assert!(wrong[1].contains("not ready (503 Service Unavailable), waiting for: definitions"), "{wrong:?}");
    assert!(words.contains("2 of 22 checks failed"), "{words}");

    // The Pod waits for CRDs that are installed a little later.
    let waiting = check();
    assert!(waiting.args.iter().any(|arg| arg.starts_with("--wait=")), "{:?}", waiting.args);
    let waiting = tokio::spawn(async move { waiting.run().await });
    for crd in relaybook_api::crds() {
        control_plane::install(&own.client, &crd).await;
    }
    let (code, lines, words) = waiting.await.expect("joined");
    // The last line compares the versions, or says that the controller has not published its own yet.
    assert!(code == Some(0) && failed(&lines).is_empty() && lines.len() >= 22, "{lines:#?} {words}");

    // The same checks for the account, run by another user.
    let mut of_account = Check { kubeconfig: plane.kubeconfig.clone(), ..check().once() };
    of_account.args.push(format!("--service-account={}", release.account()));
    eventually("the controllers have their Leases", async || {
        let (code, lines, _) = of_account.run().await;
        if code == Some(0) { Ok(()) } else { Err(format!("{lines:#?}")) }
    })
    .await;
    of_account.args.push("--service-account=nobody".to_owned());
    of_account.args.retain(|arg| *arg != format!("--service-account={}", release.account()));
    let (code, lines, _) = of_account.run().await;
    assert_eq!((code, failed(&lines).len()), (Some(1), 18), "{lines:#?}");

    // With one permission less.
    let mut less = render("relaybook", "relaybook-system", &serde_json::json!({}));
    for object in less.objects.iter_mut().filter(|object| object["kind"] == "ClusterRole") {
        let rules = object["rules"].as_array_mut().expect("rules");
        let is = |rule: &Value| rule["resources"][0] == "deliveries" && rule["verbs"].to_string().contains("list");
        for rule in rules.iter_mut().filter(|rule| is(rule)) {
            rule["verbs"] = serde_json::json!(["get", "watch", "delete"]);
        }
    }
    less.apply(&plane.kubeconfig, false, |object| object["kind"] == "ClusterRole").expect("applied");
    eventually("the permission is gone", async || {
        let (code, lines, _) = check().once().run().await;
        let want = "permission to get, list, watch, create, patch, delete deliveries.relaybook.dev in all namespaces: not allowed: list, create, patch";
        if code == Some(1) && failed(&lines) == [want] { Ok(()) } else { Err(format!("{lines:#?}")) }
    })
    .await;
    a_second_installation_is_refused(&plane).await;
    relaybook.stop().await;
    let (code, lines, _) = check().once().run().await;
    assert!(code == Some(1) && failed(&lines).iter().any(|why| why.contains("no answer")), "{lines:#?}");
}

async fn an_empty_cluster_is_ready_for_an_installation_by_an_administrator(plane: &ControlPlane) {
    let (code, lines, words) = Check::before("relaybook-system", &plane.kubeconfig, &[]).run().await;
    assert!(code == Some(0) && lines.iter().all(|line| line.starts_with("ok      ")), "{lines:#?} {words}");
    for expected in [
        "ok      Kubernetes v1.",
        "ok      namespace relaybook-system exists",
        "ok      CRDs of the group relaybook.dev: there are none",
        "ok      permission to create clusterroles.rbac.authorization.k8s.io",
        "ok      permission to create deployments.apps in relaybook-system",
        "ok      permission to grant the permissions of the controllers",
        "ok      Leases in namespace relaybook-system: not held",
        "ok      other installations: none watches",
    ] {
        assert!(lines.iter().any(|line| line.starts_with(expected)), "{expected}: {lines:#?}");
    }

    let stranger = ["--as=somebody", "--as-group=system:authenticated"];
    let (code, lines, words) = Check::before("elsewhere", &plane.kubeconfig, &stranger).run().await;
    let wrong = failed(&lines);
    let crds = "permission to create customresourcedefinitions.apiextensions.k8s.io: not allowed";
    assert!(code == Some(1) && wrong.contains(&crds) && wrong.len() == 13, "{lines:#?} {words}");
    let granted = "permission to grant the permissions of the controllers: an account can grant only what it has";
    assert!(wrong.iter().any(|why| why.starts_with(granted)), "{lines:#?}");
    let remedies = lines.iter().filter(|line| line.starts_with("  do    ")).count();
    assert_eq!(remedies, wrong.len(), "{lines:#?}");
}

async fn a_second_installation_is_refused(plane: &ControlPlane) {
    let (code, lines, words) = Check::before("relaybook-system", &plane.kubeconfig, &[]).run().await;
    let wrong = failed(&lines);
    let held = "Leases in namespace relaybook-system: another installation holds them: relaybook-pipeline by ";
    assert!(code == Some(1) && wrong.len() == 1 && wrong[0].starts_with(held), "{lines:#?} {words}");
    let crds = "WARN    CRDs of the group relaybook.dev: they exist already";
    assert!(lines.iter().any(|line| line == crds), "{lines:#?}");
    eventually("the installation is found from another namespace", async || {
        let (code, lines, _) = Check::before("elsewhere", &plane.kubeconfig, &[]).run().await;
        let twice = "installation in namespace relaybook-system: version ";
        let is_it = |why: &&str| why.starts_with(twice) && why.contains("both would send each message");
        let is_found = failed(&lines).iter().any(is_it);
        if code == Some(1) && is_found { Ok(()) } else { Err(format!("{lines:#?}")) }
    })
    .await;
    let apart = ["--watch-namespace=elsewhere", "--controllers=pipeline"];
    let (code, lines, _) = Check::before("elsewhere", &plane.kubeconfig, &apart).run().await;
    assert_eq!(code, Some(0), "another controller: {lines:#?}");
}

/// Whether a rule depends on the values: kinds to observe, Secrets, and ConfigMaps without `resourceNames`.
fn is_chosen(rule: &Value) -> bool {
    let verbs: BTreeSet<_> = rule["verbs"].as_array().expect("verbs").iter().filter_map(Value::as_str).collect();
    rule["apiGroups"][0] != "relaybook.dev" && verbs == BTreeSet::from(["list", "watch"])
}

#[tokio::test]
async fn the_checked_permissions_are_those_of_the_chart() {
    for set in SETS {
        let release = of_set(set);
        let check = Check::of(release, kubeconfig(), None).without_readiness().once();
        let (code, lines, words) = eventually("the API server publishes the CRDs", async || {
            let found = check.run().await;
            let is_published = found.1.iter().any(|line| line.starts_with("ok      CRDs of version "));
            if is_published { Ok(found) } else { Err(format!("{:#?}", found.1)) }
        })
        .await;
        let is_of_leases = |why: &&str| why.starts_with("controllers that act in namespace ");
        // No controller runs here, or that of another test.
        let failed = failed(&lines);
        assert!(
            failed.len() <= 1 && failed.iter().all(is_of_leases),
            "{set}: an administrator may do all: {lines:#?} {words}"
        );
        assert_eq!(code, Some(i32::from(!failed.is_empty())), "{set}: {lines:#?} {words}");
        // Objects of other tests can be warnings, whose texts name permissions, too.
        let permissions = lines.iter().filter_map(|line| line.get(8..)?.strip_prefix("permission to "));
        let asked = permissions.filter_map(|line| line.split(": ").next());
        let asked: BTreeSet<String> = asked.map(str::to_owned).collect();
        let mut given = BTreeSet::new();
        for (namespace, rule) in release.rules().into_iter().filter(|(_, rule)| !is_chosen(rule)) {
            let texts = |field: &str| -> Vec<&str> {
                rule[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
            };
            let place = namespace.map_or("all namespaces", |namespace| namespace);
            let group = texts("apiGroups")[0];
            let group = if group.is_empty() { String::new() } else { format!(".{group}") };
            let names = texts("resourceNames");
            let names = if names.is_empty() { vec![String::new()] } else { names.iter().map(|n| format!(" {n}")).collect() };
            for (resource, name) in texts("resources").iter().flat_map(|resource| names.iter().map(move |n| (resource, n))) {
                given.insert(format!("{} {resource}{group}{name} in {place}", texts("verbs").join(", ")));
            }
        }
        assert_eq!(asked, given, "{set}: {words}");
    }
}

#[test]
fn the_pod_of_helm_test_is_not_one_of_the_controller() {
    let fits = |selector: &Value, labels: &Value| {
        selector.as_object().expect("labels").iter().all(|(name, value)| labels.get(name) == Some(value))
    };
    let mut peers = 0;
    for set in SETS {
        let release = of_set(set);
        let [pod] = &release.hooks[..] else { panic!("{set}: {} hooks", release.hooks.len()) };
        assert_eq!(pod["metadata"]["annotations"]["helm.sh/hook"], "test");
        let labels = &pod["metadata"]["labels"];
        let deployment = release.of("Deployment").next().expect("a Deployment");
        assert!(!fits(&deployment["spec"]["selector"]["matchLabels"], labels), "{set}: {labels}");
        for policy in release.of("NetworkPolicy") {
            // If only some Pods may connect, the test Pod is one of them.
            let from = policy["spec"]["ingress"][0]["from"].as_array().into_iter().flatten();
            let selectors = from.filter_map(|peer| peer.pointer("/podSelector/matchLabels"));
            peers += selectors.filter(|selector| fits(selector, labels)).count();
        }
        assert_eq!(pod["spec"]["containers"][0]["image"], release.pod()["containers"][0]["image"], "{set}");
    }
    assert_eq!(peers, 1, "one set restricts who may connect");
    let without = render("without", "own", &serde_json::json!({"tests": {"enabled": false}}));
    assert_eq!(without.hooks.len(), 0);
}
