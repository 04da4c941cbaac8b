//! Parts of a template, and what happens where two of them meet. Pure.
//!
//! In: constant texts and tags. Out: a template whose result has these texts, or why a template of Relaybook cannot have them side by side.

use super::{Recipient, Spot};

/// Returns a template whose result is this text.
pub(in super::super) fn literal(text: &str, spot: Spot) -> String {
    let text = if spot == Spot::Quoted { json_text(text) } else { text.to_owned() };
    text.replace("{{", "\\{{")
}

/// Returns the recipient as a template.
pub(in super::super) fn recipient(of: &Recipient, spot: Spot) -> String {
    match of {
        Recipient::Constant(text) => literal(text, spot),
        Recipient::Annotation(name) => format!("{{{{{}}}}}", annotation(name)),
    }
}

/// Returns the call that reads an annotation.
pub(super) fn annotation(name: &str) -> String {
    format!("default target.app.annotations.[{name}] \"\"")
}

/// Returns a text as it is written within a text of JSON.
fn json_text(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default().to_owned()
}

pub(super) const BACKSLASH: &str = "a backslash is before it, which a template of Relaybook cannot have";

/// Appends a part to a template. The error says why the two cannot be neighbours.
pub(super) fn join(mut text: String, part: &str, spot: Spot) -> Result<String, &'static str> {
    let is_tag = part.starts_with("{{") || part.starts_with("\\{{");
    if text.ends_with('\\') && is_tag {
        return Err(BACKSLASH);
    }
    let problem = if text.ends_with('{') && part.starts_with('{') {
        Some("a brace is before a tag, which a template of Relaybook cannot have")
    } else if text.ends_with("}}") && part.starts_with('}') {
        Some("a brace follows a tag, which a template of Relaybook cannot have")
    } else {
        None
    };
    match problem {
        // Between the parts of JSON, a space changes nothing.
        Some(_) if spot == Spot::Json => text.push(' '),
        Some(problem) => return Err(problem),
        None => {}
    }
    text.push_str(part);
    Ok(text)
}

/// Whether a line has nothing but tags of blocks. The library leaves no empty line for it.
pub(super) fn has_lines_of_blocks(text: &str) -> bool {
    let is_block = |tag: &str| ["#if ", "else", "/if"].iter().any(|word| tag.starts_with(word));
    let is_alone = |line: &str| {
        let tags: Vec<&str> = line.trim().split("{{").collect();
        tags.len() > 1 && tags[0].is_empty() && tags[1..].iter().all(|tag| is_block(tag) && tag.ends_with("}}"))
    };
    text.contains('\n') && text.lines().any(is_alone)
}
