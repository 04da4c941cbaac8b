//! Pure: the message and the author of a commit.

use super::words;

/// Maximum length of a subject, in bytes.
const MAX_SUBJECT: usize = 250;

/// The message of a commit: one line, and trailers. No text can add a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    subject: String,
    trailers: Vec<(String, String)>,
}

/// The author of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    pub(super) name: String,
    pub(super) email: String,
}

/// Why a text cannot be part of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAMessage {
    /// There is nothing to show in the subject.
    #[error("the subject is empty")]
    Subject,
    /// The token is not only letters, digits and `-`, or the value is empty or too long.
    #[error("the trailer is malformed")]
    Trailer,
    /// The name is empty or too long, or contains `<`, `>` or control characters.
    #[error("the name of the author is malformed")]
    Name,
    /// The email address is empty or too long, or contains `<`, `>`, spaces or control characters.
    #[error("the email address of the author is malformed")]
    Email,
}

impl Message {
    /// Creates a message. Line breaks and other control characters of the subject become spaces. A long subject is cut.
    pub fn new(subject: &str) -> Result<Self, NotAMessage> {
        let mut subject = words::clean(subject.as_bytes());
        if subject.len() > MAX_SUBJECT {
            subject.truncate(subject.floor_char_boundary(MAX_SUBJECT - '…'.len_utf8()));
            subject.push('…');
        }
        let subject = subject.trim().to_owned();
        if subject.is_empty() { Err(NotAMessage::Subject) } else { Ok(Self { subject, trailers: Vec::new() }) }
    }

    /// Adds a trailer. The value must be one line, and not need to be cut, because it is compared later.
    pub fn trailer(mut self, token: &str, value: &str) -> Result<Self, NotAMessage> {
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_token || token.len() > 64 || value.is_empty() || words::clean(value.as_bytes()) != value {
            return Err(NotAMessage::Trailer);
        }
        self.trailers.push((token.to_owned(), value.to_owned()));
        Ok(self)
    }

    /// Returns the text of the message.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n", self.subject);
        for (at, (token, value)) in self.trailers.iter().enumerate() {
            let before = if at == 0 { "\n" } else { "" };
            text = format!("{text}{before}{token}: {value}\n");
        }
        text
    }
}

impl Author {
    /// Checks the name and the email address of an author.
    pub fn new(name: &str, email: &str) -> Result<Self, NotAMessage> {
        let is_clean = |text: &str| {
            let is_trimmed = !text.is_empty() && text.trim() == text;
            is_trimmed && text.len() <= 200 && !text.contains(['<', '>']) && words::clean(text.as_bytes()) == text
        };
        if !is_clean(name) {
            return Err(NotAMessage::Name);
        }
        if !is_clean(email) || email.contains(' ') {
            return Err(NotAMessage::Email);
        }
        Ok(Self { name: name.to_owned(), email: email.to_owned() })
    }
}
