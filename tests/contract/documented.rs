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
