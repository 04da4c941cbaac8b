//! Pure: texts of a server, made fit to be shown.

/// Maximum length of a text of the server, in bytes.
pub const MAX_WORDS: usize = 512;

/// Returns a text as [`relaybook_text::clean`] does, with at most [`MAX_WORDS`] bytes. Bytes that are no text are replaced.
pub(super) fn clean(bytes: &[u8]) -> String {
    relaybook_text::clean(&String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MAX_WORDS)]), MAX_WORDS)
}

/// Joins texts of a server, with ": " between them. Texts that contain nothing, or are a part of a text before, are left out.
pub(super) fn join<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut joined = String::new();
    for text in texts {
        let text = clean(text);
        if !text.is_empty() && !joined.contains(&text) {
            joined = if joined.is_empty() { text } else { format!("{joined}: {text}") };
        }
    }
    clean(joined.as_bytes())
}

/// Returns what follows a message: nothing, or ": " and the text.
pub(super) fn after(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(": {words}") }
}
