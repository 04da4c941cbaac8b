//! Text from a cluster must not become a mention, a link, formatting or a command at the receiver.
//!
//! Each template is rendered with [`MARKUP`] in the reason, the message, the revision and, if there is one, the title. Then the
//! tests check the fields that the receiver interprets as markup: all markup in them must come from the template.

use relaybook_api::TransitionType;
use relaybook_api::notification::Builtin;
use relaybook_settings::render::builtin;
use serde_json::{Value, json};

use crate::awkward::{COMMIT, MARKUP};
use crate::json::{select, texts};
use crate::subject::{Parameters, Subject};

/// Renders the body with markup in every text.
fn body(builtin: Builtin) -> Value {
    marked(&Subject::example(builtin, Parameters::Messages))
}

/// The same for other parameters.
fn marked(subject: &Subject) -> Value {
    subject.body(TransitionType::Failed, |data| {
        MARKUP.clone_into(&mut data.reason);
        MARKUP.clone_into(&mut data.message);
        data.revision = format!("<@U1>/*b*/[x](e)@here@sha1:{COMMIT}");
    })
}

/// What a forge says is text of a stranger, too. In the lines of a user, it is escaped as a message of the cluster.
#[test]
fn text_of_a_forge_is_escaped_as_that_of_a_cluster() {
    let has_fields = |of: &Builtin| builtin(*of).metadata.parameters.iter().any(|declared| declared.name == "fields");
    for of in Builtin::ALL.into_iter().filter(has_fields) {
        let with = |fields: &str| {
            Subject::setting(of, &[("fields", fields)]).body(TransitionType::Failed, |data| {
                MARKUP.clone_into(&mut data.message);
                MARKUP.clone_into(&mut data.git.info.message);
                MARKUP.clone_into(&mut data.pull_request.title);
            })
        };
        let expected = with("Change: {{message}}");
        for fields in ["Change: {{git.message}}", "Change: {{pullRequest.title}}"] {
            assert_eq!(with(fields), expected, "{}", of.as_str());
        }
        assert!(expected.to_string().contains("Change"), "{}", of.as_str());
    }
}

/// Returns the texts at these pointers. Each pointer must match.
fn at(body: &Value, pointers: &[&str]) -> Vec<String> {
    let one = |pointer: &&str| -> Vec<String> {
        let found = select(body, pointer).into_iter().filter_map(|(_, value)| Some(value.as_str()?.to_owned()));
        let found: Vec<String> = found.collect();
        assert!(!found.is_empty(), "there is no {pointer} in {body:#}");
        found
    };
    pointers.iter().flat_map(one).collect()
}

/// Returns all objects in a value.
fn objects(value: &Value) -> Vec<&Value> {
    let below = select(value, "/*").into_iter().flat_map(|(_, child)| objects(child));
    std::iter::once(value).filter(|v| v.is_object()).chain(below).collect()
}

/// <https://docs.slack.dev/messaging/formatting-message-text/>: commands are written in angle brackets.
#[test]
fn slack_does_not_interpret_text() {
    let body = body(Builtin::Slack);
    let parsed = objects(&body).into_iter().filter(|o| o["type"] == "mrkdwn").filter_map(|o| o["text"].as_str());
    for text in parsed.chain(body["text"].as_str()) {
        assert!(!text.contains(['<', '>']), "{text}");
        let entities = text.split('&').skip(1).all(|rest| ["amp;", "lt;", "gt;"].iter().any(|e| rest.starts_with(e)));
        assert!(entities, "{text}");
        assert!(!text.contains("*b*") && !text.contains("_i_") && !text.contains("`c`"), "{text}");
    }
    assert!(body.get("parse").is_none() && body.get("link_names").is_none());
    let known = ["header", "rich_text"];
    for block in body["blocks"].as_array().unwrap() {
        assert!(known.contains(&block["type"].as_str().unwrap()), "a block that could read markup: {block}");
    }
}

/// `TextBlock` and facts interpret Markdown, `TextRun` does not; a mention requires an entity.
/// <https://learn.microsoft.com/en-us/microsoftteams/platform/task-modules-and-cards/cards/cards-format>
#[test]
fn teams_does_not_interpret_markdown() {
    let body = body(Builtin::Teams);
    for object in objects(&body) {
        assert!(object["type"] != "TextBlock" && object["type"] != "FactSet", "{object}");
        assert!(object.get("entities").is_none(), "{object}");
    }
    assert!(texts(&body).iter().any(|(at, text)| at.contains("/inlines/") && *text == MARKUP));
}

/// <https://discord.com/developers/docs/resources/message#allowed-mentions-object>
#[test]
fn discord_mentions_nobody() {
    let body = body(Builtin::Discord);
    assert_eq!(body["allowed_mentions"], json!({"parse": []}));
    let pointers = ["/embeds/0/title", "/embeds/0/description", "/embeds/0/fields/*/value"];
    assert_plain_markdown(&at(&body, &pointers));
}

#[test]
fn mattermost_does_not_interpret_markdown() {
    let body = body(Builtin::Mattermost);
    let pointers = ["/attachments/0/text", "/attachments/0/fields/*/value"];
    assert_plain_markdown(&at(&body, &pointers));
    // `text` and `pretext` are parsed for mentions.
    assert!(body.get("text").is_none() && body["attachments"][0].get("pretext").is_none());
}

#[test]
fn a_bot_of_mattermost_does_not_interpret_markdown() {
    let body = body(Builtin::MattermostBot);
    let pointers = ["/props/attachments/0/text", "/props/attachments/0/fields/*/value"];
    assert_plain_markdown(&at(&body, &pointers));
    assert_eq!((&body["message"], body["props"]["attachments"][0].get("pretext")), (&json!(""), None));
}

#[test]
fn rocketchat_does_not_interpret_markdown() {
    let pointers = ["/text", "/attachments/0/text", "/attachments/0/fields/*/value"];
    assert_plain_markdown(&at(&body(Builtin::Rocketchat), &pointers));
}

#[test]
fn a_github_comment_does_not_interpret_markdown() {
    let body = body(Builtin::GithubIssueComment);
    let labels = ["Target", "Revision", "Runs", "Status", "Reason", "Time"].map(|label| format!("- **{label}:** "));
    let own = labels.into_iter().chain(["### ".to_owned()]).collect::<Vec<_>>();
    let without = |line: &str| own.iter().find_map(|own| line.strip_prefix(own.as_str())).unwrap_or(line).to_owned();
    let lines = body["body"].as_str().unwrap().lines().filter(|line| !line.starts_with("<!-- relaybook "));
    assert_plain_markdown(&lines.map(without).collect::<Vec<_>>());
}

#[test]
fn a_github_check_run_does_not_interpret_markdown() {
    assert_plain_markdown(&at(&body(Builtin::GithubCheckRun), &["/output/summary"]));
}

/// Checks that every special character is escaped with a backslash, and that no letter or digit follows an `@` or a `#` at
/// the beginning of a word.
fn assert_plain_markdown(texts: &[String]) {
    for text in texts {
        let (mut escaped, mut previous, mut characters) = (false, ' ', text.chars().peekable());
        while let Some(character) = characters.next() {
            if "@#".contains(character) {
                let leads = characters.peek().is_some_and(|next| next.is_alphanumeric());
                assert!(previous.is_alphanumeric() || !leads, "{character} leads somewhere in {text}");
            } else {
                assert!(escaped || !"*_`~[]<>|".contains(character), "{character} means something in {text}");
            }
            (escaped, previous) = (character == '\\' && !escaped, character);
        }
    }
}

/// <https://core.telegram.org/bots/api#html-style>: Telegram refuses a text with other tags or entities.
#[test]
fn telegram_interprets_only_the_tags_of_the_template() {
    let body = body(Builtin::Telegram);
    assert_eq!(body["parse_mode"], "HTML");
    let text = body["text"].as_str().unwrap();
    let plain = without_tags(text, &["b", "code", "pre"]);
    assert!(plain.contains("&lt;!channel&gt;"), "{plain}");
    // In a title, these would be links; in `code` and `pre` they are not.
    let title = text.split("</b>").next().unwrap();
    for (at, sign) in title.match_indices(['@', '#', '/']) {
        let next = title[at + sign.len()..].chars().next();
        assert!(next.is_none_or(|c| !c.is_alphanumeric()), "{sign} leads to {next:?} in {title}");
    }
}

/// <https://zulip.com/help/format-your-message-using-markdown>: Zulip has no escapes, and interprets nothing in code.
#[test]
fn zulip_interprets_only_the_code_of_the_template() {
    let fields = "a`b: {{message}}\n``c`: {{reason}}";
    let with = |title: &str| marked(&Subject::setting(Builtin::Zulip, &[("title", title), ("fields", fields)]));
    for body in [body(Builtin::Zulip), with(""), with("{{#if (eq type \"\")}}x{{/if}}"), with("``{{message}}`")] {
        let (lines, block) = body["content"].as_str().unwrap().split_once("\n```text\n").unwrap();
        assert!(block.ends_with("\n```") && block.matches("```").count() == 1, "{block}");
        for line in lines.lines() {
            // What is outside of code is at the even places. Zulip reads two backquotes without a text between them as the start of code.
            let parts: Vec<&str> = line.split('`').collect();
            assert!(parts.len() % 2 == 1, "code that is not closed: {line}");
            assert!(parts.iter().skip(1).step_by(2).all(|code| !code.is_empty()), "code that is empty: {line}");
            let outside: String = parts.iter().step_by(2).copied().collect();
            let own = outside.replace("<time:", "").replace("Z>", "");
            assert!(!own.contains(['<', '>', '@', '#', '*', '_', '[', '|', '~', '$']), "{line}");
        }
    }
}

#[test]
fn google_chat_interprets_only_the_tags_of_the_template() {
    let body = body(Builtin::GoogleChat);
    assert!(body.get("text").is_none(), "a text has mentions");
    let pointers = [
        "/cardsV2/0/card/sections/*/widgets/*/decoratedText/text",
        "/cardsV2/0/card/sections/*/widgets/*/textParagraph/text",
    ];
    let plain: String = at(&body, &pointers).iter().map(|text| without_tags(text, &["font color=\"#cf222e\""])).collect();
    assert!(plain.contains("&lt;users/all&gt;"), "{plain}");
}

#[test]
fn grafana_interprets_only_the_tags_of_the_template() {
    let body = body(Builtin::GrafanaAnnotation);
    let plain = without_tags(&body["text"].as_str().unwrap().replace("<br>", "\n"), &[]);
    assert!(plain.contains("&lt;b&gt;"), "{plain}");
}

/// Removes the tags of a text. Only the tags in `own` are allowed, and they must be closed and nested. The text between them
/// must have no angle bracket, and no `&` that is not an entity.
fn without_tags(html: &str, own: &[&str]) -> String {
    let (mut plain, mut open) = (String::new(), Vec::new());
    let mut rest = html;
    while let Some((before, after)) = rest.split_once('<') {
        plain.push_str(before);
        let (tag, after) = after.split_once('>').unwrap_or_else(|| panic!("a tag without end: {html}"));
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "{html}");
        } else {
            assert!(own.contains(&tag), "<{tag}> is not of the template: {html}");
            open.push(tag.split(' ').next().unwrap_or(tag));
        }
        rest = after;
    }
    plain.push_str(rest);
    assert!(open.is_empty() && !plain.contains('>'), "{html}");
    for entity in plain.split('&').skip(1).map(|rest| rest.split(';').next().unwrap_or_default()) {
        assert!(["amp", "lt", "gt", "quot", "#39"].contains(&entity), "&{entity} in {html}");
    }
    plain
}

/// <https://docs.datadoghq.com/events/guides/new_events_sources/>: `@name` notifies, `%%%` begins Markdown.
#[test]
fn datadog_notifies_nobody() {
    for text in at(&body(Builtin::DatadogEvent), &["/title", "/text"]) {
        assert!(text.split('@').skip(1).all(|rest| rest.starts_with('\u{200b}')), "{text}");
        assert!(!text.starts_with("%%%"), "{text}");
    }
}

/// These receivers interpret no markup in the fields that the templates use. Fields with markup must not be present.
#[test]
fn plain_text_stays_plain() {
    let webex = body(Builtin::Webex);
    assert!(webex.get("markdown").is_none() && webex.get("html").is_none());
    let matrix = body(Builtin::Matrix);
    assert!(matrix.get("formatted_body").is_none() && matrix.get("format").is_none());
    assert_eq!((&matrix["msgtype"], &matrix["m.mentions"]), (&json!("m.notice"), &json!({})));
    assert!(body(Builtin::Ntfy).get("markdown").is_none());
    assert!(body(Builtin::Zoom).get("is_markdown_support").is_none());
    // In a post of Lark, a mention is an element of its own.
    let lark = body(Builtin::Lark);
    let tags: Vec<_> = objects(&lark).into_iter().filter_map(|element| element["tag"].as_str()).collect();
    assert!(!tags.is_empty() && tags.iter().all(|tag| ["text", "a"].contains(tag)), "{tags:?}");
}

/// <https://docs.gitlab.com/ci/variables/#prevent-cicd-variable-expansion>: `$$` is an escaped `$`.
#[test]
fn gitlab_expands_no_variables() {
    for text in at(&body(Builtin::GitlabPipelineTrigger), &["/variables/*"]) {
        assert!(!text.replace("$$", "").contains('$'), "{text}");
    }
}

/// An expression of GitHub Actions in a payload is only text: GitHub evaluates expressions in workflows only. So the payload
/// must arrive unchanged.
#[test]
fn github_receives_the_payload_unchanged() {
    assert_eq!(body(Builtin::GithubRepositoryDispatch)["client_payload"]["state"]["message"], MARKUP);
}
