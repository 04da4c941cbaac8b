//! An error with its causes, for a log line. Our error messages do not contain their causes, so the log line must add them.

use std::error::Error;

use super::api_error;

/// Returns `message: cause: cause of that`. If a message already contains its cause, the cause is not repeated. An error of the Kubernetes
/// client becomes one sentence without its causes.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let (mut text, mut next) = (String::new(), Some(error));
    while let Some(cause) = next {
        let message = api_error::readable_message(cause);
        next = if message.is_some() { None } else { cause.source() };
        let message = message.unwrap_or_else(|| cause.to_string());
        if text.is_empty() {
            text = message;
        } else if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn causes_are_listed_once() {
        assert_eq!(chain(&Outer(std::io::Error::other("inner"))), "outer: inner");
        assert_eq!(chain(&Outer(std::io::Error::other("outer"))), "outer", "listed once");
    }
}
