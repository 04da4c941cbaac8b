//! A built-in template as manifests, either unchanged or as an inline template that users can edit.
//!
//! In: a template, and what a person chose for it. Out: YAML.

use std::fmt::Write as _;

use relaybook_api::notification::{Method, Thread};
use relaybook_api::{GROUP, TransitionType};
use relaybook_settings::render::{BuiltinTemplate, CredentialsKind, Declared};

/// What a Notification with a built-in template has, beside the name of the template.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chosen<'a> {
    /// Name of the Notification.
    pub(crate) name: &'a str,
    /// Its namespace. `None`: the manifest has none.
    pub(crate) namespace: Option<&'a str>,
    /// The label that it selects Pipelines by. `None`: it applies to all Pipelines of its namespace.
    pub(crate) selector: Option<(&'a str, &'a str)>,
    /// The transitions that it reports.
    pub(crate) triggers: &'a [TransitionType],
    /// The URL. Not used if the URL of the receiver is secret.
    pub(crate) url: &'a str,
    /// The Secret with the credentials, and the key. Basic credentials have keys of their own.
    pub(crate) secret: (&'a str, &'a str),
    /// The parameters that are set, with their values.
    pub(crate) parameters: &'a [(&'a Declared, &'a str)],
}

/// Returns a Notification that sends the same requests as the built-in template, with all settings written out. Users can start from it. It
/// contains no Secret. Its comments give the title, the documentation of the receiver and the meaning of each parameter.
#[must_use]
pub fn starter(template: &BuiltinTemplate) -> String {
    let metadata = &template.metadata;
    let mut yaml = String::new();
    for line in [metadata.title.as_str(), metadata.documentation.as_str()] {
        let _ = writeln!(yaml, "# {line}");
    }
    yaml.push_str(&head(template.name.as_str(), None, &metadata.example.triggers));
    yaml.push_str("  endpoint:\n");
    let path = metadata.path.as_deref().unwrap_or_default();
    // Only the built-in template finds the parent. So users set its number.
    let at_parent = metadata.parent.as_ref().map(|parent| {
        let base = path.rsplit_once('/').map_or("", |(base, _)| base);
        format!("{base}/{}", parent.create.replace("{{remembered.number}}", "NUMBER"))
    });
    let url = example_url(template, at_parent.as_deref().unwrap_or(path));
    yaml.push_str(&address(template, &url, usual_secret(template)));
    if metadata.method != Method::Post {
        let _ = writeln!(yaml, "    method: {}", metadata.method.as_str());
    }
    if !metadata.headers.is_empty() {
        yaml.push_str("    headers:\n");
        for (name, value) in &metadata.headers {
            let _ = writeln!(yaml, "      {name}: {}", scalar(value));
        }
    }
    yaml.push_str(&auth(template, usual_secret(template), true));
    if let Some(success) = &metadata.success {
        let _ = writeln!(yaml, "    success: {}", scalar(success));
    }
    if let Some(thread) = &metadata.thread {
        if metadata.find.is_some() {
            yaml.push_str("    # Only the built-in template finds a message again, or the pull request of a commit, or sends a status after a creation.\n");
        }
        for line in self::thread(thread).lines() {
            let _ = writeln!(yaml, "    {line}");
        }
    }
    let _ = writeln!(yaml, "  template:\n    inline:\n      contentType: {}", scalar(&metadata.content_type));
    let chomp = if template.body.ends_with('\n') { "|" } else { "|-" };
    let _ = writeln!(yaml, "      body: {chomp}");
    for line in template.body.lines() {
        let _ = writeln!(yaml, "{}", format!("        {line}").trim_end());
    }
    let all: Vec<_> = metadata.parameters.iter().map(|p| (p, starting_value(p))).collect();
    yaml.push_str(&parameters(&all));
    yaml
}

/// Returns `endpoint.thread` as YAML.
pub(super) fn thread(thread: &Thread) -> String {
    let mut yaml = "thread:\n".to_owned();
    if let Some(key) = &thread.key {
        let _ = writeln!(yaml, "  key: {}", scalar(key));
    }
    let remember: Vec<_> =
        thread.remember.iter().flatten().map(|(name, value)| format!("{name}: {}", scalar(value))).collect();
    let update = thread.update.clone().unwrap_or_default();
    let _ = writeln!(yaml, "  remember: {{{}}}", remember.join(", "));
    if thread.update.is_some() {
        yaml.push_str("  update:\n");
    }
    let method = update.method.map(|method| method.as_str().to_owned());
    let fields = [("method", method), ("path", update.path), ("append", update.append), ("lost", update.lost)];
    for (name, value) in fields.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        let _ = writeln!(yaml, "    {name}: {}", scalar(&value));
    }
    if let Some(keep_open) = thread.keep_open {
        let _ = writeln!(yaml, "  keepOpen: {keep_open}");
    }
    yaml
}

/// Returns the default of a parameter, or its example if users must set it.
fn starting_value(parameter: &Declared) -> &str {
    let default = parameter.default.as_deref().filter(|_| !parameter.is_required());
    default.or(parameter.example.as_deref()).unwrap_or_default()
}

/// Returns the Secret that the example needs, if any, and a Notification that refers to the built-in template.
pub(super) fn example(template: &BuiltinTemplate) -> String {
    let metadata = &template.metadata;
    let required = metadata.parameters.iter().filter(|p| p.is_required());
    let required: Vec<_> = required.map(|p| (p, p.example.as_deref().unwrap_or_default())).collect();
    let chosen = Chosen {
        name: template.name.as_str(),
        namespace: None,
        selector: None,
        triggers: &metadata.example.triggers,
        url: &example_url(template, ""),
        secret: usual_secret(template),
        parameters: &required,
    };
    secret(template) + &chosen_notification(template, &chosen)
}

/// Returns a Notification that refers to the built-in template.
pub(crate) fn chosen_notification(template: &BuiltinTemplate, chosen: &Chosen<'_>) -> String {
    let mut yaml = head(chosen.name, chosen.namespace, chosen.triggers);
    if let Some((label, value)) = chosen.selector {
        let _ = writeln!(yaml, "  pipelineSelector: {{matchLabels: {{{label}: {}}}}}", scalar(value));
    }
    yaml.push_str("  endpoint:\n");
    yaml.push_str(&address(template, chosen.url, chosen.secret));
    yaml.push_str(&auth(template, chosen.secret, false));
    let _ = writeln!(yaml, "  template:\n    builtin: {}", template.name.as_str());
    yaml.push_str(&parameters(chosen.parameters));
    yaml
}

fn head(name: &str, namespace: Option<&str>, triggers: &[TransitionType]) -> String {
    let namespace = namespace.map_or_else(String::new, |namespace| format!("\n  namespace: {}", scalar(namespace)));
    let triggers: String = triggers.iter().flat_map(|t| ["    - type: ", t.as_str(), "\n"]).collect();
    format!(
        "apiVersion: {GROUP}/v1alpha1\nkind: Notification\nmetadata:\n  name: {}{namespace}\nspec:\n  triggers:\n{triggers}",
        scalar(name),
    )
}

/// Returns the URL of the example, with a path.
fn example_url(template: &BuiltinTemplate, path: &str) -> String {
    format!("{}{path}", template.metadata.example.url.trim_end_matches('/'))
}

/// Returns the address of the endpoint.
fn address(template: &BuiltinTemplate, url: &str, (name, key): (&str, &str)) -> String {
    if template.metadata.credentials.kind == CredentialsKind::Url {
        return format!("    urlFrom:\n      secretKeyRef: {{name: {}, key: {}}}\n", scalar(name), scalar(key));
    }
    format!("    url: {}\n", scalar(url))
}

/// Returns the references to credentials. `spelled_out`: with header and scheme, which the built-in template would set.
fn auth(template: &BuiltinTemplate, (name, key): (&str, &str), spelled_out: bool) -> String {
    let credentials = &template.metadata.credentials;
    let (name, key) = (scalar(name), scalar(key));
    match credentials.kind {
        CredentialsKind::Url | CredentialsKind::None => String::new(),
        CredentialsKind::Basic => format!("    auth:\n      basic:\n        secretRef: {{name: {name}}}\n"),
        CredentialsKind::Token => {
            let mut yaml = format!("    auth:\n      token:\n        secretKeyRef: {{name: {name}, key: {key}}}\n");
            for (field, value) in [("header", &credentials.header), ("scheme", &credentials.scheme)] {
                if let Some(value) = value.as_ref().filter(|_| spelled_out) {
                    let _ = writeln!(yaml, "        {field}: {}", scalar(value));
                }
            }
            yaml
        }
    }
}

fn secret(template: &BuiltinTemplate) -> String {
    let metadata = &template.metadata;
    let data = match metadata.credentials.kind {
        CredentialsKind::None => return String::new(),
        CredentialsKind::Url => format!("  url: {}\n", scalar(&metadata.example.url)),
        CredentialsKind::Token => "  token: \"…\"\n".to_owned(),
        CredentialsKind::Basic => "  username: \"…\"\n  password: \"…\"\n".to_owned(),
    };
    format!("apiVersion: v1\nkind: Secret\nmetadata:\n  name: {}\nstringData:\n{data}---\n", usual_secret(template).0)
}

/// Returns the Secret and the key that the documentation uses. The Secret has the name of the receiver.
pub(crate) fn usual_secret(template: &BuiltinTemplate) -> (&'static str, &'static str) {
    let name = template.name.as_str();
    let name = name.split_once('-').map_or(name, |(receiver, _)| receiver);
    (name, if template.metadata.credentials.kind == CredentialsKind::Url { "url" } else { "token" })
}

fn parameters(all: &[(&Declared, &str)]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut yaml = "    parameters:\n".to_owned();
    for (parameter, value) in all {
        let description = parameter.description.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(yaml, "      # {description}");
        let _ = writeln!(yaml, "      {}: {}", parameter.name, scalar(value));
    }
    yaml
}

/// Formats a text as a YAML scalar. It has no quotes if every parser reads it as the same text without them.
pub(crate) fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:;=+ {}@?&%".contains(c))
        && !["true", "false", "null", "yes", "no", "on", "off", "y", "n"].contains(&text.to_ascii_lowercase().as_str());
    if is_plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;

    use super::*;
    use crate::preview::{LayeredNotification, Manifests, Preview, previews};
    use relaybook_api::notification::Builtin;
    use relaybook_settings::config::{Given, Global};
    use relaybook_settings::render::{SampleContext, builtin};

    fn shown(yaml: &str, types: &[TransitionType]) -> Vec<Preview> {
        let mut manifests = Manifests::default();
        manifests.add("starter", yaml, "team-a").unwrap_or_else(|e| panic!("{e}\n{yaml}"));
        let notification = manifests.named(None).unwrap()[0];
        let context = SampleContext::sample((notification.name_any(), "team-a".to_owned()));
        previews(
            &LayeredNotification::without_pipeline(&Global::default(), notification),
            types,
            &Given::nothing(),
            &context,
        )
        .unwrap_or_else(|e| panic!("{e}\n{yaml}"))
    }

    #[test]
    fn a_starter_sends_the_same_requests_as_its_built_in_template() {
        for name in Builtin::ALL {
            let template = builtin(name);
            let types: Vec<_> = TransitionType::ALL.into_iter().filter(|t| template.metadata.reports(*t)).collect();
            let requests = |yaml: &str| shown(yaml, &types).iter().map(Preview::text).collect::<Vec<_>>();
            assert_eq!(requests(&starter(template)), requests(&example(template)), "{}", name.as_str());
        }
    }

    #[test]
    fn scalars_of_a_starter_are_read_back_as_written() {
        for text in
            ["a", "a b", "true", "1", "", "a: b", "a #b", "#a", "https://x/{{y}}?a=b", "{{a}}", "- a", "é", "a\nb", "N"]
        {
            let read: serde_json::Value = serde_saphyr::from_str(&format!("k: {}", scalar(text))).unwrap();
            assert_eq!(read["k"], text);
        }
    }
}
