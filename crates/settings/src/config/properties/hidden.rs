//! Templates of the platform see the parameters of the platform's layers. Templates of teams see them only if they are shared. Templates of the
//! layer namespace see no parameter of the namespace of the pipeline.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::places::tag;
use super::*;
use crate::config::layers::fold;
use crate::config::{Address, resolve_layers};
use crate::render::Data;
use relaybook_api::TransitionType;

/// Expressions that read all parameters, or one parameter without its name in a path.
const READS: [&str; 5] = [
    "{{json parameters}}",
    "{{#each parameters}}{{@key}}={{this}};{{/each}}",
    "{{default (lookup parameters \"a\") \"-\"}}",
    "{{#with parameters}}{{json this}}{{/with}}",
    "{{json @root}}",
];

/// A template that names its author.
fn template(source: &Source) -> BoxedStrategy<Value> {
    let by = tag(source);
    one_of(READS.map(|read| json!(format!("by-{by} {read}"))))
}

fn layer(source: &Source) -> BoxedStrategy<Value> {
    let by = tag(source);
    let url = one_of(READS[..3].iter().map(|read| json!(format!("https://one.example.com/by-{by}?all={read}"))));
    let header = one_of(READS[..4].iter().map(|read| json!(format!("by-{by} {read}"))));
    let value = || one_of([json!(format!("value-{by}")), json!(format!("value-{by} {{{{environment}}}}"))]);
    let inline = template(source).prop_map(|body| json!({"body": body, "contentType": "text/plain"})).boxed();
    let of_map = one_of([json!({"name": by, "key": "body", "contentType": "text/plain"})]);
    let choice = prop_oneof![only("inline", inline), only("configMapKeyRef", of_map)];
    let shares = one_of([true, true, true, false].map(Value::from));
    let template =
        (choice, some(vec![("parameters", some(vec![("a", value()), ("b", value())])), ("shareParameters", shares)]))
            .prop_map(|(mut choice, more)| {
                json_patch::merge(&mut choice, &more);
                choice
            });
    let only_values = some(vec![("parameters", some(vec![("a", value())]))]);
    some(vec![
        ("template", prop_oneof![template, only_values].boxed()),
        ("endpoint", some(vec![("url", url), ("headers", only("X-All", header))])),
    ])
}

fn laid(source: &Source) -> BoxedStrategy<Value> {
    let pointers = ["/template/shareParameters", "/template/parameters/a", "/template/parameters", "/endpoint/headers"];
    if let Source::LayerNamespace(_) = source {
        return layer(source);
    }
    (layer(source), subsequence(pointers.to_vec(), 0..=1))
        .prop_map(|(mut layer, remove)| {
            layer["remove"] = json!(remove);
            layer
        })
        .boxed()
}

/// The content of a ConfigMap: a template that names the owner of the namespace.
fn text(key: &ConfigMapKey) -> Text {
    let by = match key.namespace.as_str() {
        PLATFORM => "map-platform",
        WORKSPACE => "map-workspace",
        _ => "map-team",
    };
    Text::Found(Arc::from(format!("by-{by} {}", READS[0])))
}

#[test]
fn a_template_of_a_team_sees_only_shared_parameters_of_the_platform() {
    let seen = RefCell::new(BTreeMap::new());
    try_all(3000, &any_layers(laid), |layers| {
        let bottom = json!({
            "triggers": [{"type": "Deployed"}],
            "endpoint": {"url": "https://one.example.com/by-defaults", "headers": {"X-All": "by-defaults"}},
            "template": {"inline": {"body": "by-defaults", "contentType": "text/plain"}, "parameters": {"a": "value-defaults"}},
        });
        let mut all = vec![written(&Source::Defaults, PLATFORM, &bottom)];
        all.extend(layers.iter().map(|(source, value)| written(source, namespace(source), value)));
        let given = Given { allow_http: true, text: &text };
        let effective = resolve_layers(&all, TEAM, "uid", &given);
        let Ok(sending) = &effective.sending else { return Ok(()) };
        let own: Vec<_> = all.iter().filter(|layer| is_platform(&layer.source)).cloned().collect();
        let own = Value::Object(fold(&own, |_| {}).unwrap().value);
        let is_shared = own.pointer("/template/shareParameters") == Some(&json!(true));
        let request = sending.render(&Data::sample(TransitionType::Deployed)).unwrap();
        let Address::Url(url) = request.address else { panic!("a URL") };
        let url = percent_encoding::percent_decode_str(url.as_str()).decode_utf8().unwrap().into_owned();
        let headers = request.headers.into_iter().map(|(_, value)| ("header", value));
        for (what, text) in [("url", url), ("body", request.body)].into_iter().chain(headers) {
            let by_platform = ["by-defaults", "by-global", "by-map-platform"].iter().any(|by| text.contains(by));
            let by_workspace = ["by-workspace", "by-map-workspace"].iter().any(|by| text.contains(by));
            let reads = |owners: &[&str]| owners.iter().any(|owner| text.contains(&format!("value-{owner}")));
            let is_read = reads(&["defaults", "global"]);
            prop_assert!(!is_read || by_platform || is_shared, "{} sees what it may not: {}", what, text);
            let is_teams = reads(&["notification", "pipeline", "environment", "target"]);
            // The API server does not let a team write this. But if a layer has it, it counts.
            let shares = |(source, layer): &(Source, Value)| {
                namespace(source) == TEAM && layer.pointer("/template/shareParameters") == Some(&json!(true))
            };
            prop_assert!(!is_teams || !by_workspace || layers.iter().any(shares), "{} sees what it may not: {}", what, text);
            // A workspace reads what is shared in the same way as a team, but rarely here.
            *seen.borrow_mut().entry((what, by_platform, by_workspace, is_read && !by_workspace)).or_insert(0) += 1;
        }
        Ok(())
    });
    let seen = seen.into_inner();
    assert_eq!(
        seen.len(),
        15,
        "each place, by a workspace, and by the platform and a team with and without what is the platform's: {seen:?}"
    );
}
