//! Tests the plans: every receiver with every kind of source, names that YAML could read otherwise, and what is refused.

use std::collections::BTreeMap;

use relaybook_api::notification::Builtin;
use relaybook_api::{Notification, ObjectName};
use relaybook_pipelines::sets::Followed;
use relaybook_runtime::published;
use relaybook_settings::config::PipelineSelector;
use relaybook_settings::manifests::read;
use relaybook_settings::render::builtin;
use serde_json::{Value, json};

use super::*;
use crate::lint::{Options, Report};

fn app(text: &str) -> Source {
    let spots = ["dev=web-dev", "prod=web", "prod=web-eu@eu-1"].map(|spot| Spot::parse(spot).unwrap());
    Source::App { app: App::parse(text).unwrap(), spots: spots.to_vec() }
}

fn answers(source: Source, receivers: &[Builtin]) -> Answers {
    Answers {
        source,
        receivers: receivers.to_vec(),
        on: On::Failures,
        namespace: Some("team-a".to_owned()),
        default_namespace: "default".to_owned(),
        name: None,
        secret: None,
        url: None,
        settings: BTreeMap::new(),
    }
}

/// Adds the values that the receivers need, with those of their examples.
fn complete(mut answers: Answers) -> Answers {
    for receiver in &answers.receivers {
        let metadata = &builtin(*receiver).metadata;
        for parameter in metadata.parameters.iter().filter(|p| p.is_required()) {
            answers.settings.insert(parameter.name.clone(), parameter.example.clone().unwrap());
        }
    }
    answers
}

fn linted(plan: &Plan) -> Report {
    let options = Options {
        namespace: plan.namespace.clone(),
        config_map: ObjectName::new("relaybook-system", "relaybook-config"),
        cluster_name: "in-cluster".to_owned(),
        allow_http: false,
        cross_namespace_refs: true,
    };
    check(plan, &options).unwrap()
}

fn object(manifest: &Manifest) -> Value {
    let mut all = read(&manifest.text);
    assert_eq!(all.len(), 1, "{}", manifest.text);
    all.remove(0).unwrap().value
}

/// Plans for one receiver. If values are missing, the error names a flag for each, and the plan with these flags is returned.
fn planned(answers: &Answers) -> Result<Plan, InitError> {
    match plan(answers, None) {
        Err(InitError::Incomplete { needs, flags }) => {
            let (mut filled, metadata) = (complete(answers.clone()), &builtin(answers.receivers[0]).metadata);
            assert!(needs.starts_with(&format!("{} needs ", answers.receivers[0].as_str())), "{needs}");
            assert!(filled.settings.keys().all(|name| flags.contains(&format!("{name}="))), "{flags}");
            if flags.contains("--url ") {
                filled.url = Some(metadata.example.url.clone());
            }
            plan(&filled, None)
        }
        other => other,
    }
}

#[test]
fn each_receiver_gets_manifests_without_problems_or_names_the_flag_to_add() {
    let apps = ["deploy/web", "sts/web", "ks/web", "hr/web", "app/web"].map(app);
    let follows = [vec![Followed::Kustomizations, Followed::Applications], vec![Followed::Helmreleases]].map(Source::Follow);
    for receiver in Builtin::ALL {
        for source in apps.iter().chain(&follows) {
            for on in [On::Failures, On::Deployments, On::All] {
                // The changes do not depend on the source.
                if on != On::Failures && *source != apps[0] {
                    continue;
                }
                let what = format!("{} {source:?} {on:?}", receiver.as_str());
                let mut answers = answers(source.clone(), &[receiver]);
                answers.on = on;
                let has_versions = match source {
                    Source::App { app, .. } => app.kind == "HelmRelease",
                    Source::Follow(kinds) => kinds.contains(&Followed::Helmreleases),
                };
                match planned(&answers) {
                    Ok(plan) => {
                        let report = linted(&plan);
                        assert!(report.findings.is_empty(), "{what}: {:#?}", report.findings);
                        assert_eq!(report.objects, plan.manifests.len(), "{what}");
                        let first = if matches!(source, Source::App { .. }) { "web-" } else { "" };
                        assert_eq!(plan.notifications, [format!("{first}{}", receiver.as_str())]);
                    }
                    Err(error @ InitError::OnlyDeployments(_)) => {
                        assert_eq!((receiver, on), (Builtin::SentryReleaseDeploy, On::Failures));
                        assert!(error.to_string().ends_with("add --on deployments"), "{error}");
                    }
                    Err(error @ InitError::ChartVersion { .. }) => {
                        let is_of_commits = ["-status", "-deployment", "-check-run", "-request-comment"];
                        let is_of_commits = is_of_commits.iter().any(|part| receiver.as_str().contains(part));
                        assert!(has_versions && is_of_commits, "{what}: {error}");
                        assert!(error.to_string().contains("another --to"), "{error}");
                    }
                    Err(error) => panic!("{what}: {error}"),
                }
            }
        }
    }
}

#[test]
fn a_receiver_of_commits_is_refused_for_charts() {
    let statuses = Builtin::ALL.into_iter().filter(|receiver| receiver.as_str().ends_with("-status"));
    for receiver in statuses {
        for source in [app("hr/web"), Source::Follow(vec![Followed::Kustomizations, Followed::Helmreleases])] {
            let refused = planned(&answers(source, &[receiver])).unwrap_err();
            assert!(matches!(refused, InitError::ChartVersion { .. }), "{refused}");
        }
        let made = planned(&answers(Source::Follow(vec![Followed::Deployments]), &[receiver])).unwrap();
        assert!(made.notes[0].contains("the tag of its image, which may not be a commit"), "{:?}", made.notes);
    }
}

#[test]
fn a_failure_that_a_receiver_shows_ends_with_the_next_deployment() {
    for (receiver, on, about) in [
        (Builtin::Slack, On::Failures, "Failed, Recovered"),
        (Builtin::Slack, On::Deployments, "Deployed, Progressing, Failed, Recovered"),
        (Builtin::GithubCommitStatus, On::Failures, "Deployed, Failed, Recovered, to https://api.github.com"),
        (Builtin::Pagerduty, On::Failures, "Deployed, Failed, Recovered, Removed, to https://events.pagerduty.com"),
        (Builtin::SentryReleaseDeploy, On::Deployments, "Deployed, to https://sentry.io"),
        (Builtin::SentryReleaseDeploy, On::All, "Deployed, to https://sentry.io"),
    ] {
        let mut answers = complete(answers(app("ks/web"), &[receiver]));
        answers.on = on;
        let plan = plan(&answers, None).unwrap();
        assert_eq!(plan.manifests[1].about, format!("Notification team-a/web-{}: {about}", receiver.as_str()));
    }
    let mut all = answers(app("ks/web"), &[Builtin::Slack]);
    all.on = On::All;
    let notification = object(&plan(&all, None).unwrap().manifests[1]);
    assert_eq!(notification["spec"]["triggers"].as_array().unwrap().len(), 17);
}

#[test]
fn a_pipeline_has_its_environments_in_the_given_order() {
    let plan = plan(&answers(app("deploy/web"), &[Builtin::Slack]), None).unwrap();
    let [pipeline, notification] = &plan.manifests[..] else { panic!("{plan:?}") };
    assert_eq!(
        (pipeline.file.as_str(), pipeline.about.as_str()),
        ("pipeline-web.yaml", "Pipeline team-a/web: 2 environments, 3 targets")
    );
    let remote = json!({"namespace": "web-eu", "clusterRef": {"kind": "Secret", "name": "eu-1"}});
    assert_eq!(
        object(pipeline),
        json!({
            "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "web", "namespace": "team-a", "labels": {"app.kubernetes.io/name": "web"}},
            "spec": {
                "appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "environments": [
                    {"name": "dev", "targets": [{"namespace": "web-dev"}]},
                    {"name": "prod", "targets": [{"namespace": "web"}, remote]},
                ],
            },
        })
    );
    assert_eq!(
        (notification.file.as_str(), notification.about.as_str()),
        ("notification-web-slack.yaml", "Notification team-a/web-slack: Failed, Recovered")
    );
    assert_eq!(
        object(notification)["spec"],
        json!({
            "pipelineSelector": {"matchLabels": {"app.kubernetes.io/name": "web"}},
            "triggers": [{"type": "Failed"}, {"type": "Recovered"}],
            "endpoint": {"urlFrom": {"secretKeyRef": {"name": "slack", "key": "url"}}},
            "template": {"builtin": "slack"},
        })
    );
    assert_eq!(plan.secrets[0].keys, [("url".to_owned(), "URL".to_owned())]);
}

#[test]
fn the_notifications_of_an_application_apply_only_to_its_pipeline() {
    let made = |name: &str| plan(&answers(app(&format!("deploy/{name}")), &[Builtin::Slack]), None).unwrap();
    let plans = ["web", "1e3", "true", "web.eu"].map(made);
    let files = plans.each_ref().map(|plan| plan.manifests[1].file.clone());
    assert_eq!(files[..2], ["notification-web-slack.yaml", "notification-1e3-slack.yaml"]);
    for (at, plan) in plans.iter().enumerate() {
        let notification: Notification = serde_json::from_value(object(&plan.manifests[1])).unwrap();
        let selector = PipelineSelector::parse(notification.spec.pipeline_selector.as_ref()).unwrap();
        for (of, other) in plans.iter().enumerate() {
            let labels = object(&other.manifests[0])["metadata"]["labels"].clone();
            let labels: BTreeMap<String, String> = serde_json::from_value(labels).unwrap();
            assert_eq!(selector.selects(&labels), at == of, "{labels:?}");
        }
    }
    // The pipelines of a set have no such label.
    let followed = plan(&answers(Source::Follow(vec![Followed::Deployments]), &[Builtin::Slack]), None).unwrap();
    assert!(!object(&followed.manifests[1])["spec"].as_object().unwrap().contains_key("pipelineSelector"));
}

#[test]
fn the_address_of_a_receiver_is_shown_without_what_can_be_a_credential() {
    let mut answers = complete(answers(app("ks/web"), &[Builtin::GithubCommitStatus]));
    let made = plan(&answers, None).unwrap();
    assert_eq!(made.notes, ["web-github-commit-status sends to https://api.github.com; --url sets another address"]);
    answers.url = Some("https://github.example.com:8443/api/v3?token=sesame".to_owned());
    let made = plan(&answers, None).unwrap();
    assert!(made.manifests[1].about.ends_with("Recovered, to https://github.example.com:8443"), "{made:?}");
    assert!(made.notes.is_empty(), "{:?}", made.notes);
    for url in ["https://me:sesame@github.example.com", "sesame"] {
        answers.url = Some(url.to_owned());
        let about = plan(&answers, None).unwrap().manifests.remove(1).about;
        assert!(about.ends_with(": Deployed, Failed, Recovered"), "{about}");
    }
}

#[test]
fn all_missing_values_are_named_at_once() {
    let receivers = [Builtin::GithubIssueComment, Builtin::Slack, Builtin::GiteaCommitStatus];
    let error = plan(&answers(app("ks/web"), &receivers), None).unwrap_err();
    let flags = error.flags().unwrap();
    assert_eq!(flags.matches("owner=").count(), 1, "{flags}");
    assert!(flags.contains("--set issue=") && flags.contains("--url https://gitea."), "{flags}");
    let text = error.to_string();
    assert!(text.starts_with("github-issue-comment needs ") && text.contains("; gitea-commit-status needs "), "{text}");
}

#[test]
fn a_set_copies_the_label_of_the_team_and_is_not_one_of_the_controller() {
    let source = Source::Follow(vec![Followed::Kustomizations, Followed::Bundles, Followed::Kustomizations]);
    let mut answers = answers(source, &[Builtin::Slack]);
    let made = plan(&answers, None).unwrap();
    let files: Vec<_> = made.manifests.iter().map(|one| one.file.as_str()).collect();
    assert_eq!(files, ["pipelineset-kustomizations.yaml", "pipelineset-bundles.yaml", "notification-slack.yaml"]);
    assert_eq!(made.manifests[0].about, "PipelineSet team-a/kustomizations: a Pipeline for each Kustomization");
    let set = object(&made.manifests[0]);
    assert_eq!(set["metadata"], json!({"name": "kustomizations", "namespace": "team-a"}));
    assert_eq!(
        set["spec"]["template"]["metadata"],
        json!({"name": "kustomization.{{namespace}}.{{name}}", "labels": {"team": "{{default labels.team \"\"}}"}})
    );
    let title = &object(&made.manifests[2])["spec"]["template"]["parameters"]["title"];
    assert!(title.as_str().unwrap().contains("{{target.namespace}}/{{target.app.name}}"), "{title}");

    answers.name = Some("gitops".to_owned());
    let files: Vec<_> = plan(&answers, None).unwrap().manifests.into_iter().map(|one| one.file).collect();
    assert_eq!(
        files,
        ["pipelineset-gitops-kustomizations.yaml", "pipelineset-gitops-bundles.yaml", "notification-gitops-slack.yaml"]
    );
    answers.source = Source::Follow(vec![Followed::Bundles]);
    answers.settings.insert("title".to_owned(), "{{type}}".to_owned());
    let made = plan(&answers, None).unwrap();
    assert_eq!(made.manifests[0].file, "pipelineset-gitops.yaml");
    assert_eq!(object(&made.manifests[1])["spec"]["template"]["parameters"], json!({"title": "{{type}}"}));
}

#[test]
fn what_a_controller_follows_already_gets_only_a_notification() {
    let settings = |watch: &[&str], follow: &[&str]| published::Pipeline {
        version: "0.1.0".to_owned(),
        watch_namespaces: watch.iter().map(ToString::to_string).collect(),
        cluster_name: "in-cluster".to_owned(),
        no_cross_namespace_refs: false,
        allow_insecure_clusters: false,
        follow: follow.iter().map(ToString::to_string).collect(),
    };
    let all = [
        ("one".to_owned(), settings(&["team-b"], &["kustomizations"])),
        ("own".to_owned(), settings(&[], &["helmreleases", "kustomizations", "later"])),
    ];
    let wanted = [Followed::Kustomizations, Followed::Deployments];
    let found = |namespace: Option<&str>, wanted: &[Followed]| {
        Already::find(&all, namespace, wanted).map(|found| found.map(|already| (already.namespace, already.kinds)))
    };
    let only = vec![Followed::Kustomizations];
    assert_eq!(found(Some("team-a"), &wanted), Ok(Some(("own".to_owned(), only.clone()))));
    assert_eq!(found(None, &[Followed::Helmreleases]), Ok(Some(("own".to_owned(), vec![Followed::Helmreleases]))));
    assert_eq!(found(None, &[Followed::Deployments]), Ok(None));
    let both = [Followed::Kustomizations, Followed::Helmreleases];
    for namespace in [None, Some("team-b")] {
        let error = found(namespace, &both).unwrap_err().to_string();
        assert!(error.contains("namespaces one (kustomizations) and own (kustomizations, helmreleases) already"), "{error}");
    }

    let already = Already { namespace: "own".to_owned(), kinds: only };
    let mut answers = answers(Source::Follow(wanted.to_vec()), &[Builtin::Slack]);
    let error = plan(&answers, Some(&already)).unwrap_err().to_string();
    assert!(error.contains("each object of kustomizations; add -n own"), "{error}");
    answers.namespace = None;
    let made = plan(&answers, Some(&already)).unwrap();
    let files: Vec<_> = made.manifests.iter().map(|one| one.file.as_str()).collect();
    assert_eq!(
        (made.namespace.as_str(), &files[..]),
        ("own", &["pipelineset-deployments.yaml", "notification-slack.yaml"][..])
    );
    assert!(made.notes[0].contains("each object of kustomizations already"), "{:?}", made.notes);
    assert_eq!(plan(&answers, None).unwrap().namespace, "default");
}

#[test]
fn names_and_values_that_yaml_reads_otherwise_stay_texts() {
    for name in ["no", "1e3", "0x1f", "123", "true", "null", "y", "a.b", "0", &"a".repeat(58)] {
        let label = if name.contains('.') { "x" } else { name };
        let spot = Spot::parse(&format!("{label}={label}@{name}")).unwrap();
        let source = Source::App { app: App::parse(&format!("deploy/{name}")).unwrap(), spots: vec![spot] };
        let mut answers = answers(source, &[Builtin::Ntfy]);
        answers.namespace = Some(label.to_owned());
        answers.secret = Some(SecretName::parse(&format!("{name}:{name}")).unwrap());
        answers.settings.insert("topic".to_owned(), name.to_owned());
        let made = plan(&answers, None).unwrap();
        let report = linted(&made);
        assert!(report.findings.is_empty(), "{name}: {:?}", report.findings);
        let (pipeline, notification) = (object(&made.manifests[0]), object(&made.manifests[1]));
        assert_eq!(pipeline["spec"]["environments"][0]["targets"][0]["namespace"], label);
        let labels = json!({"app.kubernetes.io/name": name});
        assert_eq!(pipeline["metadata"], json!({"name": name, "namespace": label, "labels": labels}));
        assert_eq!(notification["spec"]["pipelineSelector"]["matchLabels"], labels);
        let secret = &notification["spec"]["endpoint"]["auth"]["token"]["secretKeyRef"];
        assert_eq!(
            (secret, &notification["spec"]["template"]["parameters"]["topic"]),
            (&json!({"name": name, "key": name}), &json!(name))
        );
    }
    for title in ["a: \"b\" # c", "'", "{{pipeline.name}}: no", "- a", "*", "é\n\t|", "\u{1b}[2J"] {
        let mut answers = answers(app("deploy/web"), &[Builtin::Slack]);
        answers.settings.insert("title".to_owned(), title.to_owned());
        let made = plan(&answers, None).unwrap();
        let report = linted(&made);
        assert!(report.findings.is_empty(), "{title}: {:?}", report.findings);
        assert_eq!(object(&made.manifests[1])["spec"]["template"]["parameters"]["title"], title);
    }
    let mut broken = answers(app("deploy/web"), &[Builtin::Slack]);
    broken.settings.insert("title".to_owned(), "{{".to_owned());
    assert!(!linted(&plan(&broken, None).unwrap()).findings.is_empty());
}

#[test]
fn a_name_that_no_object_can_have_is_refused_with_the_flag_to_add() {
    let long = "a".repeat(253);
    let mut answers = answers(app(&format!("deploy/{long}")), &[Builtin::Slack]);
    let error = plan(&answers, None).unwrap_err();
    assert!(
        matches!(error, InitError::Name { kind: "Pipeline", .. }) && error.to_string().ends_with("add --name NAME"),
        "{error}"
    );
    answers.name = Some("web".to_owned());
    let made = plan(&answers, None).unwrap();
    assert!(linted(&made).findings.is_empty(), "{:?}", linted(&made).findings);
    assert_eq!(made.notifications, ["web-slack"]);
    for name in ["Web", "a b", "{{x}}", "", "\u{1b}[2J"] {
        answers.name = Some(name.to_owned());
        let error = plan(&answers, None).unwrap_err().to_string();
        assert!(error.starts_with("the Pipeline cannot have the name ") && !error.contains('\u{1b}'), "{error}");
    }
    answers.name = Some("a".repeat(60));
    assert!(matches!(plan(&answers, None), Err(InitError::Name { kind: "Notification", .. })));
}

#[test]
fn a_flag_that_does_not_fit_is_refused() {
    use Builtin::{Alertmanager, AzureDevopsGitStatus, GithubIssueComment, Slack, Teams};
    let secret = |text: &str| Some(SecretName::parse(text).unwrap());
    let secret_url = "https://hooks.slack.com/services/T000/B000/sesame";
    for (receivers, url, secret, setting, words) in [
        (&[Slack][..], Some(secret_url), None, None, "--url: the URL of slack is a credential"),
        (&[Slack, Teams], Some("https://a.example"), None, None, "--url applies to one receiver"),
        (&[Slack, Teams], None, secret("chat"), None, "--secret applies to one receiver"),
        (&[Alertmanager], None, secret("a"), None, "--secret: alertmanager requires no credentials"),
        (&[AzureDevopsGitStatus], None, secret("a:b"), None, "reads the keys username and password"),
        (
            &[Slack, GithubIssueComment],
            None,
            None,
            Some("repositry"),
            "--set repositry: no receiver of --to has this parameter; did you mean repository?",
        ),
        (&[Slack], None, None, Some("xyzzy"), "known parameters: channel, fields, link, mode, title, username"),
    ] {
        let mut answers = answers(app("deploy/web"), receivers);
        answers.url = url.map(str::to_owned);
        answers.secret = secret;
        answers.settings.extend(setting.map(|name| (name.to_owned(), "sesame".to_owned())));
        let error = plan(&answers, None).unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains("sesame"), "{error}");
    }
}

#[test]
fn receivers_can_share_a_secret() {
    use Builtin::{GithubCommitStatus, GithubIssueComment, GitlabCommitStatus, GitlabPipelineTrigger};
    let receivers = [GithubCommitStatus, GithubIssueComment, GitlabCommitStatus, GitlabPipelineTrigger];
    let made = plan(&complete(answers(app("ks/web"), &receivers)), None).unwrap();
    let keys: Vec<_> =
        made.secrets.iter().map(|secret| (secret.name.as_str(), secret.keys.len(), secret.about.len())).collect();
    assert_eq!(keys, [("github", 1, 2), ("gitlab", 2, 2)]);
    let steps = next_steps(&made, &[]).join("\n");
    assert!(steps.contains("kubectl create secret generic github -n team-a --from-literal=token='TOKEN'\n"), "{steps}");
    assert!(steps.contains(" gitlab -n team-a --from-literal=token='TOKEN' --from-literal=url='URL'\n"), "{steps}");
}

#[test]
fn many_objects_are_a_warning() {
    for (objects, on, words) in [
        (500, On::All, None),
        (501, On::Failures, None),
        (501, On::Deployments, Some("use --on failures")),
        (5_000, On::Failures, None),
        (5_001, On::Failures, Some("a PipelineSet makes at most 5000 pipelines")),
    ] {
        let warning = many(Followed::Helmreleases, objects, on);
        assert_eq!(warning.is_some(), words.is_some(), "{objects} {on:?}");
        assert!(words.is_none_or(|words| warning.is_some_and(|warning| warning.contains(words))), "{objects}");
    }
}
