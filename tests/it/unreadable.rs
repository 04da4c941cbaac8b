//! Tests that nobody reads through a pipeline or a set what is not theirs: Secrets in any spelling, kinds with credentials, and fields of
//! objects in other namespaces.

use kube::api::{Api, ObjectMeta, PostParams};
use relaybook_api::conditions::{self, ConditionStatus};
use relaybook_api::{Pipeline, PipelineSet};
use serde_json::{Value, json};

use crate::installed::with_earlier_crds;
use crate::support::control_plane::{foreign, install};
use crate::support::relaybook::Options;
use crate::support::remote::{self, Remote};
use crate::support::world::apps::condition;
use crate::support::{Receiver, Relaybook, World, eventually};

/// The value of the Secret, which must not appear anywhere.
const SECRET: &str = "open-sesame";

/// Spellings of `v1` and `Secret`, and of other kinds that are never read.
const SPELLINGS: [(&str, &str); 14] = [
    ("/v1", "Secret"),
    ("//v1", "Secret"),
    ("/v1/", "Secret"),
    ("v1/", "Secret"),
    (" v1", "Secret"),
    ("v1 ", "Secret"),
    ("%76%31", "Secret"),
    ("./v1", "Secret"),
    ("v1#", "Secret"),
    ("apps/../v1", "Secret"),
    ("V1", "Secret"),
    ("v\u{ff11}", "Secret"),
    ("v1", "Secret "),
    ("/v1", "ConfigMap"),
];

/// Returns the places in which a team can name a kind, as the spec of a Pipeline.
fn places(api_version: &str, kind: &str) -> Vec<Value> {
    let app = json!({"apiVersion": api_version, "kind": kind, "name": "db", "revisionPath": ".status.password"});
    let harmless = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "db"});
    let target = json!({"namespace": "unreadable-b"});
    let objects = json!({"apiVersion": api_version, "kind": kind, "namespaces": ["*"], "revisionPath": ".status.password"});
    vec![
        json!({"appRef": app, "environments": [{"name": "e", "targets": [target]}]}),
        json!({"appRef": harmless, "environments": [{"name": "e", "targets": [{"namespace": "unreadable-b", "appRef": app}]}]}),
        json!({"environments": [{"name": "e", "targetsFrom": [{"objects": objects}]}]}),
    ]
}

/// Returns a set whose sources are objects of this kind.
fn set(name: &str, api_version: &str, kind: &str) -> Value {
    let template = json!({"metadata": {"name": "made-{{name}}"}, "spec": places("apps/v1", "Deployment")[0]});
    let objects = json!({"apiVersion": api_version, "kind": kind, "namespaces": ["*"]});
    json!({"metadata": {"name": name}, "spec": {"generators": [{"objects": objects}], "template": template}})
}

#[tokio::test]
async fn the_schema_refuses_every_other_spelling_of_a_kind() {
    let world = World::new("unreadable-schema").await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    for (api_version, kind) in SPELLINGS {
        for (place, spec) in places(api_version, kind).into_iter().enumerate() {
            let pipeline: Pipeline = serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": spec})).unwrap();
            let refused = world.api::<Pipeline>().create(&dry, &pipeline).await.expect_err(api_version).to_string();
            let field = if kind.ends_with(' ') { "kind" } else { "apiVersion" };
            assert!(
                refused.contains(field) && refused.contains("should match"),
                "{api_version:?} {kind:?} at {place}: {refused}"
            );
        }
        let set: PipelineSet = serde_json::from_value(set("s", api_version, kind)).unwrap();
        let refused = world.api::<PipelineSet>().create(&dry, &set).await.expect_err(api_version).to_string();
        assert!(refused.contains("should match"), "{api_version:?} {kind:?}: {refused}");
    }
}

/// Objects can be older than the schema, so the controller decides as well.
#[tokio::test]
async fn no_spelling_reads_a_secret_with_older_crds() {
    let victim = World::on(with_earlier_crds(), "unreadable-b").await;
    victim.secret("db", json!({"password": SECRET})).await;
    let world = World::on(with_earlier_crds(), "unreadable-a").await;
    let receiver = Receiver::start();
    world.notification("hook", &receiver, json!({})).await;
    let mut names = Vec::new();
    for (number, (api_version, kind)) in
        SPELLINGS.into_iter().chain([("v1", "Secret"), ("v1", "ServiceAccount")]).enumerate()
    {
        for (place, spec) in places(api_version, kind).into_iter().enumerate() {
            let name = format!("p-{number}-{place}");
            world.create::<Pipeline>(json!({"metadata": {"name": name}, "spec": spec})).await;
            names.push(name);
        }
        world.create::<PipelineSet>(set(&format!("s-{number}"), api_version, kind)).await;
    }
    let watch = vec![world.ns.clone(), victim.ns.clone()];
    let _relaybook = Relaybook::with(&world, Options { watch, ..Options::of(&world) }).await;
    for name in names {
        let ready = world.pipeline_condition(&name, "Ready", |ready| ready.status == ConditionStatus::False).await;
        assert!(
            ["InvalidKind", "ForbiddenKind"].contains(&ready.reason.as_str()),
            "{name}: {} {}",
            ready.reason,
            ready.message
        );
        let whole = serde_json::to_string(&world.get_pipeline(&name).await).unwrap();
        assert!(!whole.contains(SECRET), "{whole}");
    }
    for number in 0..SPELLINGS.len() + 2 {
        let name = format!("s-{number}");
        eventually(&format!("{name} is refused"), async || {
            let set = world.api::<PipelineSet>().get(&name).await.map_err(|error| error.to_string())?;
            let status = set.status.unwrap_or_default();
            let ready = conditions::get(&status.conditions, "Ready").cloned();
            let reason = ready.as_ref().map(|ready| ready.reason.as_str());
            if matches!(reason, Some("InvalidKind" | "ForbiddenKind")) { Ok(()) } else { Err(format!("{ready:?}")) }
        })
        .await;
    }
    let made = world.api::<Pipeline>().list(&kube::api::ListParams::default()).await.expect("listed");
    assert!(made.items.iter().all(|pipeline| !pipeline.metadata.name.as_deref().unwrap_or_default().starts_with("made-")));
}

/// The name of a resource does not follow from its kind, so the one that the cluster serves decides before a watch is opened. The second kind
/// exists only in another cluster.
#[tokio::test]
async fn a_kind_that_is_served_under_the_name_of_secrets_is_not_watched() {
    let world = World::new("unreadable-served").await;
    let remote = Remote::of(&world, remote::second(), "edge").await;
    let kinds = [("harmless", &world, None), ("elsewhere", &remote.world, Some(remote.reference()))];
    for (name, there, cluster) in kinds {
        let group = format!("{name}.example.com");
        install(&there.client, &foreign(&group, "v1", "Harmless", "secrets")).await;
        let app = json!({"apiVersion": format!("{group}/v1"), "kind": "Harmless", "name": "db"});
        let target = json!({"namespace": world.ns, "clusterRef": cluster});
        let spec = json!({"appRef": app, "environments": [{"name": "e", "targets": [target]}]});
        world.create::<Pipeline>(json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    let _relaybook = Relaybook::start(&world).await;
    for name in ["harmless", "elsewhere"] {
        let ready = world.pipeline_condition(name, "Ready", |ready| ready.reason == "ForbiddenKind").await;
        let message = format!("a Harmless of {name}.example.com/v1 cannot be an application object");
        assert!(ready.message.contains(&message), "{}", ready.message);
    }
}

/// Creates a widget with a version, and with credentials in its spec and status.
async fn widget(world: &World, namespace: &str) {
    install(&world.client, &foreign("unreadable.example.com", "v1", "Widget", "widgets")).await;
    let kind = kube::core::GroupVersionKind::gvk("unreadable.example.com", "v1", "Widget");
    let kind = kube::core::ApiResource::from_gvk_with_plural(&kind, "widgets");
    let api: Api<kube::core::DynamicObject> = Api::namespaced_with(world.client.clone(), namespace, &kind);
    let container = json!({"name": "web", "image": "web:1.2", "env": [{"name": "A", "value": SECRET}], "args": [SECRET]});
    let spec = json!({"version": "1.2", "private": "internal", "values": {"a": SECRET}, "containers": [container]});
    let mut object = kube::core::DynamicObject::new("web", &kind).data(json!({"spec": spec}));
    object.metadata = ObjectMeta { name: Some("web".to_owned()), ..ObjectMeta::default() };
    api.create(&PostParams::default(), &object).await.expect("created");
    let status = json!({"status": {"version": "1.1", "conditions": [condition("Ready", "True", "Up", "")]}});
    api.patch_status("web", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(status)).await.expect("patched");
}

#[tokio::test]
async fn a_path_reads_usual_places_of_other_namespaces_and_never_credentials() {
    let other = World::new("unreadable-there").await;
    let world = World::new("unreadable-here").await;
    widget(&world, &world.ns).await;
    widget(&world, &other.ns).await;
    let create = async |name: &str, namespace: &str, path: &str| {
        let app = json!({"apiVersion": "unreadable.example.com/v1", "kind": "Widget", "name": "web", "revisionPath": path});
        let spec = json!({"appRef": app, "environments": [{"name": "e", "targets": [{"namespace": namespace}]}]});
        world.create::<Pipeline>(json!({"metadata": {"name": name}, "spec": spec})).await;
    };
    // The path, the result in another namespace, and the result in the own one: a revision, or the reason.
    let cases = [
        (".spec.version", Ok("1.2"), Ok("1.2")),
        (".status.version", Ok("1.1"), Ok("1.1")),
        (".spec.containers[?(@.name==\"web\")].image", Ok("web:1.2"), Ok("web:1.2")),
        (".spec.private", Err("PathNotReadable"), Ok("internal")),
        (".spec.containers[*][*]", Err("PathNotReadable"), Ok("web:1.2,web")),
        (".spec[*]", Err("PathNotReadable"), Ok("internal,1.2")),
        (".spec.containers[?(@.env[0].value>\"m\")].image", Err("PathNotReadable"), Ok("web:1.2")),
        (".spec.values.a", Err("InvalidRevisionPath"), Err("InvalidRevisionPath")),
        (".spec.containers[0].env[0].value", Err("InvalidRevisionPath"), Err("InvalidRevisionPath")),
        (".spec.containers[*][*][*][*]", Err("PathNotReadable"), Ok("")),
    ];
    for (number, (path, _, _)) in cases.iter().enumerate() {
        create(&format!("there-{number}"), &other.ns, path).await;
        create(&format!("here-{number}"), &world.ns, path).await;
    }
    let watch = vec![world.ns.clone(), other.ns.clone()];
    let _relaybook = Relaybook::with(&world, Options { watch, ..Options::of(&world) }).await;
    for (number, (path, there, here)) in cases.iter().enumerate() {
        for (place, wanted) in [("there", there), ("here", here)] {
            let name = format!("{place}-{number}");
            match wanted {
                Ok(revision) => {
                    eventually(&format!("the revision at {path} {place}"), async || {
                        let status = world.get_pipeline(&name).await.status.unwrap_or_default();
                        let target = status.environments.iter().flat_map(|e| &e.targets).next().cloned();
                        let found = target.as_ref().is_some_and(|t| t.ready && t.revision == *revision);
                        if found { Ok(()) } else { Err(format!("{target:?}")) }
                    })
                    .await;
                }
                Err(reason) => {
                    world.pipeline_condition(&name, "Ready", |ready| ready.reason == *reason).await;
                }
            }
            let whole = serde_json::to_string(&world.get_pipeline(&name).await).unwrap();
            assert!(!whole.contains(SECRET), "{path} {place}: {whole}");
        }
    }
}
