//! What users may do with the cluster roles of Kubernetes. The controller in kube-controller-manager aggregates the rules of the chart into
//! `view`, `edit` and `admin`, and the API server answers what is allowed.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use relaybook_api::{Delivery, Outcome};
use serde_json::{Value, json};

use super::{client, kubeconfig, namespaces, render};
use crate::support::chart::Account;
use crate::support::control_plane::{self, ControlPlane};
use crate::support::relaybook::Options;
use crate::support::{Receiver, Relaybook, Reply, World, eventually};

const VIEW: [&str; 6] = [
    "get pipelines.relaybook.dev team-a shop",
    "list pipelines.relaybook.dev team-a",
    "watch notifications.relaybook.dev team-a",
    "list deliveries.relaybook.dev team-a",
    "watch deliveries.relaybook.dev team-a",
    "list promotions.relaybook.dev team-a",
];
const EDIT: [&str; 8] = [
    "create pipelines.relaybook.dev team-a",
    "update pipelines.relaybook.dev team-a shop",
    "patch notifications.relaybook.dev team-a hook",
    "create notifications.relaybook.dev team-a",
    "delete notifications.relaybook.dev team-a hook",
    "deletecollection pipelines.relaybook.dev team-a",
    "deletecollection notifications.relaybook.dev team-a",
    "patch deliveries.relaybook.dev team-a shop-1",
];
const ADMIN: [&str; 4] = [
    "delete deliveries.relaybook.dev team-a shop-1",
    "deletecollection deliveries.relaybook.dev team-a",
    "delete promotions.relaybook.dev team-a shop-prod",
    "deletecollection promotions.relaybook.dev team-a",
];
/// What none of the three roles allows.
const NEVER: [&str; 12] = [
    "create deliveries.relaybook.dev team-a",
    "update deliveries.relaybook.dev team-a shop-1",
    "patch deliveries.relaybook.dev/status team-a shop-1",
    "patch pipelines.relaybook.dev/status team-a shop",
    "patch notifications.relaybook.dev/status team-a hook",
    "create promotions.relaybook.dev team-a",
    "patch promotions.relaybook.dev team-a shop-prod",
    "update promotions.relaybook.dev team-a shop-prod",
    "patch promotions.relaybook.dev/status team-a shop-prod",
    "list promotions.relaybook.dev team-b",
    "list pipelines.relaybook.dev team-b",
    "list deliveries.relaybook.dev",
];
/// What the `ClusterRole` for approvers allows.
const APPROVE: [&str; 4] = [
    "list pipelines.relaybook.dev team-a",
    "get pipelines.relaybook.dev team-a shop",
    "list promotions.relaybook.dev team-a",
    "patch promotions.relaybook.dev team-a shop-prod",
];

/// The accounts of three people in `team-a`.
struct People {
    viewer: Account,
    editor: Account,
    admin: Account,
}

impl People {
    async fn bound(team: &World) -> Self {
        let bound = async |name, role| Account::bound(&team.client, &team.ns, name, role).await;
        let people = Self {
            viewer: bound("ada", "view").await,
            editor: bound("eve", "edit").await,
            admin: bound("ann", "admin").await,
        };
        for (who, words) in [(&people.viewer, VIEW[0]), (&people.editor, EDIT[0]), (&people.admin, ADMIN[0])] {
            eventually(&format!("{} may {words}", who.name), async || {
                if who.may(words).await { Ok(()) } else { Err("not aggregated".to_owned()) }
            })
            .await;
        }
        people
    }

    /// Checks that each account has the permissions of its role, and no others.
    async fn may_what_their_role_says(&self) {
        let steps = [&VIEW[..], &EDIT, &ADMIN, &NEVER];
        for (allowed, who) in [(1, &self.viewer), (2, &self.editor), (3, &self.admin)] {
            for words in steps[..allowed].concat() {
                assert!(who.may(words).await, "{} may not {words}", who.name);
            }
            for words in steps[allowed..].concat() {
                assert!(!who.may(words).await, "{} may {words}", who.name);
            }
        }
    }
}

/// Runs `relaybook redeliver` with this kubeconfig.
async fn redeliver(kubeconfig: &Path, name: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relaybook"));
    command.args(["redeliver", "-n", "team-a", name]).env("KUBECONFIG", kubeconfig).stdin(Stdio::null());
    tokio::task::spawn_blocking(move || command.output().expect("relaybook runs")).await.expect("joined")
}

#[tokio::test]
async fn permissions_of_users_are_aggregated_to_view_edit_and_admin() {
    let plane = ControlPlane::aggregating().expect("a control plane");
    let own = World::on(&plane.kubeconfig, "relaybook-system").await;
    let team = World::beside("team-a", &own).await;
    let release = render("relaybook", "relaybook-system", &json!({}));
    let account = release.as_its_account(&plane.kubeconfig).await;
    let policy = |object: &Value| object["kind"].as_str().is_some_and(|kind| kind.starts_with("ValidatingAdmission"));
    release.apply(&plane.kubeconfig, false, policy).unwrap_or_else(|why| panic!("the policy is refused: {why}"));
    let people = People::bound(&team).await;
    people.may_what_their_role_says().await;

    // A parked delivery is sent again by an account with `edit`, but not by one with `view`.
    let receiver = Receiver::start();
    receiver.script("/hook/web", [Reply::status(400)]);
    team.deploy("web", "1").await;
    team.pipeline("shop", &["dev/web"]).await;
    team.notification("hook", &receiver, json!({})).await;
    let options = Options { watch: Vec::new(), kubeconfig: Some(account), ..Options::of(&own) };
    let mut relaybook = Relaybook::with(&own, options).await;
    team.settled().await;
    team.ship("web", "2").await;
    let is = |outcome| move |d: &Delivery| d.status.as_ref().and_then(|s| s.outcome) == Some(outcome);
    let name = team.delivery("Deployed 2", is(Outcome::Parked)).await.name_any();
    let viewer = people.viewer.kubeconfig(&plane.kubeconfig, "people-viewer").await;
    let refused = redeliver(&viewer, &name).await;
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(5) && words.contains("forbidden"), "{words}");
    let editor = people.editor.kubeconfig(&plane.kubeconfig, "people-editor").await;
    let done = redeliver(&editor, &name).await;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    team.delivery("Deployed 2", is(Outcome::Delivered)).await;
    assert_eq!(receiver.to("/hook/web").len(), 2);

    // The same permission does not allow a user to send what Relaybook has not recorded.
    let all: Api<Delivery> = Api::namespaced(control_plane::client(&editor).await, "team-a");
    let mut forged = all.get(&name).await.expect("read");
    forged.metadata = kube::api::ObjectMeta { name: Some("forged".to_owned()), ..Default::default() };
    forged.status = None;
    let applied = all.patch("forged", &PatchParams::apply("eve"), &Patch::Apply(&forged)).await;
    let error = applied.expect_err("an apply of what is not there is a create").to_string();
    assert!(error.contains("cannot create resource") || error.contains("cannot patch"), "{error}");
    for change in [json!({"spec": {"order": 0}}), json!({"status": {"attempts": 9}}), json!({"status": null})] {
        let changed = all.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await;
        assert!(changed.is_err(), "only Relaybook writes spec and status: {change}");
    }
    relaybook.stop().await;
}

#[tokio::test]
async fn approvers_can_edit_promotions_and_nothing_else() {
    let client = client().await;
    namespaces(&client, &["team-a"]).await;
    let release = render("relaybook", "approvers-own", &json!({"rbac": {"approverClusterRole": true}}));
    let is_role = |object: &Value| object["metadata"]["name"] == "relaybook.approvers-own.approver";
    assert_eq!(release.of("ClusterRole").filter(|object| is_role(object)).count(), 1);
    release.apply(kubeconfig(), false, is_role).unwrap_or_else(|why| panic!("the role is refused: {why}"));
    let approver = Account::bound(&client, "team-a", "amy", "relaybook.approvers-own.approver").await;
    for words in APPROVE {
        eventually(
            &format!("amy may {words}"),
            async || {
                if approver.may(words).await { Ok(()) } else { Err("refused".to_owned()) }
            },
        )
        .await;
    }
    let refused = [
        "create promotions.relaybook.dev team-a",
        "delete promotions.relaybook.dev team-a shop-prod",
        "patch pipelines.relaybook.dev team-a shop",
        "list deliveries.relaybook.dev team-a",
        "list secrets team-a",
    ];
    for words in [&refused[..], &NEVER[..]].concat().into_iter().filter(|words| !APPROVE.contains(words)) {
        assert!(!approver.may(words).await, "amy may {words}");
    }
    // By default nobody can bind it, because it does not exist. It is cluster-wide.
    for values in [json!({}), json!({"rbac": {"approverClusterRole": true}, "watchNamespaces": ["team-a"]})] {
        let release = render("relaybook", "approvers-own", &values);
        assert_eq!(release.of("ClusterRole").filter(|object| is_role(object)).count(), 0, "{values}");
    }
}
