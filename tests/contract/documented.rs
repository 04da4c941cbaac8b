//! Schemas of receivers that document their requests, but publish no schema. They are written from the linked pages.
//!
//! Out: `OpenAPI` documents, which the same code reads as the published ones.

use serde_json::{Value, json};

/// <https://docs.gitlab.com/api/commits/#set-commit-pipeline-status>
pub fn gitlab_status() -> Value {
    let text = json!({"type": "string", "maxLength": 255});
    let properties = json!({
        "state": {"enum": ["pending", "running", "success", "failed", "canceled", "skipped"]},
        "ref": {"type": "string", "minLength": 1},
        "name": text,
        "target_url": text,
        "description": text,
        "coverage": {"type": "number"},
        "pipeline_id": {"type": "integer"},
    });
    post("/api/v4/projects/{id}/statuses/{sha}", &[], &properties, &["state"])
}

/// <https://docs.gitlab.com/api/deployments/#create-a-deployment>
pub fn gitlab_deployment() -> Value {
    let text = json!({"type": "string", "minLength": 1});
    let properties = json!({
        "environment": {"type": "string", "minLength": 1, "maxLength": 255},
        "sha": text,
        "ref": text,
        "tag": {"type": "boolean"},
        "status": gitlab_deployment_states(),
    });
    let required = ["environment", "sha", "ref", "tag", "status"];
    post("/api/v4/projects/{id}/deployments", &[], &properties, &required)
}

/// <https://docs.gitlab.com/api/deployments/#update-a-deployment>
pub fn gitlab_deployment_status() -> Value {
    let properties = json!({"status": gitlab_deployment_states()});
    operation("put", "/api/v4/projects/{id}/deployments/{deployment_id}", &[], &properties, &["status"])
}

fn gitlab_deployment_states() -> Value {
    json!({"enum": ["running", "success", "failed", "canceled"]})
}

/// <https://docs.gitlab.com/api/notes/#create-new-merge-request-note>
pub fn gitlab_note() -> Value {
    let properties = json!({"body": {"type": "string", "minLength": 1, "maxLength": 1_000_000}});
    post("/api/v4/projects/{id}/merge_requests/{merge_request_iid}/notes", &[], &properties, &["body"])
}

/// <https://docs.gitlab.com/api/notes/#modify-existing-merge-request-note>
pub fn gitlab_note_update() -> Value {
    let properties = json!({"body": {"type": "string", "minLength": 1, "maxLength": 1_000_000}});
    let path = "/api/v4/projects/{id}/merge_requests/{merge_request_iid}/notes/{note_id}";
    operation("put", path, &[], &properties, &["body"])
}

/// <https://docs.gitlab.com/api/pipeline_triggers/#trigger-a-pipeline-with-a-token>
pub fn gitlab_trigger() -> Value {
    let properties = json!({
        "token": {"type": "string"},
        "ref": {"type": "string"},
        "variables": {"type": "object", "additionalProperties": {"type": "string"}},
        "inputs": {"type": "object", "additionalProperties": true},
    });
    post("/api/v4/projects/{id}/trigger/pipeline", &["ref", "token"], &properties, &[])
}

/// <https://developer.webex.com/docs/api/v1/messages/create-a-message>
pub fn webex() -> Value {
    let properties = json!({"roomId": {"type": "string", "minLength": 1}, "text": {"type": "string", "minLength": 1}});
    post("/v1/messages", &[], &properties, &["roomId", "text"])
}

/// <https://developers.mattermost.com/api-documentation/#/operations/CreatePost>, and for attachments
/// <https://developers.mattermost.com/integrate/reference/message-attachments/>
pub fn mattermost_bot() -> Value {
    let text = json!({"type": "string"});
    let field = record(&json!({"short": {"type": "boolean"}, "title": text, "value": text}), &["title", "value"]);
    let attachment = record(
        &json!({
            "fallback": text,
            "color": {"type": "string", "pattern": "^#[0-9a-f]{6}$"},
            "title": text,
            "title_link": text,
            "text": text,
            "fields": {"type": "array", "items": field},
            "footer": text,
        }),
        &["fallback"],
    );
    let props = record(&json!({"attachments": {"type": "array", "items": attachment}}), &[]);
    let properties =
        json!({"channel_id": {"type": "string", "minLength": 1}, "message": text, "root_id": text, "props": props});
    post("/api/v4/posts", &[], &properties, &["channel_id", "message"])
}

/// <https://docs.rocket.chat/docs/integrations>, and for attachments
/// <https://developer.rocket.chat/apidocs/post-message>
pub fn rocketchat() -> Value {
    let field = record(
        &json!({"short": {"type": "boolean"}, "title": {"type": "string"}, "value": {"type": "string"}}),
        &["title", "value"],
    );
    let attachment = record(
        &json!({
            "color": {"type": "string", "pattern": "^#[0-9a-f]{6}$"},
            "text": {"type": "string"},
            "title": {"type": "string"},
            "title_link": {"type": "string"},
            "fields": {"type": "array", "items": field},
        }),
        &[],
    );
    let properties = json!({
        "text": {"type": "string", "minLength": 1},
        "parseUrls": {"type": "boolean"},
        "channel": {"type": "string"},
        "alias": {"type": "string"},
        "roomId": {"type": "string"},
        "tmid": {"type": "string"},
        "attachments": {"type": "array", "items": attachment},
    });
    post("/hooks/{id}/{token}", &[], &properties, &[])
}

/// <https://spec.matrix.org/v1.16/client-server-api/#put_matrixclientv3roomsroomidsendeventtypetxnid>,
/// <https://spec.matrix.org/v1.16/client-server-api/#mnotice>
pub fn matrix() -> Value {
    let mentions =
        record(&json!({"room": {"type": "boolean"}, "user_ids": {"type": "array", "items": {"type": "string"}}}), &[]);
    let properties = json!({"msgtype": {"const": "m.notice"}, "body": {"type": "string"}, "m.mentions": mentions});
    let path = "/_matrix/client/v3/rooms/{roomId}/send/m.room.message/{txnId}";
    operation("put", path, &[], &properties, &["msgtype", "body"])
}

/// <https://docs.ntfy.sh/publish/#publish-as-json>
pub fn ntfy() -> Value {
    let properties = json!({
        "topic": {"type": "string", "pattern": "^[-_A-Za-z0-9]{1,64}$"},
        "title": {"type": "string"},
        "message": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "priority": {"enum": [1, 2, 3, 4, 5]},
        "click": {"type": "string", "format": "uri"},
    });
    post("/", &[], &properties, &["topic"])
}

/// <https://docs.opsgenie.com/docs/alert-api#create-alert>
pub fn opsgenie_alert() -> Value {
    let text = |most: u32| json!({"type": "string", "minLength": 1, "maxLength": most});
    let properties = json!({
        "message": text(130),
        "alias": text(512),
        "description": {"type": "string", "maxLength": 15_000},
        "tags": {"type": "array", "maxItems": 20, "items": text(50)},
        "details": {"type": "object", "additionalProperties": {"type": "string"}},
        "entity": text(512),
        "source": text(100),
        "priority": {"enum": ["P1", "P2", "P3", "P4", "P5"]},
    });
    post("/v2/alerts", &["identifierType"], &properties, &["message"])
}

/// <https://docs.opsgenie.com/docs/alert-api#close-alert>, and the same for a note
pub fn opsgenie_end(path: &str) -> Value {
    let properties = json!({
        "note": {"type": "string", "minLength": 1, "maxLength": 25_000},
        "source": {"type": "string", "maxLength": 100},
    });
    post(path, &["identifierType"], &properties, &["note"])
}

/// <https://grafana.com/docs/grafana/latest/developers/http_api/annotations/#create-annotation>
pub fn grafana() -> Value {
    let properties = json!({
        "dashboardUID": {"type": "string", "minLength": 1},
        "panelId": {"type": "integer"},
        "time": {"type": "integer"},
        "timeEnd": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 100}},
        "text": {"type": "string", "minLength": 1},
    });
    post("/api/annotations", &[], &properties, &["text"])
}

/// <https://developer.atlassian.com/server/bitbucket/how-tos/updating-build-status-for-commits/>
pub fn bitbucket_server() -> Value {
    let text = |most: u32| json!({"type": "string", "minLength": 1, "maxLength": most});
    let properties = json!({
        "key": text(255),
        "state": {"enum": ["INPROGRESS", "SUCCESSFUL", "FAILED", "CANCELLED", "UNKNOWN"]},
        "url": {"type": "string", "format": "uri", "maxLength": 450},
        "name": text(255),
        "description": text(255),
    });
    let path = "/rest/api/latest/projects/{projectKey}/repos/{repositorySlug}/commits/{commitId}/builds";
    post(path, &[], &properties, &["key", "state", "url"])
}

/// <https://open.larksuite.com/document/client-docs/bot-v3/add-custom-bot>, messages of the type `post`
pub fn lark() -> Value {
    let text = json!({"type": "string", "minLength": 1});
    let one = |tag: &str, more: &str| {
        let mut properties = json!({"tag": {"const": tag}, "text": text});
        if !more.is_empty() {
            properties[more] = json!({"type": "string", "format": "uri"});
        }
        record(&properties, &["tag", "text"])
    };
    let line = json!({"type": "array", "items": {"oneOf": [one("text", ""), one("a", "href")]}});
    let language = record(&json!({"title": text, "content": {"type": "array", "items": line}}), &["title", "content"]);
    let content = record(&json!({"post": record(&json!({"en_us": language}), &["en_us"])}), &["post"]);
    let properties = json!({"msg_type": {"const": "post"}, "content": content});
    post("/open-apis/bot/v2/hook/{id}", &[], &properties, &["msg_type", "content"])
}

/// <https://support.zoom.com/hc/en/article?id=zm_kb&sysparm_article=KB0067640>, with `format=full`
pub fn zoom() -> Value {
    let text = json!({"type": "string", "minLength": 1});
    let message = record(&json!({"type": {"const": "message"}, "text": text}), &["type", "text"]);
    let content = json!({
        "head": record(&json!({"text": text}), &["text"]),
        "body": {"type": "array", "minItems": 1, "items": message},
    });
    let properties = json!({"content": record(&content, &["head", "body"])});
    post("/chat/webhooks/incomingwebhook/{id}", &["format"], &properties, &["content"])
}

/// <https://docs.incident.io/api-reference/alert-events-v2/createhttp>
pub fn incident_io() -> Value {
    let text = json!({"type": "string", "minLength": 1});
    let properties = json!({
        "title": text,
        "status": {"enum": ["firing", "resolved"]},
        "deduplication_key": text,
        "description": text,
        "source_url": {"type": "string", "format": "uri"},
        "metadata": {"type": "object"},
    });
    post("/v2/alert_events/http/{alert_source_config_id}", &[], &properties, &["title", "status"])
}

/// <https://docs.newrelic.com/docs/data-apis/ingest-apis/event-api/introduction-event-api/>: an array of events, whose values are texts or
/// numbers
pub fn new_relic_events() -> Value {
    let value = json!({"type": ["string", "number"], "maxLength": 4096});
    let event = json!({
        "type": "object",
        "maxProperties": 254,
        "propertyNames": {"maxLength": 255},
        "properties": {"eventType": {"type": "string", "pattern": "^[A-Za-z0-9_: ]{1,254}$"}},
        "additionalProperties": value,
        "required": ["eventType"],
    });
    json!({"type": "array", "maxItems": 2000, "items": event})
}

/// <https://github.com/fluxcd/pkg/blob/main/apis/event/v1beta1/event.go>
pub fn flux_event() -> Value {
    let text = json!({"type": "string", "minLength": 1});
    let object = json!({"kind": text, "namespace": text, "name": text, "uid": text, "apiVersion": text});
    let properties = json!({
        "involvedObject": record(&object, &["kind", "namespace", "name", "apiVersion"]),
        "severity": {"enum": ["trace", "info", "error"]},
        "timestamp": {"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"},
        "message": {"type": "string", "minLength": 1, "maxLength": 39_000},
        "reason": text,
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
        "reportingController": text,
        "reportingInstance": {"type": "string"},
    });
    let required = ["involvedObject", "severity", "timestamp", "message", "reason", "reportingController"];
    record(&properties, &required)
}

/// <https://zulip.com/api/send-message>: a form
pub fn zulip() -> Value {
    let properties = json!({
        "type": {"enum": ["stream", "channel"]},
        "to": {"type": "string", "minLength": 1},
        "topic": {"type": "string", "minLength": 1, "maxLength": 60},
        "content": {"type": "string", "minLength": 1, "maxLength": 10_000},
    });
    record(&properties, &["type", "to", "topic", "content"])
}

/// <https://pushover.net/api>: a form, whose token and user are in the query
pub fn pushover() -> Value {
    let properties = json!({
        "title": {"type": "string", "maxLength": 250},
        "message": {"type": "string", "minLength": 1, "maxLength": 1024},
        "url": {"type": "string", "maxLength": 512},
        "url_title": {"type": "string", "maxLength": 100},
        "priority": {"enum": ["-2", "-1", "0", "1"]},
        "timestamp": {"type": "string", "pattern": "^[0-9]+$"},
    });
    record(&properties, &["message"])
}

fn post(path: &str, query: &[&str], properties: &Value, required: &[&str]) -> Value {
    operation("post", path, query, properties, required)
}

fn operation(method: &str, path: &str, query: &[&str], properties: &Value, required: &[&str]) -> Value {
    let parameters: Vec<Value> = query.iter().map(|name| json!({"in": "query", "name": name})).collect();
    let content = json!({"application/json": {"schema": record(properties, required)}});
    json!({"paths": {path: {method: {"parameters": parameters, "requestBody": {"content": content}}}}})
}

fn record(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}
