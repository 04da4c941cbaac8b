//! Recognises templates of Go, which Argo CD and Helm use, to show how Handlebars writes the same. Pure.
//!
//! In: a source that does not compile. Out: an error at the first tag that is not Handlebars but Go, or `None`.

use crate::render::error::{Position, RenderError};

/// What a tag of Go is for, and how Handlebars writes it.
const FORMS: &[(&str, &str)] = &[
    ("if", "write `{{#if …}}…{{else}}…{{/if}}`, with a condition such as `(eq status \"Failed\")`"),
    ("range", "write `{{#each LIST}}…{{/each}}`"),
    ("with", "write `{{#with target}}…{{/with}}`"),
    ("end", "end a block with its name, such as `{{/if}}`"),
    ("define", "parts of templates are not supported; write the text here"),
    ("template", "parts of templates are not supported; write the text here"),
    ("include", "parts of templates are not supported; write the text here"),
];

/// Fields of Argo CD and Helm, and the fields with the same meaning. The first one that begins a name counts.
const FIELDS: &[(&str, &str)] = &[
    ("app.metadata.name", "target.app.name"),
    ("app.metadata.namespace", "target.namespace"),
    ("app.spec.destination.namespace", "target.namespace"),
    ("app.status.sync.revision", "revision"),
    ("app.status.operationState.syncResult.revision", "revision"),
    ("app.status.operationState.message", "message"),
    ("app.status.operationState.phase", "status"),
    ("app.status.health.status", "status"),
    ("app.status.sync.status", "status"),
    ("Release.Name", "target.app.name"),
    ("Release.Namespace", "target.namespace"),
];

/// Returns the error for the first tag of Go in a source.
pub(super) fn recognise(source: &str) -> Option<RenderError> {
    let mut at = 0;
    while let Some(open) = source[at..].find("{{").map(|found| at + found) {
        let inside = &source[open + 2..];
        let end = inside.find("}}").unwrap_or(inside.len());
        if let Some(remedy) = remedy(&inside[..end]) {
            let problem = format!(
                "this looks like a template of Go, as in Argo CD and Helm, and Relaybook uses Handlebars: {remedy}. `relaybook convert \
                 argocd` converts the templates of Argo CD (docs/migrate-argocd.md)"
            );
            return Some(RenderError::Syntax { at: Position::of(source, open), problem });
        }
        at = open + 2;
    }
    None
}

/// Returns how Handlebars writes a tag, if it is a tag of Go.
fn remedy(tag: &str) -> Option<String> {
    let trimmed = tag.strip_prefix("- ").or_else(|| tag.strip_suffix(" -"));
    let tag = without_texts(tag);
    let text = tag.trim().trim_start_matches("- ").trim_end_matches(" -").trim();
    let word = text.split_whitespace().next().unwrap_or_default();
    if let Some((_, remedy)) = FORMS.iter().find(|(name, _)| *name == word) {
        return Some((*remedy).to_owned());
    }
    if let Some(field) = text.split([' ', '(']).find_map(field) {
        let same = FIELDS.iter().find(|(known, _)| field.starts_with(known));
        let (name, note) = same.map_or(("pipeline.name", ", without the leading dot"), |(_, ours)| (*ours, ""));
        return Some(format!("write a field as `{{{{{name}}}}}`{note}; docs/templates.md lists all fields"));
    }
    if text.starts_with('$') {
        return Some("there are no variables; write the field itself, such as `{{pipeline.name}}`".to_owned());
    }
    if text.contains(" | ") {
        return Some(
            "a helper begins the tag, such as `{{truncate message 100}}` or `{{default reason \"none\"}}`".to_owned(),
        );
    }
    trimmed.map(|_| "remove white space with `~`, as in `{{~#if drifted~}}`, and not with a dash".to_owned())
}

/// Returns a tag without what is in quotation marks.
fn without_texts(tag: &str) -> String {
    let mut open = None;
    let outside = |c: &char| match open {
        Some(quote) if *c == quote => {
            open = None;
            false
        }
        Some(_) => false,
        None if matches!(c, '"' | '\'' | '`') => {
            open = Some(*c);
            false
        }
        None => true,
    };
    tag.chars().filter(outside).collect()
}

/// Returns the name of a field of Go, which begins with a dot.
fn field(word: &str) -> Option<&str> {
    word.strip_prefix('.').filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::Parameters;
    use crate::render::escape::context::EscapeContext;
    use crate::render::lang::compile::compile;

    fn said(source: &str) -> String {
        compile(source, EscapeContext::Plain, &Parameters::default()).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn the_error_of_a_go_template_shows_the_handlebars_form() {
        for (source, at, words) in [
            ("{{.app.metadata.name}} is synced", "line 1, column 1", "write a field as `{{target.app.name}}`;"),
            ("a\n {{ .app.status.sync.revision }}", "line 2, column 2", "`{{revision}}`"),
            ("{{.context.argocdUrl}}", "line 1, column 1", "`{{pipeline.name}}`, without the leading dot"),
            ("{{ if eq .app.status.health.status \"Degraded\" }}x{{ end }}", "line 1, column 1", "`(eq status \"Failed\")`"),
            ("{{if .x}}y{{end}}", "line 1, column 1", "{{#if …}}"),
            ("{{- range .app.status.conditions}}{{.message}}{{end}}", "line 1, column 1", "{{#each LIST}}"),
            ("{{status}}{{end}}", "line 1, column 11", "end a block with its name"),
            ("{{ status | upper }}", "line 1, column 1", "a helper begins the tag"),
            ("{{$x := 1}}", "line 1, column 1", "there are no variables"),
            ("{{- status }}", "line 1, column 1", "with `~`"),
            ("{{ default \"x\" .Values.name }}", "line 1, column 1", "without the leading dot"),
            ("{{#if drifted}}{{.Release.Name}}{{/if}}", "line 1, column 16", "`{{target.app.name}}`"),
        ] {
            let said = said(source);
            assert!(
                said.starts_with(&format!("{at}: this looks like a template of Go"))
                    && said.contains(words)
                    && said.contains("relaybook convert argocd"),
                "{source}: {said}"
            );
        }
    }

    #[test]
    fn errors_of_other_templates_do_not_mention_go() {
        for (source, words) in [
            ("{{pipline.name}}", "did you mean `pipeline.name`?"),
            ("{{status", ""),
            ("{{#if drifted}}x", "`if` is not closed"),
            ("{{pipeline.labels.team}}", "set a default"),
            ("{{default pipline.name \".net | end\"}}", "did you mean `pipeline.name`?"),
        ] {
            let said = said(source);
            assert!(said.contains(words) && !said.contains("Go"), "{source}: {said}");
        }
        for source in
            ["{{~status~}}", "{{#each pipeline.labels}}{{.}}{{/each}}", "{{#each pipeline.labels}}{{./x}}{{/each}}"]
        {
            assert!(recognise(source).is_none(), "{source}");
        }
    }
}
