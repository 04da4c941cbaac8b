//! The documentation page of a built-in template, generated from its metadata and its rendered requests.

use std::fmt::Write as _;

use super::request::Preview;
use super::starter::example;
use super::{LayeredNotification, PreviewError, previews};
use relaybook_settings::config::{Given, Global};
use relaybook_settings::render::{
    BuiltinTemplate, CredentialsKind, Declared, Limit, Metadata, SampleContext, TestMark, Unreported,
};

/// Returns the page as Markdown.
pub fn page(template: &BuiltinTemplate) -> Result<String, PreviewError> {
    let metadata = &template.metadata;
    let mut page = format!(
        "# {}\n\n`{}` · [{}]({})\n\n{}\n",
        metadata.title,
        template.name.as_str(),
        "the receiver's documentation",
        metadata.documentation,
        metadata.description.trim(),
    );
    if let Some(Unreported { types, because }) = &metadata.unreported {
        let types = types.iter().map(|type_| type_.as_str()).collect::<Vec<_>>().join(", ");
        let _ = write!(page, "\nIt cannot report {types}: {}.\n", cell(because));
    }
    let _ = write!(page, "\n**Test:** {}\n", test(&metadata.test));
    let _ = write!(page, "\n## Credentials\n\n{}\n", credentials(template));
    let _ = write!(page, "\n## Example\n\n```yaml\n{}```\n", example(template));
    let _ = write!(page, "\n## Parameters\n\n{}", parameters(&metadata.parameters));
    let _ = write!(page, "\n## What is sent\n\n{}", sent(template)?);
    if let Some(success) = &metadata.success {
        let _ = write!(
            page,
            "\n## What an answer means\n\nIf `endpoint.success` is not set, this rule applies. See [Success by the body](../delivery.md#success-by-the-body).\n\n```cel\n{}\n```\n",
            lines(success),
        );
    }
    if let Some(thread) = &metadata.thread {
        let (thread, how) = (super::starter::thread(thread), continued(metadata));
        let _ = write!(
            page,
            "\n## Messages that continue\n\n{how} These are the defaults of `endpoint.thread`. See [Threads](../threads.md).\n\n```yaml\n{thread}```\n",
        );
    }
    if !metadata.limits.is_empty() {
        let _ = write!(page, "\n## Limits\n\n{}", limits(&metadata.limits));
    }
    if let Some(notes) = &metadata.notes {
        let _ = write!(page, "\n## Good to know\n\n{}\n", notes.trim());
    }
    page.push_str("\nTo change what is sent, start from `relaybook templates show ");
    let _ = writeln!(page, "{}`; see [templates](../templates.md).", template.name.as_str());
    Ok(page)
}

/// Returns how deliveries continue a message, as sentences.
fn continued(metadata: &Metadata) -> String {
    let Some(find) = &metadata.find else {
        return "The parameter `mode` selects whether deliveries continue a message.".to_owned();
    };
    let follows = if metadata.follow { " The request that continues it also follows the one that creates it." } else { "" };
    let path = &find.path;
    let parent = metadata.parent.as_ref().map(|parent| {
        format!(" A GET request with `{}` looks for the pull request before, and the answer has `NUMBER`.", parent.path)
    });
    let parent = parent.unwrap_or_default();
    format!(
        "Deliveries with the same key continue one message. A GET request with `{path}` looks for it first.{parent}{follows}"
    )
}

/// Returns how the receiver can see that a request is a test, as sentences.
fn test(test: &TestMark) -> String {
    match test {
        TestMark::Mark { how, resolves: false } => format!("{how}."),
        TestMark::Mark { how, resolves: true } => format!("{how}. A second request closes the alert of the test."),
        TestMark::Acts(what) => {
            format!("the receiver acts on each request. A test would {what}, so it needs a confirmation.")
        }
    }
}

fn credentials(template: &BuiltinTemplate) -> String {
    let credentials = &template.metadata.credentials;
    let how = match credentials.kind {
        CredentialsKind::Token => {
            let header = credentials.header.as_deref().unwrap_or("Authorization");
            let scheme = credentials.scheme.as_deref().unwrap_or(if header == "Authorization" { "Bearer" } else { "" });
            let sent = format!("{header}: {scheme} …").replace("  ", " ");
            format!("In `endpoint.auth.token`; sent as `{sent}`.")
        }
        CredentialsKind::Basic => "In `endpoint.auth.basic`, a Secret with the keys `username` and `password`.".to_owned(),
        CredentialsKind::Url => {
            "The whole URL is secret. Put it into a Secret, and refer to it in `endpoint.urlFrom`.".to_owned()
        }
        CredentialsKind::None => "By default, Relaybook sends no credentials.".to_owned(),
    };
    let mut text = format!("{}\n\n{how}", credentials.description.trim());
    if let Some(path) = template.metadata.path.as_ref().filter(|_| credentials.kind != CredentialsKind::Url) {
        let _ = write!(
            text,
            " The path `{path}` is [appended](../templates.md#path-of-a-built-in-template) to `endpoint.url`, also after a prefix. A URL from a Secret is not changed."
        );
    }
    text
}

fn parameters(declared: &[Declared]) -> String {
    if declared.is_empty() {
        return "None.\n".to_owned();
    }
    let mut table = "| name | what it is | default |\n|---|---|---|\n".to_owned();
    for parameter in declared {
        let default = match parameter.default.as_deref() {
            None => "must be set".to_owned(),
            Some("") => "empty".to_owned(),
            Some(default) => format!("`{}`", cell(default)),
        };
        let _ = writeln!(table, "| `{}` | {} | {default} |", parameter.name, cell(&parameter.description));
    }
    table.push_str("\nValues are templates too: `{{environment}}` in one becomes the environment's name.\n");
    table
}

/// Returns the requests of the example for its first transition type, and for `Failed` if that is another type.
fn sent(template: &BuiltinTemplate) -> Result<String, PreviewError> {
    let mut manifests = super::Manifests::default();
    manifests.add("example", &example(template), "team-a")?;
    let context = SampleContext::sample((template.name.as_str().to_owned(), "team-a".to_owned()));
    let mut text = String::new();
    for notification in manifests.named(None)? {
        let all = previews(
            &LayeredNotification::without_pipeline(&Global::default(), notification),
            &[],
            &Given::nothing(),
            &context,
        )?;
        let failed = all.iter().find(|p| p.trigger == relaybook_api::TransitionType::Failed);
        let shown: Vec<&Preview> = all.iter().take(1).chain(failed).collect();
        for (index, preview) in shown.iter().enumerate() {
            if index == 0 || preview.trigger != shown[0].trigger {
                let _ = write!(text, "{}:\n\n```http\n{}```\n\n", preview.trigger.as_str(), preview.text());
            }
        }
    }
    Ok(text.trim_end().to_owned() + "\n")
}

fn limits(limits: &[Limit]) -> String {
    let mut table = "| field | at most | |\n|---|---|---|\n".to_owned();
    for limit in limits {
        let most = match (limit.characters, limit.bytes) {
            (Some(n), _) => format!("{n} characters"),
            (None, Some(n)) => format!("{n} bytes"),
            (None, None) => String::new(),
        };
        let _ = writeln!(table, "| `{}` | {most} | [source]({}) |", limit.field, limit.documentation);
    }
    table
}

/// Returns an expression with one alternative in each line.
fn lines(success: &str) -> String {
    success.trim().replace(" : ", "\n  : ")
}

/// Formats a text for a cell of a Markdown table: one line, with escaped pipes.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::notification::Builtin;
    use relaybook_settings::render::builtin;

    #[test]
    fn every_built_in_has_its_page() {
        for name in Builtin::ALL {
            let page = page(builtin(name)).unwrap_or_else(|e| panic!("{}: {e}", name.as_str()));
            for part in
                ["# ", "**Test:** ", "## Credentials", "## Example", "kind: Notification", "## Parameters", "```http"]
            {
                assert!(page.contains(part), "{}: {part}", name.as_str());
            }
        }
    }
}
