//! What changes of the configuration affect, and what happens if they come while something is compiled.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::budget::Next;
use super::changed::Changed;
use super::config_maps::ConfigMaps;
use super::configuration::Configuration;
use crate::outbox::{PipelineFacts, PipelineIndex, Scope};
use relaybook_api::ObjectName;
use relaybook_runtime::watch::Seen;
use relaybook_settings::config::{EffectiveNotification, Problem};
use relaybook_telemetry::Metrics;

struct Bed {
    config: Configuration,
    index: PipelineIndex,
    generation: i64,
}

impl Bed {
    /// A pipeline `p1` of `team-a`, whose layer namespace is `platform`.
    fn new() -> Self {
        let refuse = |_: http::Request<Body>| async { Err::<http::Response<Body>, tower::BoxError>("no API server".into()) };
        let client = Client::new(tower::service_fn(refuse), "default");
        let config_maps = ConfigMaps::new(client, tokio::sync::watch::channel(None).1, Metrics::new());
        let (map, index) = (ObjectName::new("relaybook-system", "relaybook-config"), PipelineIndex::default());
        let config = Configuration::new(map, config_maps, index.clone(), "in-cluster".to_owned(), false, true);
        Self { config, index, generation: 0 }
    }

    fn object(&mut self, kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
        self.generation += 1;
        let metadata = json!({"name": name, "namespace": namespace, "uid": name, "generation": self.generation});
        json!({"apiVersion": "relaybook.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
    }

    fn notify(&mut self, namespace: &str, name: &str, spec: &Value) -> Changed {
        let notification = serde_json::from_value(self.object("Notification", namespace, name, spec)).unwrap();
        self.config.put_notification(&notification).expect("it has changed")
    }

    fn pipeline(&mut self, layers: &Value) -> Option<Scope> {
        let spec = json!({"environments": [], "layerNamespace": "platform", "notifications": layers});
        let pipeline = serde_json::from_value(self.object("Pipeline", "team-a", "p1", &spec)).unwrap();
        let facts = PipelineFacts { uid: "p1".to_owned(), namespace: "team-a".to_owned(), ..PipelineFacts::default() };
        self.config.put_pipeline(&pipeline, &facts)
    }

    /// Returns what applies to the pipeline as a whole.
    fn applies(&self, name: &str) -> Option<Arc<EffectiveNotification>> {
        let applied = self.index.notifications_of("p1", "team-a", &BTreeMap::new());
        applied.get(name)?.of("pipeline").cloned()
    }

    fn is_compiling(&self, name: &str) -> bool {
        self.applies(name).is_some_and(|n| matches!(n.intake, Err(Problem::Compiling { .. })))
    }

    /// Compiles until nothing is left. Before the first result is applied, something else happens. Returns who paid for each turn, and what
    /// the last one affected.
    fn compile(&mut self, meanwhile: impl FnOnce(&mut Self)) -> (Vec<String>, Changed) {
        let (mut payers, mut last, mut meanwhile) = (Vec::new(), Changed::default(), Some(meanwhile));
        loop {
            match self.config.next_job() {
                Next::Work(namespace, mut job) => {
                    let outcome = self.config.run(&mut job);
                    if let Some(meanwhile) = meanwhile.take() {
                        meanwhile(self);
                    }
                    (last, _) = self.config.finish(&namespace, job, outcome);
                    payers.push(namespace);
                }
                Next::Wait(left) => std::thread::sleep(left.min(Duration::from_millis(10))),
                Next::Nothing => return (payers, last),
            }
        }
    }
}

fn suspend(is: bool) -> Value {
    json!({"suspend": is, "pipelineNamespaces": ["team-a"]})
}

fn is_compiled(changed: &Changed) -> bool {
    matches!(&changed.layers[..], [(Scope::Layers(uid), _)] if uid == "p1")
}

#[tokio::test]
async fn nothing_applies_until_layers_are_compiled_and_an_outdated_result_is_dropped() {
    let mut bed = Bed::new();
    bed.notify("team-a", "hook", &suspend(false));
    assert!(matches!(bed.pipeline(&json!([{"name": "hook"}])), Some(Scope::Pipeline(_))));
    assert!(bed.is_compiling("hook"));
    let (payers, last) = bed.compile(|bed| {
        assert!(bed.notify("team-a", "hook", &suspend(true)).is_nothing(), "the compiled result affects something");
        assert!(bed.is_compiling("hook"));
    });
    assert_eq!(payers, ["team-a", "team-a"], "compiled from the old text, and from the new one");
    assert!(is_compiled(&last));
    assert!(bed.applies("hook").is_some_and(|n| n.suspend));
}

#[tokio::test]
async fn a_namespace_pays_for_the_layers_that_it_adds_while_others_are_compiled() {
    let mut bed = Bed::new();
    bed.notify("team-a", "hook", &suspend(false));
    bed.pipeline(&json!([{"name": "hook"}]));
    let (payers, _) = bed.compile(|bed| drop(bed.notify("platform", "hook", &suspend(true))));
    assert_eq!(payers, ["team-a", "platform"]);
    assert!(bed.applies("hook").is_some_and(|n| n.suspend));
}

#[tokio::test]
async fn a_pipeline_is_checked_when_it_loses_a_layer() {
    let mut bed = Bed::new();
    bed.notify("team-a", "hook", &suspend(false));
    bed.notify("platform", "hook", &suspend(true));
    bed.pipeline(&json!([]));
    bed.compile(|_| {});
    assert!(bed.applies("hook").is_some_and(|n| n.suspend));
    let changed = bed.config.remove_notification("platform", "hook").expect("it was known");
    assert!(is_compiled(&changed));
    assert!(bed.applies("hook").is_some_and(|n| !n.suspend));
    assert!(bed.config.remove_notification("platform", "hook").is_none());

    bed.pipeline(&json!([{"name": "hook", "suspend": true}]));
    bed.compile(|_| {});
    assert!(bed.applies("hook").is_some_and(|n| n.suspend));
    assert!(matches!(bed.pipeline(&json!([])), Some(Scope::Layers(_))));
    assert!(bed.pipeline(&json!([])).is_none(), "it has no layers any more");
    assert!(bed.applies("hook").is_some_and(|n| !n.suspend));
}

#[tokio::test]
async fn only_a_changed_key_of_a_config_map_affects_notifications() {
    let mut bed = Bed::new();
    let map = ObjectName::new("team-a", "texts");
    let template = json!({"configMapKeyRef": {"name": "texts", "key": "a"}});
    bed.notify("team-a", "hook", &json!({"endpoint": {"url": "https://example.com/in"}, "template": template}));
    bed.notify("team-a", "other", &suspend(false));
    bed.pipeline(&json!([{"name": "hook"}, {"name": "other"}]));
    bed.compile(|_| {});
    let sending = |bed: &Bed| {
        let one = bed.applies("hook").unwrap();
        one.sending.as_ref().err().map(Problem::is_unknown)
    };
    assert_eq!(sending(&bed), Some(true), "neither valid nor invalid");
    let text = |key: &str, text: &str| {
        let mut data = BTreeMap::from([("a".to_owned(), r#"{"text": "{{type}}"}"#.to_owned())]);
        data.insert(key.to_owned(), text.to_owned());
        Seen::Object(Some(ConfigMap { data: Some(data), ..ConfigMap::default() }))
    };
    bed.config.config_maps.see(&map, text("b", "1"));
    let changed = bed.config.config_map_changed(&map);
    assert_eq!(changed.notifications, BTreeSet::from([ObjectName::new("team-a", "hook")]));
    assert!(matches!(&changed.layers[..], [(Scope::Pipeline(uid), _)] if uid == "p1"), "its layers must be compiled");
    assert!(bed.is_compiling("hook") && !bed.is_compiling("other"));
    bed.compile(|_| {});
    assert_ne!(sending(&bed), Some(true));
    bed.config.config_maps.see(&map, text("b", "2"));
    assert!(bed.config.config_map_changed(&map).is_nothing(), "another key");
    bed.config.config_maps.see(&map, text("a", "{{nothing}}"));
    assert!(!bed.config.config_map_changed(&map).is_nothing());
    // The text changes again while it is compiled, before the watch of the ConfigMap reports it.
    bed.compile(|bed| bed.config.config_maps.see(&map, Seen::Begins));
    assert_eq!(sending(&bed), Some(true), "unknown in a new term");
}
