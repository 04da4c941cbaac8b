//! Pure: texts of a server, made fit to be shown.

/// Maximum length of a text of the server, in bytes.
pub const MAX_WORDS: usize = 512;

/// Returns a text on one line, without control characters, escape sequences of terminals, and invisible marks of direction. It has at
/// most [`MAX_WORDS`] bytes.
pub(super) fn clean(bytes: &[u8]) -> String {
    // Each character that stays has at most as many bytes as before, except invalid ones, which become three.
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * MAX_WORDS)]);
    let mut clean = String::new();
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        match next {
            '\u{1b}' => skip_sequence(&mut chars),
            _ if next.is_whitespace() || next.is_control() => {
                if !clean.is_empty() && !clean.ends_with(' ') {
                    clean.push(' ');
                }
            }
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => {}
            _ => clean.push(next),
        }
    }
    if clean.len() > MAX_WORDS {
        clean.truncate(clean.floor_char_boundary(MAX_WORDS - '…'.len_utf8()));
        clean.push('…');
    }
    clean.trim_end().to_owned()
}

/// Skips the rest of a sequence like `ESC [ 31 m`.
fn skip_sequence(chars: &mut std::str::Chars<'_>) {
    let mut ahead = chars.clone();
    if ahead.next() != Some('[') {
        return;
    }
    for next in ahead.by_ref() {
        if ('@'..='~').contains(&next) {
            break;
        }
    }
    *chars = ahead;
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
