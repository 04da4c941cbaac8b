use serde_json::{Value, json};

use super::*;
use crate::preview::starter::example;
use crate::preview::{Known, Manifests, starter};
use relaybook_api::notification::Builtin;
use relaybook_api::{Notification, ObjectName};
use relaybook_settings::config::Global;
use relaybook_settings::render::builtin;

/// The first lines of a message of each built-in template that is marked.
const FIRST_LINES: [(Builtin, &[&str]); 11] = [
    (Builtin::Slack, &["/text", "/blocks/0/text/text"]),
    (Builtin::Teams, &["/attachments/0/content/fallbackText", "/attachments/0/content/body/0/items/0/inlines/0/text"]),
    (Builtin::Mattermost, &["/attachments/0/fallback", "/attachments/0/title"]),
    (Builtin::Discord, &["/embeds/0/title"]),
    (Builtin::GoogleChat, &["/fallbackText", "/cardsV2/0/card/header/title"]),
    (Builtin::Webex, &["/text"]),
    (Builtin::Rocketchat, &["/text"]),
    (Builtin::Telegram, &["/text"]),
    (Builtin::Matrix, &["/body"]),
    (Builtin::Ntfy, &["/title"]),
    (Builtin::GithubIssueComment, &["/body"]),
];

fn pipeline() -> Pipeline {
    serde_json::from_value(json!({
        "apiVersion": "relaybook.dev/v1alpha1", "kind": "Pipeline", "metadata": {"name": "shop", "namespace": "team-a", "uid": "u"},
        "spec": {"appRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                 "environments": [{"name": "prod", "targets": [{"namespace": "x", "clusterRef": {"kind": "Secret", "name": "eu-1"}}]}]},
    }))
    .unwrap()
}

/// Returns the Notification in a YAML text.
fn parsed(yaml: &str) -> Notification {
    let mut manifests = Manifests::default();
    manifests.add("example", yaml, "team-a").unwrap();
    manifests.named(None).unwrap()[0].clone()
}

/// Returns the request of a test of a Notification. `edit` changes its spec first.
fn request(notification: &Notification, edit: impl FnOnce(&mut Value)) -> Result<TestRequest, PreviewError> {
    let mut notification = notification.clone();
    let mut spec = serde_json::to_value(&notification.spec).unwrap();
    edit(&mut spec);
    notification.spec = serde_json::from_value(spec).unwrap();
    let name = notification.name_any();
    let (global, config_map) = (Global::default(), ObjectName::new("n", "c"));
    let notifications = [notification];
    let known = Known {
        global: &global,
        config_map: &config_map,
        notifications: &notifications,
        cluster: "here",
        allow_http: false,
        egress: None,
    };
    test_request(&test_sample(&pipeline(), &known, &name, None)?, &Given::nothing())
}

fn only(type_: TransitionType) -> impl FnOnce(&mut Value) {
    move |spec| spec["triggers"] = json!([{"type": type_}])
}

/// The types that a built-in template reports, without promotions.
fn reported(name: Builtin) -> impl Iterator<Item = TransitionType> {
    let is_asked = move |type_: &TransitionType| {
        builtin(name).metadata.reports(*type_) && type_.family() != relaybook_api::delivery::Family::Promotion
    };
    TransitionType::ALL.into_iter().filter(is_asked)
}

#[test]
fn a_test_of_each_built_in_template_is_refused_or_says_in_its_first_line_what_it_is() {
    for name in Builtin::ALL {
        let notification = parsed(&example(builtin(name)));
        let lines = FIRST_LINES.iter().find(|(of, _)| *of == name).map(|(_, lines)| *lines);
        for type_ in reported(name) {
            let made = request(&notification, only(type_));
            let Some(lines) = lines else {
                let Err(refusal) = made else { panic!("{name:?} {type_:?} is not refused") };
                let is_such =
                    matches!(&refusal, PreviewError::Refused(TestRefusal::Builtin(_, of, _)) if *of == name.as_str());
                assert!(is_such, "{name:?} {type_:?}: {refusal}");
                continue;
            };
            let made = made.unwrap_or_else(|e| panic!("{name:?} {type_:?}: {e}"));
            assert_eq!(made.marked, Marked::Text(name));
            let sent: Value = serde_json::from_slice(&made.outgoing.body).unwrap();
            for line in lines {
                let text = sent.pointer(line).and_then(Value::as_str).unwrap_or_else(|| panic!("{name:?} {line}: {sent}"));
                assert!(text.lines().next().unwrap().contains("TEST: shop: "), "{name:?} {type_:?} {line}: {text}");
            }
            assert_eq!(made.preview.body, String::from_utf8_lossy(&made.outgoing.body), "what is confirmed is what is sent");
        }
    }
}

#[test]
fn a_test_is_marked_with_any_headline() {
    for (name, lines) in FIRST_LINES {
        let notification = parsed(&example(builtin(name)));
        for title in ["", "x".repeat(3000).as_str(), "Release"] {
            let made = request(&notification, |spec| {
                spec["template"]["parameters"]["title"] = title.into();
            });
            let made = made.unwrap_or_else(|e| panic!("{name:?}: {e}"));
            let sent: Value = serde_json::from_slice(&made.outgoing.body).unwrap();
            for line in lines {
                let text = sent.pointer(line).and_then(Value::as_str).unwrap();
                assert!(text.lines().next().unwrap().contains("TEST:"), "{name:?} {line}: {text}");
            }
        }
    }
    let long = request(&parsed(&example(builtin(Builtin::Slack))), |spec| {
        spec["template"]["parameters"] = json!({"title": "x".repeat(3000)});
    });
    let sent: Value = serde_json::from_slice(&long.unwrap().outgoing.body).unwrap();
    assert!(sent["blocks"][0]["text"]["text"].as_str().unwrap().chars().count() <= 150, "the limit of Slack: {sent}");
}

/// Users start from such copies, in which nothing names the built-in template any more.
#[test]
fn a_copy_of_a_template_with_effects_is_refused_by_its_url() {
    // Nobody can know what the receivers of events do.
    let unknown = [Builtin::Generic, Builtin::Cloudevents, Builtin::Cdevents];
    for name in Builtin::ALL {
        let notification = parsed(&starter(builtin(name)));
        for type_ in reported(name) {
            let made = request(&notification, only(type_)).unwrap_or_else(|e| panic!("{name:?} {type_:?}: {e}"));
            assert_eq!(made.marked, Marked::Header);
            let url = match &made.outgoing.destination {
                relaybook_egress::Destination::Url(url) => url.clone(),
                relaybook_egress::Destination::Secret(_) => {
                    builtin(name).metadata.example.url.replace(['<', '>'], "").parse().unwrap()
                }
            };
            let is_harmless = unknown.contains(&name) || FIRST_LINES.iter().any(|(of, _)| *of == name);
            match made.receiver(&url) {
                Ok(receiver) => {
                    assert!(is_harmless, "{name:?}: {url}");
                    assert_eq!(receiver, url.origin().ascii_serialization());
                }
                Err(refusal) => {
                    assert!(!is_harmless, "{name:?}: {url}");
                    assert!(matches!(refusal, TestRefusal::Alike(_, of, _) if of == name.as_str()), "{name:?}: {url}");
                }
            }
        }
    }
}

#[test]
fn a_test_has_an_id_of_its_own_and_shows_no_secret() {
    let yaml = "
apiVersion: relaybook.dev/v1alpha1
kind: Notification
metadata: {name: own}
spec:
  triggers: [{type: Deployed}]
  endpoint:
    url: https://in.example.com/{{id}}?key={{parameters.token}}
    headers: {Authorization: Bearer s3cr3t, Relaybook-Test: 'false'}
  template: {inline: {body: '{\"id\": \"{{id}}\", \"token\": \"{{parameters.token}}\"}'}, parameters: {token: s3cr3t}}
";
    let [one, other] = [(); 2].map(|()| request(&parsed(yaml), |_| {}).unwrap());
    assert_ne!(one.outgoing.id, other.outgoing.id);
    let sent: Value = serde_json::from_slice(&one.outgoing.body).unwrap();
    assert_eq!(sent["id"], one.outgoing.id.as_str());
    let text = one.preview.text();
    assert!(!text.contains("s3cr3t") && text.contains("relaybook-test: true"), "{text}");
    let tests: Vec<_> = one.outgoing.headers.iter().filter(|(name, _)| *name == TEST).collect();
    assert_eq!(tests.len(), 1);
    assert_eq!(tests[0].1, "true");
    assert_eq!((one.about.as_str(), one.outgoing.timeout <= LONGEST), ("prod/eu-1/x", true));
}
