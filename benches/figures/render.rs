//! Measures the processor time to render a request for a transition, with each of the built-in templates. Needs no cluster.
//!
//! Only the processor time of this thread is counted, so other work on the machine has little effect. A rate is that of one core
//! with no other work.

use std::hint::black_box;
use std::time::Duration;

use relaybook_api::notification::Builtin;
use relaybook_api::{Notification, TransitionType};
use relaybook_settings::config::{Given, Sending, resolve};
use relaybook_settings::render::{CredentialsKind, Data, SampleContext, builtin};
use serde_json::{Map, Value, json};

use crate::process;
use crate::table::{RENDER, RENDER_SLOWEST, Reading};

/// Number of renderings of each transition between two reads of the clock.
const BATCH: u32 = 50;

pub fn measure(quick: bool) -> Vec<Reading> {
    let mut costs = costs(quick);
    costs.sort_by_key(|(_, cost)| *cost);
    let rate = |cost: Duration| 1.0 / cost.as_secs_f64();
    let (slowest, most) = *costs.last().expect("there are built-in templates");
    let each: Vec<_> = costs.iter().map(|(name, cost)| format!("{} {:.1}", name.as_str(), micros(*cost))).collect();
    vec![
        Reading::of(&RENDER, rate(mean(&costs))),
        Reading::of(&RENDER_SLOWEST, rate(most)),
        Reading::Note(format!("the slowest is {}; CPU each, in µs: {}", slowest.as_str(), each.join(", "))),
    ]
}

/// Returns the processor time of one rendering: the mean of all built-in templates and transitions.
pub fn cost(quick: bool) -> Duration {
    mean(&costs(quick))
}

fn costs(quick: bool) -> Vec<(Builtin, Duration)> {
    let mut context = SampleContext::sample(("deploys".to_owned(), "team-a".to_owned()));
    let labels = [("app.kubernetes.io/name", "podinfo"), ("app.kubernetes.io/part-of", "shop"), ("team", "a")];
    context.labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let transitions = |name| {
        let reported = TransitionType::ALL.into_iter().filter(|type_| builtin(name).metadata.reports(*type_));
        reported.map(|type_| context.transition(type_)).collect::<Vec<_>>()
    };
    let window = Duration::from_millis(if quick { 20 } else { 200 });
    Builtin::ALL.into_iter().map(|name| (name, one(&sending(name), &transitions(name), window))).collect()
}

/// Measures the processor time of one rendering with one template.
fn one(sending: &Sending, transitions: &[Data], window: Duration) -> Duration {
    let (began, mut count) = (process::thread_cpu(), 0);
    loop {
        for _ in 0..BATCH {
            for data in transitions {
                black_box(sending.render(black_box(data)).expect("it renders"));
                count += 1;
            }
        }
        let took = process::thread_cpu() - began;
        if took >= window {
            return took / count;
        }
    }
}

/// Resolves the example of a built-in template.
fn sending(name: Builtin) -> Sending {
    let metadata = &builtin(name).metadata;
    let endpoint = match metadata.credentials.kind {
        CredentialsKind::Url => json!({"urlFrom": {"secretKeyRef": {"name": "receiver", "key": "url"}}}),
        _ => json!({"url": metadata.example.url}),
    };
    // A sample about an environment has no target, and so no source that a default could use.
    let needs_value = |default: &str| default.contains("target.source");
    let required = metadata.parameters.iter().filter(|p| p.default.as_deref().is_none_or(needs_value));
    let parameters: Map<_, _> = required.map(|p| (p.name.clone(), Value::from(p.example.clone()))).collect();
    let notification: Notification = serde_json::from_value(json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": "Notification", "metadata": {"name": "deploys", "namespace": "team-a"},
        "spec": {"triggers": [], "endpoint": endpoint, "template": {"builtin": name.as_str(), "parameters": parameters}},
    }))
    .expect("a Notification");
    resolve(&notification, &Given::nothing()).sending.expect("its example is valid")
}

fn mean(costs: &[(Builtin, Duration)]) -> Duration {
    costs.iter().map(|(_, cost)| *cost).sum::<Duration>() / u32::try_from(costs.len()).expect("a few")
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
