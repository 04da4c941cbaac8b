//! The chart's values: what they may not be, and that every flag of the program has one.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{SETS, of_set, render};
use crate::support::chart::{self, Release};

/// What is refused, and a word of the complaint.
#[test]
fn a_value_that_cannot_be_right_is_refused() {
    let long: Vec<_> = (0..3).map(|n| format!("team-{n}")).collect();
    for (values, word) in [
        (json!({"replica": 3}), "replica"),
        (json!({"egress": {"allowHTTP": true}}), "allowHTTP"),
        (json!({"replicas": "two"}), "replicas"),
        (json!({"controllers": []}), "controllers"),
        (json!({"controllers": ["sender"]}), "controllers"),
        (json!({"workers": 1}), "workers"),
        (json!({"watchNamespaces": ["Team"]}), "watchNamespaces"),
        (json!({"terminationGracePeriodSeconds": 29}), "terminationGracePeriodSeconds"),
        (json!({"egress": {"denyDestinations": ["localhost"]}}), "denyDestinations"),
        (json!({"egress": {"proxy": {"url": "http://someone:sesame@proxy.example:3128"}}}), "url"),
        (json!({"egress": {"caBundle": {"content": "a key"}}}), "content"),
        (json!({"image": {"digest": "sha256:1"}}), "digest"),
        (json!({"rbac": {"secrets": {"access": "some"}}}), "access"),
        (json!({"rbac": {"secrets": {"access": "listed"}}}), "listed"),
        (json!({"rbac": {"secrets": {"access": "all", "listed": [{"namespace": "a", "all": true}]}}}), "listed"),
        (json!({"rbac": {"secrets": {"access": "listed", "listed": [{"namespace": "a", "names": []}]}}}), "names"),
        (json!({"rbac": {"secrets": {"access": "listed", "listed": [{"namespace": "a"}]}}}), "listed"),
        (json!({"observe": {"extra": [{"apiGroups": ["*"], "resources": ["*"]}]}}), "apiGroups"),
        (json!({"observe": {"extra": [{"apiGroups": [""], "resources": ["secrets"]}]}}), "resources"),
        (json!({"serviceAccount": {"create": false}}), "serviceAccount.name"),
        (json!({"metrics": {"serviceMonitor": {"enabled": true}, "service": {"enabled": false}}}), "metrics.service"),
    ] {
        let complaint = Release::render("refused", "own", &values).err().unwrap_or_else(|| panic!("{values} is taken"));
        assert!(complaint.contains(word), "{values}: {complaint}");
    }
    assert!(Release::render("taken", "own", &json!({"global": {"any": "thing"}, "watchNamespaces": long})).is_ok());
}

/// What `--help` names.
fn flags() -> BTreeSet<String> {
    let help = Command::new(env!("CARGO_BIN_EXE_pennant")).args(["run", "--help"]).output().expect("it runs");
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    let named = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let flag = if line.starts_with("--") { line } else { line.strip_prefix('-')?.split_once(", ")?.1 };
        let name = flag.split(|c: char| c.is_whitespace() || c == '=').next()?;
        name.starts_with("--").then(|| name.to_owned())
    });
    named.collect()
}

#[test]
fn every_flag_of_the_program_has_a_value() {
    let flags = flags();
    assert!(flags.len() > 15, "{flags:?}");
    let mut said = BTreeSet::new();
    for set in SETS {
        let release = of_set(set);
        said.extend(release.args().into_iter().filter_map(|arg| Some(arg.split('=').next()?.to_owned())));
    }
    // The namespace is the release's and comes by POD_NAMESPACE; a kubeconfig has contexts, and a Pod has none.
    let else_where = ["--namespace", "--context", "--help"];
    let without: Vec<_> =
        flags.iter().filter(|flag| !said.contains(*flag) && !else_where.contains(&flag.as_str())).collect();
    assert!(without.is_empty(), "no value of the chart leads to {without:?}");
}

#[test]
fn the_program_understands_its_arguments() {
    for set in SETS {
        let started = |more: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_pennant"));
            // Nowhere to go: it ends once it has understood what it was told.
            command.env_clear().env("KUBECONFIG", "/nowhere").args(of_set(set).args()).args(more);
            let output = command.output().expect("it runs");
            (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        let (code, said) = started(&[]);
        assert!(code == Some(1) && said.contains("no cluster"), "{set}: {code:?} {said}");
        assert_eq!(started(&["--no-such-flag"]).0, Some(2), "{set}");
    }
}

#[test]
fn the_global_configuration_arrives_as_it_was_written() {
    let lint = |release: &Release, name: &str| {
        let map = release.of("ConfigMap").find(|map| map["metadata"]["name"] == name).expect("the ConfigMap");
        let args = ["lint", "--config-map", name, "--controller-namespace", &release.namespace, "-"];
        chart::answer(chart::run(Path::new(env!("CARGO_BIN_EXE_pennant")), &args, &map.to_string()))
    };
    lint(&of_set("everything"), "pennant-global").unwrap();
    let isolated = of_set("isolated");
    lint(&isolated, "pennant-config").unwrap();
    let text = isolated.of("ConfigMap").next().unwrap()["data"]["config.yaml"].as_str().unwrap().to_owned();
    assert!(text.starts_with("# As a text, with its comments.\n"), "{text}");
    let broken = json!({"config": {"content": {"notificatoins": []}}});
    assert!(lint(&render("broken", "own", &broken), "pennant-config").is_err());
    assert_eq!(of_set("default").of("ConfigMap").count(), 0);
}

#[test]
fn what_is_secret_is_not_in_the_arguments() {
    let release = of_set("everything");
    assert!(release.args().iter().all(|arg| !arg.starts_with("--proxy")), "{:?}", release.args());
    let env = release.pod()["containers"][0]["env"].as_array().unwrap();
    let proxy = env.iter().find(|variable| variable["name"] == "PENNANT_PROXY").unwrap();
    assert_eq!(proxy["valueFrom"]["secretKeyRef"], json!({"name": "pennant-proxy", "key": "url"}));
    let value = |name: &str| env.iter().find(|variable| variable["name"] == name).map(|v| v["value"].clone());
    assert_eq!(value("SSL_CERT_DIR"), Some(Value::from("/etc/ssl/certs:/etc/pennant/ca")));
}
