//! The chart's values: which ones are rejected, what they render, and that each flag of the program has one.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{SETS, of_set, render};
use crate::support::chart::{self, Release};

/// The argument for the key of the audit page, which is in a Secret.
const KEY_FILE: &str = "--page-key-file=/etc/relaybook/page/key";

/// Each entry is a value that Helm rejects, and words of the error message. The templates reject the first seven, and the schema the others.
#[test]
fn an_invalid_value_is_rejected() {
    let two_monitors = json!({"serviceMonitor": {"enabled": true}, "podMonitor": {"enabled": true}});
    for (values, words) in [
        (json!({"fullnameOverride": "1st"}), "begins with a letter"),
        (json!({"hooks": {"enabled": true}, "controllers": ["dispatch"]}), "hooks.enabled requires the controller promote"),
        (
            json!({"page": {"enabled": true}, "fullnameOverride": "1st", "metrics": {"service": {"enabled": false}}}),
            "1st-page: the name of a Service begins with a letter",
        ),
        (json!({"serviceAccount": {"create": false}}), "serviceAccount.name"),
        (json!({"metrics": {"serviceMonitor": {"enabled": true}, "service": {"enabled": false}}}), "metrics.service"),
        (json!({"metrics": two_monitors}), "scraped twice"),
        (
            json!({"image": {"repository": ""}}),
            "image.repository is not set, and no image is published yet: build one (docs/image.md)",
        ),
        (json!({"replica": 3}), "replica"),
        (json!({"egress": {"proxy": {"url": "http://someone:sesame@proxy.example:3128"}}}), "url"),
        (json!({"rbac": {"secrets": {"access": "listed"}}}), "listed"),
        (json!({"observe": {"extra": [{"apiGroups": [""], "resources": ["secrets"]}]}}), "resources"),
        (json!({"config": {"content": {"foo": "bar"}}}), "'/config/content': additional properties 'foo' not allowed"),
    ] {
        let complaint = Release::render("refused", "own", &values).err().unwrap_or_else(|| panic!("{values} is accepted"));
        assert!(complaint.contains(words), "{values}: {complaint}");
    }
    for (name, values) in [
        ("taken", json!({"global": {"any": "thing"}, "watchNamespaces": ["team-0", "team-1", "team-2"]})),
        ("taken", json!({"config": {"name": "n".repeat(243)}})),
        ("taken", json!({"page": {"url": "http://localhost:8082/"}})),
        // The name of a Service must begin with a letter. Other names need not.
        ("1st", json!({"metrics": {"service": {"enabled": false}}})),
        ("1st", json!({"fullnameOverride": "first"})),
    ] {
        Release::render(name, "own", &values).unwrap_or_else(|why| panic!("{name}: {values}: {why}"));
    }
    assert!(Release::render("1st", "own", &json!({})).is_err_and(|why| why.contains("fullnameOverride")));
    assert!(Release::as_given("bare", "own", &json!({})).is_err_and(|why| why.contains("image.repository is not set")));
}

/// Helm validates the values together with the defaults. Each entry is a value that the schema rejects, and a word of the path or message.
#[test]
fn the_schema_of_the_values_rejects_an_invalid_value() {
    let file = |name: &str| std::fs::read_to_string(chart::root().join("charts/relaybook").join(name)).expect("a file");
    let schema: Value = serde_json::from_str(&file("values.schema.json")).expect("JSON");
    let defaults: Value = serde_saphyr::from_str(&file("values.yaml")).expect("YAML");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let complaints = |values: &Value| {
        let mut all = defaults.clone();
        json_patch::merge(&mut all, values);
        let errors = validator.iter_errors(&all).map(|error| format!("at '{}': {error}", error.instance_path()));
        errors.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(complaints(&json!({})), "");
    for (values, word) in of_the_pod().into_iter().chain(of_the_program()) {
        let found = complaints(&values);
        assert!(found.contains(word), "{values}: {found:?}");
    }
}

/// Invalid values that configure the Deployment, its Pods and their permissions.
fn of_the_pod() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"replica": 3}), "replica"),
        (json!({"replicas": "two"}), "'/replicas'"),
        (json!({"terminationGracePeriodSeconds": 29}), "'/terminationGracePeriodSeconds'"),
        (json!({"image": {"digest": "sha256:1"}}), "'/image/digest'"),
        (json!({"volumes": [{"emptyDir": {}}]}), "name"),
        (json!({"volumeMounts": [{"name": "more"}]}), "mountPath"),
        (json!({"extraObjects": [1]}), "'/extraObjects/0'"),
        (json!({"global": {"imagePullSecrets": ["registry"]}}), "'/global/imagePullSecrets/0'"),
        (json!({"hostAliases": [{"ip": "10.0.0.5"}]}), "hostnames"),
        (json!({"dnsPolicy": "First"}), "'/dnsPolicy'"),
        (json!({"revisionHistoryLimit": -1}), "'/revisionHistoryLimit'"),
        (json!({"rbac": {"secrets": {"access": "some"}}}), "'/rbac/secrets/access'"),
        (json!({"rbac": {"secrets": {"access": "listed"}}}), "'/rbac/secrets/listed'"),
        (
            json!({"rbac": {"secrets": {"access": "all", "listed": [{"namespace": "a", "all": true}]}}}),
            "'/rbac/secrets/listed'",
        ),
        (json!({"rbac": {"secrets": {"access": "listed", "listed": [{"namespace": "a", "names": []}]}}}), "names"),
        (json!({"rbac": {"secrets": {"access": "listed", "listed": [{"namespace": "a"}]}}}), "'/rbac/secrets/listed/0'"),
        (json!({"rbac": {"infoReaders": "system:authenticated"}}), "'/rbac/infoReaders'"),
        (json!({"observe": {"extra": [{"apiGroups": ["*"], "resources": ["*"]}]}}), "'/observe/extra/0/apiGroups/0'"),
        (json!({"observe": {"extra": [{"apiGroups": [""], "resources": ["secrets"]}]}}), "'/observe/extra/0/resources/0'"),
    ]
}

/// Invalid values that become arguments of the program, or its global configuration.
fn of_the_program() -> Vec<(Value, &'static str)> {
    vec![
        (json!({"controllers": []}), "'/controllers'"),
        (json!({"controllers": ["sender"]}), "'/controllers/0'"),
        (json!({"workers": 1}), "'/workers'"),
        (json!({"watchNamespaces": ["Team"]}), "'/watchNamespaces/0'"),
        (json!({"egress": {"allowHTTP": true}}), "allowHTTP"),
        (json!({"egress": {"denyDestinations": ["localhost"]}}), "'/egress/denyDestinations/0'"),
        (json!({"egress": {"proxy": {"url": "http://someone:sesame@proxy.example:3128"}}}), "'/egress/proxy/url'"),
        (json!({"egress": {"caBundle": {"content": "a key"}}}), "'/egress/caBundle/content'"),
        (json!({"hooks": {"port": 0}}), "'/hooks/port'"),
        (json!({"hooks": {"secretRef": {"name": "a"}}}), "secretRef"),
        (json!({"page": {"url": "http://relaybook.example.com"}}), "'/page/url'"),
        (json!({"page": {"url": "https://relaybook.example.com/page"}}), "'/page/url'"),
        (json!({"page": {"port": 0}}), "'/page/port'"),
        (json!({"page": {"keySecretName": "A"}}), "'/page/keySecretName'"),
        (json!({"page": {"statusReaders": "platform"}}), "'/page/statusReaders'"),
        (json!({"page": {"httpRoute": {"parentRefs": [{}]}}}), "'/page/httpRoute/parentRefs/0'"),
        (json!({"config": {"name": "n".repeat(244)}}), "'/config/name'"),
        (json!({"config": {"content": {"defaults": {"endpont": {}}}}}), "'/config/content/defaults'"),
        (
            json!({"config": {"content": {"notifications": [{"name": "a", "triggers": [{"type": "Deployd"}]}]}}}),
            "'/config/content/notifications/0/triggers/0/type'",
        ),
    ]
}

/// Before version 1.31, Kubernetes has no field selectors for custom resources.
#[test]
fn an_older_kubernetes_is_rejected() {
    for (version, fits) in [("v1.30.14", false), ("v1.31.0", true), ("v1.31.4-eks-1234567", true)] {
        let args = ["template", "relaybook", "charts/relaybook", "--set", "image.repository=any", "--kube-version", version];
        let rendered = chart::answer(chart::run(chart::helm(), &args, ""));
        assert_eq!(rendered.is_ok(), fits, "{version}");
        assert!(rendered.err().is_none_or(|why| why.contains("kubeVersion: >=1.31.0-0")), "{version}");
    }
}

/// YAML would parse these words as other types, and would change these texts.
#[test]
fn config_text_is_not_changed() {
    for word in ["123", "true", "null", "1e3"] {
        let values = json!({
            "config": {"name": word},
            "priorityClassName": word,
            "nameOverride": word,
            "egress": {"caBundle": {"configMapName": word, "configMapKey": word}, "proxy": {"url": "http://a: b #c"}},
            "tracing": {"endpoint": "http://a: b #c"},
        });
        let release = render("true", "own", &values);
        let pod = release.pod();
        assert_eq!(pod["priorityClassName"], word);
        let source = &pod["volumes"][0]["configMap"];
        assert_eq!((&source["name"], &source["items"][0]["key"]), (&word.into(), &word.into()));
        let named: Vec<_> =
            release.rules().into_iter().filter_map(|(_, rule)| rule["resourceNames"].as_array()).flatten().collect();
        for name in [word.to_owned(), format!("{word}-last-good")] {
            assert!(named.contains(&&Value::from(name.as_str())), "{name} is not in {named:?}");
        }
        for arg in [&format!("--config-map={word}"), "--proxy=http://a: b #c", "--tracing-endpoint=http://a: b #c"] {
            assert!(release.args().contains(&arg), "{arg} is not in {:?}", release.args());
        }
        for object in &release.objects {
            let labels = object["metadata"]["labels"].as_object().expect("labels");
            assert!(labels.values().all(Value::is_string), "{labels:?}");
            assert_eq!(
                (&labels["app.kubernetes.io/name"], &labels["app.kubernetes.io/instance"]),
                (&word.into(), &"true".into())
            );
        }
    }
    for text in ["  a: 1\n", "\n\n# late\na: 1\n", "a: 1", " \t# a\r\nb: 1\n"] {
        let pem = format!("{text}-----BEGIN CERTIFICATE-----\n");
        let values = json!({"config": {"text": text}, "egress": {"caBundle": {"content": pem, "configMapKey": "null"}}});
        let release = render("texts", "own", &values);
        let data: Vec<_> = release.of("ConfigMap").map(|map| map["data"].clone()).collect();
        assert!(data.contains(&json!({"config.yaml": text})), "{text:?}: {data:?}");
        assert!(data.contains(&json!({"null": pem})), "{text:?}: {data:?}");
    }
}

#[test]
fn egress_allows_dns_and_the_rules_of_the_values() {
    let release = of_set("everything");
    let policy = release.of("NetworkPolicy").next().expect("a policy");
    let rules = policy["spec"]["egress"].as_array().expect("rules").iter();
    let ports: BTreeSet<_> = rules
        .flat_map(|rule| rule["ports"].as_array().expect("ports"))
        .map(|port| &port["port"])
        .map(Value::to_string)
        .collect();
    // DNS, receivers and API servers, the proxy, the collector.
    assert_eq!(ports, ["53", "5353", "443", "6443", "3128", "4318"].map(str::to_owned).into());
}

/// Returns the flags that `--help` lists.
fn flags() -> BTreeSet<String> {
    let help = Command::new(env!("CARGO_BIN_EXE_relaybook")).args(["run", "--help"]).output().expect("it runs");
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
    // POD_NAMESPACE sets the namespace. A context is part of a kubeconfig file, which a Pod does not have.
    let else_where = ["--namespace", "--context", "--help"];
    let without: Vec<_> =
        flags.iter().filter(|flag| !said.contains(*flag) && !else_where.contains(&flag.as_str())).collect();
    assert!(without.is_empty(), "no value of the chart sets {without:?}");
}

#[test]
fn the_program_accepts_the_arguments_of_the_chart() {
    // A file in place of the Secret that is mounted in the Pod.
    let file = crate::support::tmp().join("page-key");
    std::fs::write(&file, "0123456789abcdef0123456789abcdef").expect("written");
    let key = format!("--page-key-file={}", file.display());
    for set in SETS {
        let started = |more: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_relaybook"));
            // There is no cluster to connect to, so the program ends after it has parsed its arguments.
            let release = of_set(set);
            let args = release.args().into_iter().map(|arg| if arg == KEY_FILE { key.as_str() } else { arg });
            command.env_clear().env("KUBECONFIG", "/nowhere").args(args).args(more);
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
        chart::answer(chart::run(Path::new(env!("CARGO_BIN_EXE_relaybook")), &args, &map.to_string()))
    };
    lint(of_set("everything"), "relaybook-global").unwrap();
    let isolated = of_set("isolated");
    lint(isolated, "relaybook-config").unwrap();
    let text = isolated.of("ConfigMap").next().unwrap()["data"]["config.yaml"].as_str().unwrap().to_owned();
    assert!(text.starts_with("# As a text, with its comments.\n"), "{text}");
    let broken = json!({"config": {"text": "notificatoins: []"}});
    assert!(lint(&render("broken", "own", &broken), "relaybook-config").is_err());
    assert_eq!(of_set("default").of("ConfigMap").count(), 0);
}

#[test]
fn additional_values_extend_the_defaults() {
    let release = of_set("everything");
    let pod = release.pod();
    let names = |list: &Value| -> Vec<String> {
        list.as_array().expect("a list").iter().map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(&pod["volumes"]), ["ca-bundle", "page-key", "more"]);
    assert_eq!(names(&pod["containers"][0]["volumeMounts"]), ["ca-bundle", "page-key", "more"]);
    assert_eq!(names(&pod["imagePullSecrets"]), ["registry", "mirror"]);
    assert_eq!(release.test_pod()["imagePullSecrets"], pod["imagePullSecrets"]);
    assert_eq!(pod["hostAliases"][0]["hostnames"], json!(["chat.example.com"]));
    assert_eq!((&pod["dnsPolicy"], &pod["dnsConfig"]["options"][0]["name"]), (&"ClusterFirst".into(), &"ndots".into()));
    let deployment = release.of("Deployment").next().expect("a Deployment");
    assert_eq!(deployment["spec"]["revisionHistoryLimit"].as_f64(), Some(0.0));
    assert_eq!(deployment["metadata"]["annotations"], json!({"example.com/reload": "true"}));
    for name in ["everything-object", "everything-text"] {
        let map = release.of("ConfigMap").find(|map| map["metadata"]["name"] == name).expect("an extra object");
        assert_eq!(map["metadata"]["namespace"], release.namespace, "{name}: templates are rendered");
    }
    let alone =
        render("alone", "own", &json!({"volumes": [{"name": "more", "emptyDir": {}}], "runtimeClassName": "gvisor"}));
    assert_eq!(names(&alone.pod()["volumes"]), ["more"]);
    assert_eq!([alone.pod(), alone.test_pod()].map(|pod| &pod["runtimeClassName"]), [&json!("gvisor"); 2]);
    let monitor = of_set("minimal");
    let monitor = monitor.of("PodMonitor").next().expect("a PodMonitor");
    assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["port"], "http");
    assert_eq!(render("plain", "own", &json!({})).of("PodMonitor").count(), 0);
}

#[test]
fn hooks_have_a_port_a_service_and_a_rule_only_if_they_are_enabled() {
    let ports = |release: &Release| -> Vec<String> {
        let ports = release.pod()["containers"][0]["ports"].as_array().expect("ports").iter();
        ports.map(|port| port["name"].as_str().expect("a name").to_owned()).collect()
    };
    let rules = |release: &Release| -> Vec<Value> {
        let policy = release.of("NetworkPolicy").next().expect("a policy");
        policy["spec"]["ingress"].as_array().expect("rules").clone()
    };
    let without = of_set("default");
    assert_eq!((ports(without), rules(without).len()), (vec!["http".to_owned()], 1));
    assert!(without.args().iter().all(|arg| !arg.starts_with("--hooks-addr")), "{:?}", without.args());
    assert_eq!(without.of("Service").count(), 1);

    let with = of_set("everything");
    assert_eq!(ports(with), ["http", "hooks", "page"]);
    assert!(with.args().contains(&"--hooks-addr=0.0.0.0:9443"), "{:?}", with.args());
    let service = with.of("Service").find(|service| service["metadata"]["name"] == "everything-relaybook-hooks");
    let port = &service.expect("a Service")["spec"]["ports"][0];
    assert_eq!((port["targetPort"].as_str(), port["port"].as_u64()), (Some("hooks"), Some(8080)));
    let rules = rules(with);
    let name = "/from/0/namespaceSelector/matchLabels/kubernetes.io~1metadata.name";
    assert_eq!(rules[1]["ports"], json!([{"port": "hooks", "protocol": "TCP"}]));
    assert_eq!([&rules[0], &rules[1]].map(|rule| rule.pointer(name)), [Some(&json!("monitoring")), Some(&json!("ingress"))]);

    let reads_secrets = |values: &Value| {
        let release = render("alone", "own", values);
        release.of("ClusterRole").any(|role| role["rules"].to_string().contains("\"secrets\""))
    };
    assert!(reads_secrets(&json!({"controllers": ["promote"]})), "repositories have credentials");
    let without = json!({"access": "none"});
    assert!(!reads_secrets(&json!({"controllers": ["promote"], "rbac": {"secrets": without}})), "it is switched off");
}

/// Returns the arguments about the audit page.
fn page_args(release: &Release) -> Vec<&str> {
    release.args().into_iter().filter(|arg| arg.starts_with("--page")).collect()
}

#[test]
fn without_a_page_no_object_mentions_it() {
    let without = of_set("default");
    let ours = without.objects.iter().filter(|object| object["kind"] != "CustomResourceDefinition");
    let named: Vec<_> = ours.filter(|object| object.to_string().contains("page")).collect();
    assert!(named.is_empty(), "{named:?}");

    // Templates can have links to the page of another release.
    let page = json!({"url": "https://relaybook.example.com", "actions": true, "keySecretName": "key"});
    let linked = render("alone", "own", &json!({"page": page}));
    assert_eq!(page_args(&linked), ["--page-url=https://relaybook.example.com"]);
    assert!(linked.pod()["volumes"].is_null() && linked.of("Service").count() == 1);
    assert_eq!(linked.pod()["containers"][0]["ports"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_page_has_a_port_a_service_a_rule_and_a_key() {
    let with = of_set("everything");
    let url = "--page-url=https://relaybook.example.com";
    assert_eq!(page_args(with), ["--page-addr=0.0.0.0:9444", "--page-actions", KEY_FILE, url]);
    let service = with.of("Service").find(|service| service["metadata"]["name"] == "everything-relaybook-page");
    let service = &service.expect("a Service")["spec"];
    assert_eq!(service["sessionAffinity"], "ClientIP");
    let port = &service["ports"][0];
    assert_eq!((port["targetPort"].as_str(), port["port"].as_u64()), (Some("page"), Some(8082)));
    let labels = json!({"app.kubernetes.io/name": "oauth2-proxy"});
    let expected =
        json!({"ports": [{"port": "page", "protocol": "TCP"}], "from": [{"podSelector": {"matchLabels": labels}}]});
    assert_eq!(with.of("NetworkPolicy").next().expect("a policy")["spec"]["ingress"][2], expected);
    let named = |list: &Value| -> Value {
        let mut all = list.as_array().expect("a list").iter();
        all.find(|entry| entry["name"] == "page-key").expect("an entry").clone()
    };
    let mount = json!({"name": "page-key", "mountPath": "/etc/relaybook/page", "readOnly": true});
    assert_eq!(named(&with.pod()["containers"][0]["volumeMounts"]), mount);
    let secret = json!({"secretName": "relaybook-page", "items": [{"key": "cookies", "path": "key"}]});
    assert_eq!(named(&with.pod()["volumes"])["secret"], secret);

    // Only `enabled` is required: for `kubectl port-forward`, without actions, open to all Pods.
    let plain = render("plain", "own", &json!({"page": {"enabled": true}}));
    assert_eq!(page_args(&plain), ["--page-addr=0.0.0.0:8082"]);
    let rule = &plain.of("NetworkPolicy").next().expect("a policy")["spec"]["ingress"][1];
    assert_eq!(rule, &json!({"ports": [{"port": "page", "protocol": "TCP"}]}));
    assert_eq!(["Ingress", "HTTPRoute"].map(|kind| plain.of(kind).count()), [0, 0]);
    assert!(plain.pod()["volumes"].is_null(), "{}", plain.pod());
}

#[test]
fn an_ingress_and_a_route_lead_to_the_service_of_the_page() {
    let release = of_set("everything");
    let service = json!({"name": "everything-relaybook-page", "port": {"name": "page"}});
    let path = json!({"path": "/", "pathType": "Prefix", "backend": {"service": service}});
    let expected = json!({
        "ingressClassName": "public",
        "tls": [{"secretName": "relaybook-page-tls", "hosts": ["relaybook.example.com"]}],
        "rules": [{"host": "relaybook.example.com", "http": {"paths": [path]}}],
    });
    assert_eq!(release.of("Ingress").next().expect("an Ingress")["spec"], expected);
    let route = release.of("HTTPRoute").next().expect("an HTTPRoute");
    assert_eq!(route["apiVersion"], "gateway.networking.k8s.io/v1");
    assert_eq!(route["metadata"]["annotations"], json!({"example.com/owner": "platform"}));
    let expected = json!({
        "parentRefs": [{"name": "public", "namespace": "gateways", "sectionName": "https"}],
        "hostnames": ["relaybook.example.com"],
        "rules": [{
            "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
            "backendRefs": [{"name": "everything-relaybook-page", "port": 8082}],
        }],
    });
    assert_eq!(route["spec"], expected);

    let page = json!({
        "enabled": true,
        "url": "https://Relaybook.example.com:8443/",
        "ingress": {"enabled": true},
        "httpRoute": {"enabled": true, "parentRefs": [{"name": "public"}], "hostnames": ["a.example.com", "b.example.com"]},
    });
    let release = render("alone", "own", &json!({"page": page}));
    let ingress = &release.of("Ingress").next().expect("an Ingress")["spec"];
    assert_eq!(ingress["rules"][0]["host"], "relaybook.example.com", "the host of the URL, without the port");
    assert!(ingress["tls"].is_null() && ingress["ingressClassName"].is_null(), "{ingress}");
    let route = &release.of("HTTPRoute").next().expect("an HTTPRoute")["spec"];
    assert_eq!(route["hostnames"], json!(["a.example.com", "b.example.com"]));
}

#[test]
fn an_ingress_or_route_that_does_not_lead_to_a_page_is_rejected() {
    let url = "https://relaybook.example.com";
    for (page, words) in [
        (json!({"ingress": {"enabled": true}}), "page.ingress.enabled requires the page; set page.enabled=true"),
        (json!({"httpRoute": {"enabled": true}}), "page.httpRoute.enabled requires the page; set page.enabled=true"),
        (json!({"url": url, "ingress": {"enabled": true}}), "page.ingress.enabled requires the page; set page.enabled=true"),
        (
            json!({"enabled": true, "ingress": {"enabled": true}}),
            "page.ingress.enabled requires a host; set page.url to the URL under which users reach the page",
        ),
        (
            json!({"enabled": true, "httpRoute": {"enabled": true}}),
            "page.httpRoute.enabled requires a host; set page.url to the URL under which users reach the page",
        ),
        (
            json!({"enabled": true, "ingress": {"enabled": true, "host": "a.example.com"}}),
            "page.ingress.enabled requires page.url, because the page answers only to the host of this URL; \
             set page.url=https://a.example.com",
        ),
        (
            json!({"enabled": true, "httpRoute": {"enabled": true, "hostnames": ["a.example.com"]}}),
            "page.httpRoute.enabled requires page.url, because the page answers only to the host of this URL; \
             set page.url=https://a.example.com",
        ),
        (
            json!({"enabled": true, "url": url, "httpRoute": {"enabled": true}}),
            "page.httpRoute.enabled requires a Gateway; set page.httpRoute.parentRefs",
        ),
    ] {
        let rendered = Release::render("refused", "own", &json!({"page": page}));
        let complaint = rendered.err().unwrap_or_else(|| panic!("{page} is accepted"));
        assert!(complaint.contains(words), "{page}: {complaint}");
    }
}

#[test]
fn status_readers_can_only_read_leases_and_one_config_map() {
    let release = of_set("everything");
    let is_of_page = |object: &&Value| object["metadata"]["name"] == "everything-relaybook-page";
    let role = release.of("Role").find(is_of_page).expect("a Role");
    let rules = json!([
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["relaybook-global"], "verbs": ["get"]},
    ]);
    assert_eq!((&role["rules"], &role["metadata"]["namespace"]), (&rules, &json!(release.namespace)));
    let binding = release.of("RoleBinding").find(is_of_page).expect("a RoleBinding");
    let group = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "platform"});
    assert_eq!((&binding["subjects"], &binding["roleRef"]["name"]), (&json!([group]), &role["metadata"]["name"]));
    // The groups are for the page alone: those of `rbac.infoReaders` get nothing more.
    let readers = json!({"rbac": {"infoReaders": ["platform"]}, "page": {"enabled": true}});
    assert!(!render("everything", "own", &readers).of("Role").any(|role| is_of_page(&role)));
}

/// In the example, the proxy gets the requests of users, and nobody else can connect to the page.
#[test]
fn the_example_with_oauth2_proxy_leads_to_the_page() {
    let text = std::fs::read_to_string(chart::root().join("examples/page-oauth2-proxy.yaml")).expect("the example");
    let release = render("relaybook", "relaybook-system", &chart::documents(&text)[0]);
    let named = |kind: &str, name: &str| {
        let found = release.of(kind).find(|object| object["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}"))
    };
    let proxy = &named("Deployment", "relaybook-oauth2-proxy")["spec"]["template"];
    let args: Vec<_> = proxy["spec"]["containers"][0]["args"].as_array().expect("arguments").iter().collect();
    let page = named("Service", "relaybook-page");
    assert_eq!(
        (&page["metadata"]["namespace"], page["spec"]["ports"][0]["port"].as_u64()),
        (&"relaybook-system".into(), Some(80))
    );
    for arg in ["--upstream=http://relaybook-page/", "--pass-authorization-header=true", "--pass-host-header=true"] {
        assert!(args.contains(&&Value::from(arg)), "{arg} is not in {args:?}");
    }
    let labels = &proxy["metadata"]["labels"];
    assert_eq!(&named("Service", "relaybook-oauth2-proxy")["spec"]["selector"], labels);
    let rule = &named("NetworkPolicy", "relaybook")["spec"]["ingress"][1];
    assert_eq!(rule["from"], json!([{"podSelector": {"matchLabels": labels}}]));
    let host = &named("Ingress", "relaybook-oauth2-proxy")["spec"]["rules"][0]["host"];
    let url = format!("https://{}", host.as_str().expect("a host"));
    assert_eq!(page_args(&release)[1], format!("--page-url={url}"));
    assert!(args.contains(&&Value::from(format!("--redirect-url={url}/oauth2/callback"))), "{args:?}");
}

#[test]
fn secrets_are_not_in_the_arguments() {
    let release = of_set("everything");
    assert!(release.args().iter().all(|arg| !arg.starts_with("--proxy")), "{:?}", release.args());
    let env = release.pod()["containers"][0]["env"].as_array().unwrap();
    let proxy = env.iter().find(|variable| variable["name"] == "RELAYBOOK_PROXY").unwrap();
    assert_eq!(proxy["valueFrom"]["secretKeyRef"], json!({"name": "relaybook-proxy", "key": "url"}));
}

/// The folder extends the certificates in the image's `SSL_CERT_FILE`. A user who overrides `SSL_CERT_FILE` trusts no other CA.
#[test]
fn ca_certificates_extend_or_replace_those_of_the_image() {
    let image = std::fs::read_to_string(chart::root().join("Dockerfile")).expect("the Dockerfile");
    assert!(image.contains("SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt SSL_CERT_DIR=/etc/relaybook/ca\n"), "{image}");
    let settings = |values: &Value| -> Vec<_> {
        let release = render("authorities", "own", values);
        let container = &release.pod()["containers"][0];
        assert_eq!(container["volumeMounts"][0]["mountPath"], "/etc/relaybook/ca");
        let env = container["env"].as_array().expect("variables").iter();
        let of_ours = env.filter(|variable| variable["name"].as_str().is_some_and(|name| name.starts_with("SSL_")));
        of_ours
            .map(|variable| format!("{}={}", variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap()))
            .collect()
    };
    let bundle = json!({"caBundle": {"configMapName": "authorities"}});
    assert_eq!(settings(&json!({"egress": bundle})), ["SSL_CERT_DIR=/etc/relaybook/ca"]);
    let only = json!([{"name": "SSL_CERT_FILE", "value": "/etc/relaybook/ca/bundle.pem"}]);
    assert_eq!(
        settings(&json!({"egress": bundle, "extraEnv": only})),
        ["SSL_CERT_DIR=/etc/relaybook/ca", "SSL_CERT_FILE=/etc/relaybook/ca/bundle.pem"]
    );
}
