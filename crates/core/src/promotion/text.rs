//! Pure: texts in messages. Revisions and names come from other systems, so they are escaped and bounded.

use relaybook_api::values::revision::{MAX, is_whole};
use relaybook_text::{cut, escaped};

/// Maximum length of a message, in bytes.
const MESSAGE: usize = 1024;
/// Maximum length of a name or revision in a message, in bytes.
const SHOWN: usize = 128;
/// Maximum length of an error or a response in a message, in bytes.
const ANSWER: usize = 256;

/// Returns a message with at most 1 KiB.
#[must_use]
pub fn bounded(message: &str) -> String {
    cut(message, MESSAGE).into_owned()
}

/// Returns a name or revision as a message shows it.
#[must_use]
pub fn shown(text: &str) -> String {
    cut(&escaped(text), SHOWN).into_owned()
}

/// Returns an error or a response of a receiver as a message shows it.
#[must_use]
pub(super) fn answer(text: &str) -> String {
    cut(&escaped(text.trim()), ANSWER).into_owned()
}

/// Returns a revision as a message shows it. A revision can be empty.
#[must_use]
pub(super) fn revision(text: &str) -> String {
    if text.is_empty() { "no revision".to_owned() } else { shown(text) }
}

/// Returns why a revision cannot be promoted. `None`: it is whole.
#[must_use]
pub(super) fn not_whole(text: &str) -> Option<String> {
    (!is_whole(text)).then(|| {
        let text = shown(text);
        format!("the revision {text} has more than {MAX} bytes, so it is not known as a whole; choose a shorter one with revisionPath")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_bounded_and_on_one_line() {
        assert_eq!(shown("6.5.1"), "6.5.1");
        assert_eq!(shown("a\nb\u{202e}"), "a\\nb\\u{202e}");
        let long = shown(&"é".repeat(500));
        assert!(long.len() <= SHOWN && long.ends_with('…'), "{long}");
        assert_eq!(bounded(&"x".repeat(5000)).len(), MESSAGE);
        assert_eq!(revision(""), "no revision");
    }
}
