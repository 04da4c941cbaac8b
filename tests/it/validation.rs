//! What the API server rejects at `kubectl apply`, with messages that say how to fix it, and what it accepts. The tests of `linted` post the
//! tables `bad` and `good`.
#![allow(clippy::needless_pass_by_value, reason = "tables read better with values")]

use http::Request;
use kube::Client;
use relaybook_api::conditions::ConditionStatus;
use relaybook_core::promotion::names;
use serde_json::{Value, json};

use crate::support::{Receiver, Relaybook, World};

/// What is invalid, the object, and the text that the error message must contain.
pub type Bad = (&'static str, Value, &'static str);

pub fn pipeline(spec: Value) -> Value {
    object("Pipeline", "p", spec)
}

pub fn notification(over: Value) -> Value {
    let mut spec = json!({
        "triggers": [{"type": "Deployed"}],
        "endpoint": {"url": "https://example.com/in"},
        "template": {"inline": {"body": "{}"}},
    });
    json_patch::merge(&mut spec, &over);
    object("Notification", "n", spec)
}

pub fn endpoint(over: Value) -> Value {
    notification(json!({"endpoint": over}))
}

fn retry(retry: Value) -> Value {
    notification(json!({"delivery": {"retry": retry}}))
}

pub fn object(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "relaybook.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn delivery_policy(policy: Value) -> Value {
    notification(json!({"delivery": policy}))
}

pub fn app() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})
}

pub fn environments(environments: Value) -> Value {
    pipeline(json!({"appRef": app(), "environments": environments}))
}

pub fn named(name: String, mut object: Value) -> Value {
    object["metadata"]["name"] = json!(name);
    object
}

pub fn delivery() -> Value {
    object(
        "Delivery",
        "d",
        json!({
            "notification": "n", "pipelineRef": {"namespace": "a", "name": "p", "uid": "u"},
            "subject": {"kind": "Target", "name": "dev/in-cluster/a", "environment": "dev"},
            "lane": "target/dev/in-cluster/a", "order": 1, "serial": 1, "type": "Deployed", "time": "2025-01-01T00:00:00Z",
            "from": {"status": "Current", "revision": "1"}, "to": {"status": "Current", "revision": "2"},
        }),
    )
}

pub fn delivery_with(status: Value) -> Value {
    let mut delivery = delivery();
    delivery["status"] = status;
    delivery
}

/// Returns a Pipeline with two environments and this promotion policy.
pub fn promoting(policy: Value) -> Value {
    let one = json!([{"namespace": "a"}]);
    let environments = json!([{"name": "dev", "targets": one}, {"name": "prod", "targets": one}]);
    pipeline(json!({"appRef": app(), "environments": environments, "promotion": policy}))
}

/// Returns a Promotion with these changes of its spec, under the name that the spec determines.
pub fn promotion(over: Value) -> Value {
    let mut spec = json!({
        "pipelineRef": {"name": "p", "uid": "u"}, "environment": "prod", "from": "dev", "revision": "2", "previous": "1",
        "occasion": 1,
    });
    json_patch::merge(&mut spec, &over);
    let name = serde_json::from_value(spec.clone()).map_or_else(|_| "p-prod".to_owned(), |spec| names::name(&spec));
    object("Promotion", &name, spec)
}

/// Returns a pipeline that promotes by a commit to a repository with these changes.
pub fn by_commit(over: Value) -> Value {
    let mut of = json!({"url": "https://git.example.com/acme/deploy.git"});
    json_patch::merge(&mut of, &over);
    promoting(json!({"strategy": {"commit": of}}))
}

/// Returns a pipeline that promotes by a pull request in a repository with these changes.
pub fn by_pull_request(over: Value) -> Value {
    let mut of = json!({"type": "gitea", "url": "https://git.example.com/acme/deploy.git"});
    json_patch::merge(&mut of, &over);
    promoting(json!({"strategy": {"pullRequest": of}}))
}

fn bad_repositories() -> Vec<Bad> {
    let (url, one) = ("https://git.example.com/acme/deploy.git", "set exactly one strategy");
    let strategies = |other: Value| {
        let mut strategy = json!({"commit": {"url": url}});
        json_patch::merge(&mut strategy, &other);
        promoting(json!({"strategy": strategy}))
    };
    let retry = |retry: Value| promoting(json!({"strategy": {"commit": {"url": url}}, "retry": retry}));
    vec![
        ("two strategies", strategies(json!({"notification": {}})), one),
        ("a commit and a pull request", strategies(json!({"pullRequest": {"type": "gitea", "url": url}})), one),
        (
            "a repository without a URL",
            by_commit(json!({"url": null})),
            "spec.promotion.strategy.commit.url: Required value",
        ),
        ("a repository over SSH", by_commit(json!({"url": "ssh://git@git.example.com/acme/deploy"})), "should match"),
        ("a repository with user info", by_commit(json!({"url": "https://me:pw@git.example.com/a/b"})), "should match"),
        ("a pull request at no forge", by_pull_request(json!({"type": null})), "type: Required value"),
        ("an unknown forge", by_pull_request(json!({"type": "codeberg"})), "supported values: \"gitea\", \"github\""),
        ("too many labels", by_pull_request(json!({"labels": vec!["a"; 11]})), "must have at most 10 items"),
        ("checks that are too often", by_pull_request(json!({"interval": "1s"})), "at least 10s and at most 1h"),
        ("checks in words", by_pull_request(json!({"interval": "often"})), "interval is a duration such as 1m"),
        ("an author with a line break", by_commit(json!({"author": {"name": "a\nb", "email": "a@b"}})), "should match"),
        ("an author without an address", by_commit(json!({"author": {"name": "a", "email": "a"}})), "email"),
        ("a first attempt in words", retry(json!({"initial": "soon"})), "durations such as 10s or 24h"),
        ("attempts that are too long", retry(json!({"maxAge": "169h"})), "at least 1s and at most 168h"),
    ]
}

fn bad_promotions() -> Vec<Bad> {
    let with = |changes: Value| {
        let mut policy = json!({"strategy": {"notification": {}}});
        json_patch::merge(&mut policy, &changes);
        promoting(policy)
    };
    let one = json!([{"namespace": "a"}]);
    vec![
        (
            "promotion to the first environment",
            environments(json!([{"name": "dev", "targets": one, "promotion": {}}, {"name": "prod", "targets": one}])),
            "remove environments[0].promotion",
        ),
        ("a strategy without a name", promoting(json!({"strategy": {}})), "set exactly one strategy: notification"),
        (
            "an unknown strategy",
            with(json!({"strategy": {"carrierPigeon": {}}})),
            "unknown field \"spec.promotion.strategy.carrierPigeon\"",
        ),
        ("a soak time in words", with(json!({"after": "a while"})), "durations such as 30m or 24h"),
        ("a soak time that is too long", with(json!({"after": "169h"})), "after must be at most 168h"),
        ("a promotion timeout that is too short", with(json!({"timeout": "1s"})), "at least 1m and at most 168h"),
        ("a promotion timeout that is too long", with(json!({"timeout": "200h"})), "at least 1m and at most 168h"),
        ("promotions that are kept too short", with(json!({"retain": {"maxAge": "1s"}})), "at least 1m and at most 87600h"),
        ("no promotions that are kept", with(json!({"retain": {"perEnvironment": 0}})), "greater than or equal to 1"),
        ("a promotion that is approved", promotion(json!({"approved": true})), "cannot be approved when it is created"),
        ("a promotion with a request of 0", promotion(json!({"request": 0})), "greater than or equal to 1"),
        ("a promotion without an occasion", promotion(json!({"occasion": null})), "spec.occasion: Required value"),
        ("a promotion of no revision", promotion(json!({"revision": ""})), "at least 1 chars long"),
    ]
}

fn bad_pipelines() -> Vec<Bad> {
    let one = json!([{"namespace": "a"}]);
    vec![
        (
            "an environment twice",
            environments(json!([{"name": "dev", "targets": one}, {"name": "dev", "targets": one}])),
            "Duplicate value",
        ),
        ("no environments", environments(json!([])), "should have at least 1 items"),
        ("no targets", environments(json!([{"name": "dev", "targets": []}])), "set targets or targetsFrom"),
        (
            "an environment that is not a valid label",
            environments(json!([{"name": "Dev_1", "targets": one}])),
            "should match",
        ),
        ("an invalid namespace", environments(json!([{"name": "dev", "targets": [{"namespace": "A/b"}]}])), "should match"),
        ("no appRef", pipeline(json!({"environments": [{"name": "dev", "targets": one}]})), "set appRef"),
        (
            "a long name",
            named("p".repeat(64), environments(json!([{"name": "dev", "targets": one}]))),
            "at most 63 characters",
        ),
        (
            "an unknown field",
            environments(json!([{"name": "dev", "target": one, "targets": one}])),
            "unknown field \"spec.environments[0].target\"",
        ),
    ]
}

/// Returns a pipeline whose hook for looks has the keys `looks`. `approvals`: the Secret of the pipeline, and that of its second environment.
fn hooked(approvals: [Option<&str>; 2]) -> Value {
    let one = json!([{"namespace": "a"}]);
    let mut spec = json!({
        "appRef": app(), "hooks": {"secretRef": {"name": "looks"}},
        "environments": [{"name": "dev", "targets": one}, {"name": "prod", "targets": one}],
    });
    for (at, name) in ["", "/environments/1"].into_iter().zip(approvals) {
        if let Some(name) = name {
            let policy = json!({"strategy": {"notification": {}, "secretRef": {"name": name}}});
            spec.pointer_mut(at).expect("it is there")["promotion"] = policy;
        }
    }
    pipeline(spec)
}

fn bad_hooks() -> Vec<Bad> {
    let words = "must not have the same secretRef";
    let mut nameless = hooked([None, None]);
    nameless["spec"]["hooks"] = json!({});
    vec![
        ("one Secret for looks and approvals", hooked([Some("looks"), None]), words),
        ("one Secret for looks and approvals of an environment", hooked([Some("others"), Some("looks")]), words),
        ("hooks without a Secret", nameless, "secretRef"),
        ("the name of a Secret that cannot be one", hooked([Some("A/b"), None]), "should match"),
    ]
}

fn bad_clients() -> Vec<Bad> {
    vec![
        ("a client without a tokenUrl", endpoint(json!({"auth": {"oauth2": {"secretRef": {"name": "s"}}}})), "tokenUrl"),
        (
            "a tokenUrl that is a template",
            endpoint(json!({"auth": {"oauth2": {"secretRef": {"name": "s"}, "tokenUrl": "https://{{a}}"}}})),
            "must be literal",
        ),
        (
            "a parameter that Relaybook sets",
            endpoint(json!({"auth": {"oauth2": {
                "secretRef": {"name": "s"}, "tokenUrl": "https://a.net", "parameters": {"grant_type": "password"},
            }}})),
            "are set by Relaybook",
        ),
        (
            "a client with nothing",
            endpoint(json!({"auth": {"oauth2": {"tokenUrl": "https://a.net"}}})),
            "set exactly one of secretRef and",
        ),
        (
            "a client with an audience of two words",
            endpoint(json!({"auth": {"oauth2": {
                "tokenUrl": "https://a.net", "serviceAccount": {"name": "a", "audience": "b c"},
            }}})),
            "audience",
        ),
        (
            "a ServiceAccount of another namespace",
            endpoint(json!({"auth": {"oauth2": {
                "tokenUrl": "https://a.net", "serviceAccount": {"name": "../../team-b/serviceaccounts/a", "audience": "b"},
            }}})),
            "should match",
        ),
        (
            "a place for a secret that there is not",
            endpoint(json!({"auth": {"oauth2": {
                "tokenUrl": "https://a.net", "serviceAccount": {"name": "a", "audience": "b"}, "clientAuthentication": "Body",
            }}})),
            "clientAuthentication is only for secretRef",
        ),
        (
            "an ID beside a Secret",
            endpoint(
                json!({"auth": {"oauth2": {"tokenUrl": "https://a.net", "secretRef": {"name": "s"}, "clientId": "7"}}}),
            ),
            "clientId is only for serviceAccount",
        ),
    ]
}

fn bad_endpoints() -> Vec<Bad> {
    let secret = json!({"name": "s", "key": "k"});
    let both = json!({"basic": {"secretRef": {"name": "s"}}, "token": {"secretKeyRef": secret}});
    vec![
        ("user info", endpoint(json!({"url": "https://me:pw@example.com/"})), "auth.basic or auth.token"),
        (
            "a host that is a template",
            endpoint(json!({"url": "https://{{environment}}.example.com/"})),
            "must be literal; templates are allowed only in path and query",
        ),
        ("another scheme", endpoint(json!({"url": "ftp://example.com/"})), "must begin with https:// or http://"),
        ("no scheme", endpoint(json!({"url": "example.com/in"})), "must begin with https:// or http://"),
        ("no host", endpoint(json!({"url": "https:///in"})), "must name a host"),
        ("nothing but a scheme", endpoint(json!({"url": "https://"})), "must name a host"),
        ("url and urlFrom", endpoint(json!({"urlFrom": {"secretKeyRef": secret}})), "set url or urlFrom, not both"),
        ("basic and token", endpoint(json!({"auth": both})), "set exactly one of basic, token, githubApp and oauth2"),
        ("neither basic nor token", endpoint(json!({"auth": {}})), "set exactly one of basic, token, githubApp and oauth2"),
        (
            "a glob of no repository",
            endpoint(json!({"auth": {"githubApp": {"secretRef": {"name": "s"}, "repositories": ["acme"]}}})),
            "each one is a glob of OWNER/NAME",
        ),
        (
            "an unknown level of a permission",
            endpoint(json!({"auth": {"githubApp": {"secretRef": {"name": "s"}, "permissions": {"statuses": "all"}}}})),
            "supported values: \"read\", \"write\", \"admin\"",
        ),
        (
            "a permission that is none",
            endpoint(json!({"auth": {"githubApp": {"secretRef": {"name": "s"}, "permissions": {"Statuses": "read"}}}})),
            "consist of small letters and underscores",
        ),
        ("a method without a body", endpoint(json!({"method": "GET"})), "supported values: \"POST\", \"PUT\", \"PATCH\""),
        ("a timeout over 60s", endpoint(json!({"timeout": "61s"})), "from 100ms to 60s"),
        ("a timeout of zero", endpoint(json!({"timeout": "0s"})), "from 100ms to 60s"),
        ("a timeout without a unit", endpoint(json!({"timeout": "15"})), "such as 15s"),
        ("a timeout that is negative", endpoint(json!({"timeout": "-1s"})), "such as 15s"),
        ("a timeout in words", endpoint(json!({"timeout": "soon"})), "such as 15s"),
        ("a connectTimeout over 60s", endpoint(json!({"connectTimeout": "2m"})), "from 100ms to 60s"),
        (
            "a reserved header",
            endpoint(json!({"headers": {"Content-Type": "text/plain"}})),
            "the template determines the content type",
        ),
        ("a header that Relaybook sets", endpoint(json!({"headers": {"webhook-id": "1"}})), "are set by Relaybook"),
        ("an invalid header name", endpoint(json!({"headers": {"X Team": "a"}})), "letters, digits and dashes"),
        (
            "an invalid header name for a token",
            endpoint(json!({"auth": {"token": {"secretKeyRef": secret, "header": "X:Y"}}})),
            "should match",
        ),
        ("a hop-by-hop header", endpoint(json!({"headers": {"Upgrade": "h2c"}})), "are set by Relaybook"),
        (
            "a token in a header that Relaybook sets",
            endpoint(json!({"auth": {"token": {"secretKeyRef": secret, "header": "Transfer-Encoding"}}})),
            "use another name, such as X-Token",
        ),
        (
            "a header for Standard Webhooks",
            endpoint(json!({"signing": {"secretRef": {"name": "s"}, "header": "X-Signature"}})),
            "header is only for the scheme BodyHex",
        ),
        (
            "a signature in a header that Relaybook sets",
            endpoint(json!({"signing": {"secretRef": {"name": "s"}, "scheme": "BodyHex", "header": "Host"}})),
            "use another name, such as X-Signature",
        ),
        (
            "an unknown scheme of signatures",
            endpoint(json!({"signing": {"secretRef": {"name": "s"}, "scheme": "Hmac"}})),
            "supported values: \"StandardWebhooks\", \"BodyHex\"",
        ),
        ("headersFrom without a Secret", endpoint(json!({"headersFrom": {}})), "secretRef"),
        ("an unknown field", endpoint(json!({"header": {}})), "unknown field \"spec.endpoint.header\""),
    ]
}

fn bad_notifications() -> Vec<Bad> {
    vec![
        (
            "an unknown trigger type",
            notification(json!({"triggers": [{"type": "Exploded"}]})),
            "supported values: \"Added\", \"Deployed\"",
        ),
        (
            "an invalid glob",
            notification(json!({"triggers": [{"type": "Failed", "environments": ["prod,dev"]}]})),
            "should match",
        ),
        (
            "a trigger with an empty list of environments",
            notification(json!({"triggers": [{"type": "Failed", "environments": []}]})),
            "should have at least 1 items",
        ),
        (
            "a CA without a source",
            endpoint(json!({"tls": {"caFrom": {}}})),
            "set exactly one of configMapKeyRef and secretKeyRef",
        ),
        (
            "caFrom and insecureSkipVerify",
            endpoint(json!({"tls": {"caFrom": {"secretKeyRef": {"name": "a", "key": "b"}}, "insecureSkipVerify": true}})),
            "set only one of them",
        ),
        (
            "two templates",
            notification(json!({"template": {"builtin": "slack"}})),
            "set only one of builtin, inline and configMapKeyRef",
        ),
        (
            "a template in two places",
            notification(json!({"template": {"configMapKeyRef": {"name": "a", "key": "b"}}})),
            "set only one of builtin, inline and configMapKeyRef",
        ),
        ("an unknown built-in", notification(json!({"template": {"inline": null, "builtin": "slak"}})), "slak"),
        (
            "an invalid parameter name",
            notification(json!({"template": {"parameters": {"a-b": "c"}}})),
            "letters, digits and underscores",
        ),
        ("an invalid content type", notification(json!({"template": {"inline": {"contentType": "json"}}})), "should match"),
        (
            "initial over max",
            retry(json!({"initial": "10s", "max": "5s"})),
            "initial (default 5s) must not be greater than max (default 10m)",
        ),
        (
            "max under the default of initial",
            retry(json!({"max": "1s"})),
            "initial (default 5s) must not be greater than max (default 10m)",
        ),
        (
            "an unknown ordering",
            delivery_policy(json!({"ordering": "Cluster"})),
            "supported values: \"Target\", \"Pipeline\"",
        ),
        ("a rate of zero", delivery_policy(json!({"rate": {"perSecond": 0}})), "greater than or equal to 1"),
        ("a rate without a number", delivery_policy(json!({"rate": {"burst": 5}})), "perSecond: Required value"),
        ("a perLane of zero", delivery_policy(json!({"retain": {"perLane": 0}})), "greater than or equal to 1"),
        ("a retain.maxAge that is too long", delivery_policy(json!({"retain": {"maxAge": "9000h"}})), "from 1m to 8760h"),
        ("a retain.maxAge in words", delivery_policy(json!({"retain": {"maxAge": "a week"}})), "such as 24h or 168h"),
        ("initial under 100ms", retry(json!({"initial": "1ms"})), "initial must be at least 100ms"),
        ("max over an hour", retry(json!({"max": "2h"})), "max at most 1h"),
        ("an initial delay in words", retry(json!({"initial": "a while"})), "durations such as 5s, 10m or 24h"),
        ("an initial delay in ISO 8601 format", retry(json!({"initial": "PT5S"})), "durations such as 5s, 10m or 24h"),
        ("a negative initial delay", retry(json!({"initial": "-5s"})), "durations such as 5s, 10m or 24h"),
        ("a maxAge that is too long", retry(json!({"maxAge": "1000h"})), "from 1s to 720h"),
        ("a maxAge without a unit", retry(json!({"maxAge": "3600"})), "durations such as 5s, 10m or 24h"),
        ("a long name", named("n".repeat(64), notification(json!({}))), "at most 63 characters"),
        ("an unknown field", notification(json!({"trigger": []})), "unknown field \"spec.trigger\""),
    ]
}

/// Returns the objects that must be rejected.
pub fn bad() -> Vec<Bad> {
    let pipelines = bad_pipelines().into_iter().chain(bad_promotions()).chain(bad_repositories()).chain(bad_hooks());
    pipelines.chain(bad_endpoints()).chain(bad_clients()).chain(bad_notifications()).collect()
}

/// Returns the objects that must be accepted.
pub fn good() -> Vec<(&'static str, Value)> {
    let one = json!([{"namespace": "a"}]);
    let secret = json!({"name": "s", "key": "k"});
    vec![
        ("the least pipeline", environments(json!([{"name": "dev", "targets": one}]))),
        (
            "targets that override",
            environments(json!([{"name": "dev", "targets": [
                {"namespace": "a", "appRef": {"name": "web-dev"}}, {"namespace": "a", "appRef": {"kind": "StatefulSet"}},
            ]}])),
        ),
        ("a name of 63 characters", named("p".repeat(63), environments(json!([{"name": "d".repeat(63), "targets": one}])))),
        ("the least commit", by_commit(json!({}))),
        ("the least pull request", by_pull_request(json!({}))),
        ("a repository in the cluster", by_commit(json!({"url": "http://gitea.git.svc:3000/acme/deploy"}))),
        ("a repository over http", by_commit(json!({"url": "http://git.example.com/acme/deploy"}))),
        ("a URL that is no repository", by_pull_request(json!({"url": "https://git.example.com/deploy"}))),
        ("a path upwards", by_pull_request(json!({"paths": ["../etc"]}))),
        ("a branch with a space", by_commit(json!({"branch": "a b"}))),
        ("a title with an unknown field", by_pull_request(json!({"title": "{{promotion.tag}}"}))),
        ("hooks with two Secrets", hooked([Some("approvals"), Some("of-prod")])),
        ("many targets", environments(json!([{"name": "dev", "targets": vec![json!({"namespace": "a"}); 256]}]))),
        ("the least notification", object("Notification", "n", json!({}))),
        ("no triggers", notification(json!({"triggers": []}))),
        ("a template that a layer brings", notification(json!({"template": {"inline": null, "parameters": {"a": "b"}}}))),
        ("globs", notification(json!({"triggers": [{"type": "Failed", "environments": ["prod", "staging-*", "dev-?"]}]}))),
        (
            "a selector",
            notification(json!({"pipelineSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}})),
        ),
        ("templates in path and query", endpoint(json!({"url": "https://example.com:8443/{{environment}}?r={{revision}}"}))),
        ("an at sign in the path", endpoint(json!({"url": "https://example.com/@{{environment}}"}))),
        ("a literal IPv6 address", endpoint(json!({"url": "http://[2001:db8::1]:8080/in"}))),
        ("a URL from a Secret", endpoint(json!({"url": null, "urlFrom": {"secretKeyRef": secret}}))),
        ("a token", endpoint(json!({"auth": {"token": {"secretKeyRef": secret, "header": "X-Token", "scheme": ""}}}))),
        ("basic authentication", endpoint(json!({"auth": {"basic": {"secretRef": {"name": "s"}}}, "method": "PUT"}))),
        (
            "a client without a secret",
            endpoint(json!({"auth": {"oauth2": {
                "tokenUrl": "https://a.net/token", "serviceAccount": {"name": "a", "audience": "api://x"}, "clientId": "7",
            }}})),
        ),
        ("the longest timeout", endpoint(json!({"timeout": "1m", "connectTimeout": "500ms"}))),
        ("headers", endpoint(json!({"headers": {"X-Team": "{{pipeline.name}}", "Accept": "application/json"}}))),
        (
            "a content type with a charset",
            notification(json!({"template": {"inline": {"contentType": "text/plain; charset=utf-8"}}})),
        ),
        ("a retry schedule", retry(json!({"initial": "100ms", "max": "1h", "maxAge": "720h"}))),
        ("the least promotion policy", promoting(json!({"strategy": {"notification": {}}}))),
        ("a promotion policy without a strategy", promoting(json!({}))),
        (
            "a whole promotion policy",
            promoting(json!({
                "manual": true, "after": "30m", "suspend": true, "timeout": "24h", "strategy": {"notification": {}},
                "retain": {"perEnvironment": 100, "maxAge": "87600h"},
            })),
        ),
        (
            "an environment with its own promotion policy",
            environments(json!([{"name": "dev", "targets": one}, {"name": "prod", "targets": one, "promotion": {
                "manual": true, "strategy": {"notification": {}},
            }}])),
        ),
        ("a promotion", promotion(json!({}))),
        ("a promotion that a person requests", promotion(json!({"request": 2, "previous": null}))),
        ("a delivery", delivery()),
        ("a delivery with its outcome", delivery_with(json!({"outcome": "Delivered", "attempts": 1, "statusCode": 200}))),
    ]
}

#[tokio::test]
async fn an_incomplete_notification_is_accepted_and_shows_what_is_missing() {
    let world = World::new("validation-lacks").await;
    let receiver = Receiver::start();
    let lacks = [
        ("template", json!({"template": {"inline": null, "parameters": {"a": "b"}}}), "spec.template"),
        ("triggers", json!({"triggers": null}), "spec.triggers"),
        ("endpoint", json!({"endpoint": null}), "spec.endpoint"),
        ("url", json!({"endpoint": {"url": null}}), "spec.endpoint.url"),
    ];
    for (name, over, _) in &lacks {
        world.notification(name, &receiver, over.clone()).await;
    }
    let _relaybook = Relaybook::start(&world).await;
    for (name, _, field) in lacks {
        let ready = world.condition(name, "Ready", |c| c.status == ConditionStatus::False).await;
        assert_eq!(ready.reason, "Incomplete", "{name}");
        assert!(ready.message.contains(field), "{name}: {}", ready.message);
    }
}

#[tokio::test]
async fn the_spec_of_a_delivery_is_required_and_immutable() {
    let world = World::new("validation-delivery").await;
    let mut bare = delivery();
    bare.as_object_mut().unwrap().remove("spec");
    let refused = create(&world, &bare, true).await.unwrap_err();
    assert!(refused.contains("spec: Required value"), "{refused}");

    let mut made = create(&world, &delivery(), false).await.unwrap();
    for (pointer, value) in [("/spec/to/revision", json!("3")), ("/spec/coalesced", json!(true)), ("/spec/serial", json!(2))]
    {
        let mut edited = made.clone();
        set(&mut edited, pointer, value);
        let refused = send(&world.client, "PUT", &path(&world, &edited, "/d?dryRun=All"), &edited).await.unwrap_err();
        assert!(refused.contains("cannot be edited; delete the object to cancel it"), "{pointer}: {refused}");
    }
    made["metadata"]["annotations"] = json!({"note": "seen"});
    send(&world.client, "PUT", &path(&world, &made, "/d?dryRun=All"), &made).await.unwrap();
}

#[tokio::test]
async fn only_the_approval_of_a_promotion_can_be_edited() {
    let world = World::new("validation-promotion").await;
    let made = create(&world, &promotion(json!({})), false).await.unwrap();
    let name = made["metadata"]["name"].as_str().unwrap().to_owned();
    let edit = async |of: &Value, changes: Value, rest: &str| {
        let mut edited = of.clone();
        json_patch::merge(&mut edited, &changes);
        send(&world.client, "PUT", &path(&world, &edited, &format!("/{name}{rest}")), &edited).await
    };
    let edited = "only spec.approved of a promotion can be edited; to promote another revision, use relaybook promote";
    for changes in [
        json!({"revision": "3"}),
        json!({"revision": "3", "approved": true}),
        json!({"occasion": 2}),
        json!({"request": 1}),
        json!({"previous": null}),
        json!({"from": "test"}),
        json!({"environment": "test"}),
        json!({"pipelineRef": {"name": "q"}}),
    ] {
        let refused = edit(&made, json!({"spec": changes}), "?dryRun=All").await.unwrap_err();
        assert!(refused.contains(edited), "{changes}: {refused}");
    }
    edit(&made, json!({"metadata": {"annotations": {"relaybook.dev/retry": "1"}}}), "?dryRun=All").await.unwrap();
    let approved = edit(&made, json!({"spec": {"approved": true}}), "").await.unwrap();
    for changes in [json!({"approved": false}), json!({"approved": null})] {
        let refused = edit(&approved, json!({"spec": changes}), "?dryRun=All").await.unwrap_err();
        assert!(refused.contains("an approval cannot be taken back; delete the object"), "{changes}: {refused}");
    }
    // The status is a subresource, so a write of the object does not change it.
    let with_status = edit(&approved, json!({"status": {"phase": "Finished"}}), "?dryRun=All").await.unwrap();
    assert!(with_status.get("status").is_none(), "{with_status}");
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[key] = value;
}

/// Creates an object without its nulls. Like `kubectl apply`, rejects unknown fields.
async fn create(world: &World, object: &Value, dry: bool) -> Result<Value, String> {
    let mut object = object.clone();
    prune(&mut object);
    post(world, &object, dry).await
}

/// Creates an object as it is, with its nulls. Rejects unknown fields.
pub async fn post(world: &World, object: &Value, dry: bool) -> Result<Value, String> {
    let dry = if dry { "&dryRun=All" } else { "" };
    send(&world.client, "POST", &path(world, object, &format!("?fieldValidation=Strict{dry}")), object).await
}

/// Removes all nulls. A merge patch removes them, but an object in a table can contain some.
pub fn prune(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, v| !v.is_null());
        map.values_mut().for_each(prune);
    }
}

fn path(world: &World, object: &Value, rest: &str) -> String {
    let plural = match object["kind"].as_str() {
        Some("Pipeline") => "pipelines",
        Some("Notification") => "notifications",
        Some("Promotion") => "promotions",
        _ => "deliveries",
    };
    format!("/apis/relaybook.dev/v1alpha1/namespaces/{}/{plural}{rest}", world.ns)
}

async fn send(client: &Client, method: &str, path: &str, object: &Value) -> Result<Value, String> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(object).unwrap())
        .unwrap();
    client.request(request).await.map_err(|e| e.to_string())
}
