//! `commitStatusExpr`: the label of a commit status. Pure.
//!
//! In: an expression in CEL that joins texts and fields of the event. Out: a template with the same result, or nothing. This is no engine for
//! CEL: other expressions have no counterpart.

use std::collections::BTreeMap;

/// The fields of Flux that have a counterpart in templates.
const FIELDS: [(&str, &str); 3] = [
    ("event.involvedObject.kind", "{{target.app.kind}}"),
    ("event.involvedObject.name", "{{target.app.name}}"),
    ("event.involvedObject.namespace", "{{target.namespace}}"),
];

/// What is known when an Alert is converted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    pub(super) alert: &'a str,
    pub(super) provider: &'a str,
    /// `eventMetadata` of the Alert, and its `summary`.
    pub(super) metadata: &'a BTreeMap<String, String>,
}

/// Returns the template for an expression.
pub(super) fn template(expression: &str, names: Names<'_>) -> Option<String> {
    let mut rest = within(expression.trim());
    let mut template = String::new();
    loop {
        let (part, after) = part(rest, names)?;
        template.push_str(&part);
        rest = after.trim_start();
        if rest.is_empty() {
            return Some(template);
        }
        rest = rest.strip_prefix('+')?.trim_start();
    }
}

/// Returns the expression without brackets around all of it.
fn within(expression: &str) -> &str {
    let inner = expression.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
    inner.filter(|inner| !inner.contains(['(', ')'])).map_or(expression, str::trim)
}

/// Returns what the first part becomes, and the rest.
fn part<'e>(expression: &'e str, names: Names<'_>) -> Option<(String, &'e str)> {
    if let Some(quote) = expression.chars().next().filter(|c| ['"', '\''].contains(c)) {
        let (text, after) = expression[1..].split_once(quote)?;
        // An escape could end the text elsewhere.
        return (!text.contains('\\')).then(|| (literal(text), after));
    }
    let is_field = |c: char| c.is_ascii_alphanumeric() || "._".contains(c);
    let (field, after) = expression.split_at(expression.find(|c: char| !is_field(c)).unwrap_or(expression.len()));
    if let Some((_, template)) = FIELDS.iter().find(|(name, _)| *name == field) {
        return Some(((*template).to_owned(), after));
    }
    match field {
        "alert.metadata.name" => return Some((names.alert.to_owned(), after)),
        "provider.metadata.name" => return Some((names.provider.to_owned(), after)),
        "event.metadata" => {
            let after = after.strip_prefix('[')?.trim_start();
            let quote = after.chars().next().filter(|c| ['"', '\''].contains(c))?;
            let (key, after) = after[1..].split_once(quote)?;
            return Some((literal(names.metadata.get(key)?), after.trim_start().strip_prefix(']')?));
        }
        _ => {}
    }
    Some((literal(names.metadata.get(field.strip_prefix("event.metadata.")?)?), after))
}

/// Returns a template whose result is this text.
pub(super) fn literal(text: &str) -> String {
    text.replace("{{", "\\{{")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_texts_and_fields_are_a_template_and_all_else_is_none() {
        let metadata = BTreeMap::from([("cluster".to_owned(), "eu-1".to_owned()), ("a/b".to_owned(), "{{x}}".to_owned())]);
        let names = Names { alert: "chat", provider: "github", metadata: &metadata };
        for (expression, expected) in [
            (
                "'flux/' + event.involvedObject.kind + \"/\" + event.involvedObject.name",
                Some("flux/{{target.app.kind}}/{{target.app.name}}"),
            ),
            ("( event.involvedObject.namespace+'-'+event.metadata.cluster )", Some("{{target.namespace}}-eu-1")),
            ("event.metadata['cluster'] + event.metadata[ \"a/b\" ]", Some("eu-1\\{{x}}")),
            ("provider.metadata.name + alert.metadata.name", Some("githubchat")),
            ("event.metadata.region", None),
            ("event.reason", None),
            ("event.involvedObject.name.lowerAscii()", None),
            ("'a' + ", None),
            ("'a' 'b'", None),
            ("'a\\'b'", None),
            ("(a) + (b)", None),
            ("", None),
        ] {
            assert_eq!(template(expression, names).as_deref(), expected, "{expression}");
        }
    }
}
