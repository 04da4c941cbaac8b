//! Related transitions have the same key: a transition that ends an alert ends the alert of the failure, and no other.

use std::collections::BTreeSet;

use relaybook_api::TransitionType::{
    self, Added, ClusterOffline, ClusterOnline, Deployed, DriftCorrected, Drifted, EnvironmentReady, Failed, PipelineReady,
    Progressing, PromotionFailed, PromotionFinished, PromotionOpened, PromotionPending, PromotionRequested, Recovered,
    Removed,
};
use relaybook_api::notification::Builtin;
use relaybook_settings::render::Data;
use serde_json::Value;

use crate::awkward;
use crate::subject::{Parameters, Request, Subject};

/// Function that returns the key of an alert.
type Key = fn(&Request) -> Option<Value>;

fn pagerduty(request: &Request) -> Option<Value> {
    request.json().get("dedup_key").cloned()
}

/// The key is in the body of the request that creates the alert, and in the path of the request that closes it.
fn opsgenie(request: &Request) -> Option<Value> {
    let in_path = || request.url.path().strip_prefix("/v2/alerts/")?.split('/').next().map(Value::from);
    request.json().get("alias").cloned().or_else(in_path)
}

fn alertmanager(request: &Request) -> Option<Value> {
    request.json().pointer("/0/labels").cloned()
}

fn incident_io(request: &Request) -> Option<Value> {
    request.json().get("deduplication_key").cloned()
}

const ALERTS: [(Builtin, Key); 4] = [
    (Builtin::Pagerduty, pagerduty),
    (Builtin::Opsgenie, opsgenie),
    (Builtin::Alertmanager, alertmanager),
    (Builtin::IncidentIo, incident_io),
];

/// The transitions that begin an alert, each with those that end it.
const ENDS: &[(TransitionType, &[TransitionType])] = &[
    (Failed, &[Deployed, Recovered, Removed]),
    (Drifted, &[DriftCorrected]),
    (ClusterOffline, &[ClusterOnline]),
    (PromotionFailed, &[PromotionFinished]),
];

#[test]
fn a_transition_that_ends_an_alert_has_the_key_of_the_one_that_started_it() {
    for (builtin, key) in ALERTS {
        for parameters in [Parameters::Required, Parameters::Examples] {
            let subject = Subject::example(builtin, parameters);
            let of = |data: &Data| key(&subject.render(data).unwrap());
            for (begins, ends) in ENDS {
                let began = of(&Data::sample(*begins));
                assert!(began.is_some(), "{} has a key", builtin.as_str());
                for type_ in *ends {
                    // Revision, reason and time must not be part of the key.
                    for (_, row, data) in awkward::rows(*type_).filter(|(_, row, _)| *row != "long names") {
                        assert_eq!(of(&data), began, "{}, {}, {row}", builtin.as_str(), type_.as_str());
                    }
                }
            }
        }
    }
}

/// With the same key, the end of one problem would close the alert of another that still exists.
#[test]
fn failures_drift_clusters_and_promotions_have_separate_keys() {
    for (builtin, key) in ALERTS {
        for parameters in [Parameters::Required, Parameters::Examples] {
            let subject = Subject::example(builtin, parameters);
            let keys: BTreeSet<String> = ENDS
                .iter()
                .filter_map(|(begins, _)| Some(key(&subject.render(&Data::sample(*begins)).unwrap())?.to_string()))
                .collect();
            assert_eq!(keys.len(), ENDS.len(), "{}: {keys:?}", builtin.as_str());
        }
    }
}

#[test]
fn alerts_of_different_targets_have_different_keys() {
    let others: [fn(&mut Data); 6] = [
        |_| {},
        |data| data.target.name.push_str("/web"),
        |data| "prod/clusters.eu-1/podinfo".clone_into(&mut data.target.name),
        |data| "stage/in-cluster/podinfo".clone_into(&mut data.target.name),
        |data| data.target.name = format!("prod/{}/a", "n".repeat(253)),
        |data| data.target.name = format!("prod/{}/b", "n".repeat(253)),
    ];
    for (builtin, key) in ALERTS {
        let subject = Subject::example(builtin, Parameters::Required);
        let keys: BTreeSet<String> = others
            .iter()
            .map(|change| {
                let mut data = Data::sample(Failed);
                change(&mut data);
                key(&subject.render(&data).unwrap()).expect("a failure has a key").to_string()
            })
            .collect();
        assert_eq!(keys.len(), others.len(), "{}: {keys:?}", builtin.as_str());
    }
}

#[test]
fn promotions_to_another_environment_have_another_key() {
    for (builtin, key) in ALERTS {
        let subject = Subject::example(builtin, Parameters::Required);
        let keys: BTreeSet<String> = ["prod", "stage"]
            .iter()
            .map(|environment| {
                let mut data = Data::sample(PromotionFailed);
                (*environment).clone_into(&mut data.environment);
                (*environment).clone_into(&mut data.subject.name);
                key(&subject.render(&data).unwrap()).expect("a failure has a key").to_string()
            })
            .collect();
        assert_eq!(keys.len(), 2, "{}: {keys:?}", builtin.as_str());
    }
}

/// These transitions neither begin nor end an alert.
#[test]
fn other_transitions_do_not_change_alerts() {
    for type_ in [Added, Progressing, EnvironmentReady, PipelineReady, PromotionPending, PromotionRequested, PromotionOpened]
    {
        let request = |builtin| Subject::example(builtin, Parameters::Required).render(&Data::sample(type_)).unwrap();
        assert_eq!(request(Builtin::Pagerduty).url.path(), "/v2/change/enqueue");
        assert!(request(Builtin::Opsgenie).url.path().ends_with("/notes"));
        assert_eq!(request(Builtin::Alertmanager).body.split_whitespace().collect::<String>(), "[]");
    }
}

/// In Alertmanager, `endsAt` decides whether an alert fires. Opsgenie closes alerts by a request to another path.
#[test]
fn a_failure_fires_an_alert_and_a_recovery_resolves_it() {
    let subject = Subject::example(Builtin::Alertmanager, Parameters::Required);
    let ends = |type_: TransitionType| subject.body(type_, |_| {})[0]["endsAt"].as_str().map(str::to_owned);
    for type_ in [Failed, Drifted, ClusterOffline, PromotionFailed] {
        assert!(ends(type_) > Some("2090".to_owned()), "{:?}", ends(type_));
    }
    for type_ in [Deployed, Recovered, Removed, DriftCorrected, ClusterOnline, PromotionFinished] {
        assert_eq!(ends(type_).as_deref(), Some("2025-11-21T07:47:14.567Z"), "{}", type_.as_str());
    }
    let subject = Subject::example(Builtin::Opsgenie, Parameters::Required);
    let path = |type_| subject.render(&Data::sample(type_)).unwrap().url.path().to_owned();
    for type_ in [Failed, Drifted, ClusterOffline, PromotionFailed] {
        assert_eq!(path(type_), "/v2/alerts");
    }
    for type_ in [Deployed, Recovered, Removed, DriftCorrected, ClusterOnline, PromotionFinished] {
        assert!(path(type_).ends_with("/close"), "{}: {}", type_.as_str(), path(type_));
    }
}

/// The deployment of a rollout is found by this key, also by its removal. Another commit has another deployment.
#[test]
fn the_transitions_of_a_rollout_have_one_deployment() {
    for builtin in [Builtin::GithubDeployment, Builtin::GithubCheckRun, Builtin::GitlabDeployment] {
        let subject = Subject::example(builtin, Parameters::Required);
        let of = |type_, change: fn(&mut Data)| {
            let mut data = Data::sample(type_);
            change(&mut data);
            subject.thread_key(&data).expect("it has a key")
        };
        let one = of(Progressing, |_| {});
        for type_ in [Deployed, Failed, Recovered] {
            let other = of(type_, |data| data.revision = Data::sample(Progressing).revision);
            assert_eq!(other, one, "{}, {}", builtin.as_str(), type_.as_str());
        }
        let removed = of(Removed, |data| data.previous_revision = Data::sample(Progressing).revision);
        assert_eq!(removed, one, "{}", builtin.as_str());
        assert_ne!(of(Deployed, |data| data.revision = "b".repeat(40)), one, "{}", builtin.as_str());
        let another = of(Deployed, |data| {
            data.context.push_str("/other");
            data.environment.push_str("-other");
        });
        assert_ne!(another, one, "{}", builtin.as_str());
    }
}

/// The statuses of one commit have different names, even if the names are so long that they are cut.
#[test]
fn statuses_of_different_targets_do_not_replace_each_other() {
    let names = [
        (Builtin::GithubCommitStatus, "/context"),
        (Builtin::GitlabCommitStatus, "/name"),
        (Builtin::GiteaCommitStatus, "/context"),
        (Builtin::BitbucketBuildStatus, "/key"),
        (Builtin::BitbucketServerBuildStatus, "/key"),
        (Builtin::AzureDevopsGitStatus, "/context/name"),
        (Builtin::GithubCheckRun, "/name"),
    ];
    for (builtin, pointer) in names {
        let subject = Subject::example(builtin, Parameters::Required);
        let name = |context: String| {
            let body = subject.body(Deployed, |data| data.context = context);
            body.pointer(pointer).unwrap().clone()
        };
        let long = "n".repeat(600);
        assert_ne!(name(format!("{long}/a")), name(format!("{long}/b")), "{}", builtin.as_str());
        assert_eq!(name(format!("{long}/a")), name(format!("{long}/a")), "{}", builtin.as_str());
        // Everything that distinguishes the subject is readable, except in the key of Bitbucket, which is a hash.
        let whole = Data::sample(Deployed).context;
        let shown = name(whole.clone()).as_str().unwrap().to_owned();
        let is_hashed = [Builtin::BitbucketBuildStatus, Builtin::BitbucketServerBuildStatus].contains(&builtin);
        assert!(shown.ends_with(&whole) || is_hashed, "{}: {shown}", builtin.as_str());
    }
}
