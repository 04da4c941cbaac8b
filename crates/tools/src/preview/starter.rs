//! A built-in template as manifests, either unchanged or as an inline template that users can edit.

use std::fmt::Write as _;

use relaybook_api::GROUP;
use relaybook_api::notification::Method;
use relaybook_settings::render::{BuiltinTemplate, CredentialsKind, Declared};

/// Returns a Notification that sends the same requests as the built-in template, with all settings written out. Users can start from it. It
/// contains no Secret. Its comments give the title, the documentation of the receiver and the meaning of each parameter.
#[must_use]
pub fn starter(template: &BuiltinTemplate) -> String {
    let metadata = &template.metadata;
    let mut yaml = String::new();
    for line in [metadata.title.as_str(), metadata.documentation.as_str()] {
        let _ = writeln!(yaml, "# {line}");
    }
    yaml.push_str(&head(template));
    yaml.push_str("  endpoint:\n");
    yaml.push_str(&address(template, metadata.path.as_deref().unwrap_or_default()));
    if metadata.method != Method::Post {
        let _ = writeln!(yaml, "    method: {}", metadata.method.as_str());
    }
    if !metadata.headers.is_empty() {
        yaml.push_str("    headers:\n");
        for (name, value) in &metadata.headers {
            let _ = writeln!(yaml, "      {name}: {}", scalar(value));
        }
    }
    yaml.push_str(&auth(template, true));
    let _ = writeln!(yaml, "  template:\n    inline:\n      contentType: {}", scalar(&metadata.content_type));
    let chomp = if template.body.ends_with('\n') { "|" } else { "|-" };
    let _ = writeln!(yaml, "      body: {chomp}");
    for line in template.body.lines() {
        let _ = writeln!(yaml, "{}", format!("        {line}").trim_end());
    }
    yaml.push_str(&parameters(&metadata.parameters, |p| {
        p.default.as_deref().filter(|_| !p.is_required()).or(p.example.as_deref())
    }));
    yaml
}

/// Returns the Secret that the example needs, if any, and a Notification that refers to the built-in template.
pub(super) fn example(template: &BuiltinTemplate) -> String {
    let metadata = &template.metadata;
    let mut yaml = secret(template);
    yaml.push_str(&head(template));
    yaml.push_str("  endpoint:\n");
    yaml.push_str(&address(template, ""));
    yaml.push_str(&auth(template, false));
    let _ = writeln!(yaml, "  template:\n    builtin: {}", template.name.as_str());
    let required: Vec<_> = metadata.parameters.iter().filter(|p| p.is_required()).cloned().collect();
    yaml.push_str(&parameters(&required, |p| p.example.as_deref()));
    yaml
}

fn head(template: &BuiltinTemplate) -> String {
    let triggers = &template.metadata.example.triggers;
    let triggers: String = triggers.iter().flat_map(|t| ["    - type: ", t.as_str(), "\n"]).collect();
    format!(
        "apiVersion: {GROUP}/v1alpha1\nkind: Notification\nmetadata:\n  name: {}\nspec:\n  triggers:\n{triggers}",
        template.name.as_str(),
    )
}

/// Returns the address of the endpoint. `path` is appended to the URL of the example.
fn address(template: &BuiltinTemplate, path: &str) -> String {
    let metadata = &template.metadata;
    if metadata.credentials.kind == CredentialsKind::Url {
        return format!("    urlFrom:\n      secretKeyRef: {{name: {}, key: url}}\n", secret_name(template));
    }
    format!("    url: {}\n", scalar(&format!("{}{path}", metadata.example.url.trim_end_matches('/'))))
}

/// Returns the references to credentials. `spelled_out`: with header and scheme, which the built-in template would set.
fn auth(template: &BuiltinTemplate, spelled_out: bool) -> String {
    let credentials = &template.metadata.credentials;
    let name = secret_name(template);
    match credentials.kind {
        CredentialsKind::Url | CredentialsKind::None => String::new(),
        CredentialsKind::Basic => format!("    auth:\n      basic:\n        secretRef: {{name: {name}}}\n"),
        CredentialsKind::Token => {
            let mut yaml = format!("    auth:\n      token:\n        secretKeyRef: {{name: {name}, key: token}}\n");
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
    format!("apiVersion: v1\nkind: Secret\nmetadata:\n  name: {}\nstringData:\n{data}---\n", secret_name(template))
}

/// Returns the name of the Secret, which is the name of its receiver.
fn secret_name(template: &BuiltinTemplate) -> &'static str {
    let name = template.name.as_str();
    name.split_once('-').map_or(name, |(receiver, _)| receiver)
}

fn parameters<'a>(declared: &'a [Declared], value: impl Fn(&'a Declared) -> Option<&'a str>) -> String {
    if declared.is_empty() {
        return String::new();
    }
    let mut yaml = "    parameters:\n".to_owned();
    for parameter in declared {
        let description = parameter.description.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(yaml, "      # {description}");
        let _ = writeln!(yaml, "      {}: {}", parameter.name, scalar(value(parameter).unwrap_or_default()));
    }
    yaml
}

/// Formats a text as a YAML scalar. It has no quotes if every parser reads it as the same text without them.
fn scalar(text: &str) -> String {
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
    use relaybook_api::TransitionType;
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
