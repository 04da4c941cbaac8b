//! Texts of promotions that several modules read.

/// Precedes the missing targets of the environment, at the end of the message of a promotion.
const TARGET_MISSING: &str = "; a target is missing: ";

/// Returns a message that ends with the missing targets. `None`: there are none. What the message said about them before is replaced.
#[must_use]
pub fn with_missing(message: &str, missing: Option<&str>) -> String {
    let said = message.split_once(TARGET_MISSING).map_or(message, |(said, _)| said);
    missing.map_or_else(|| said.to_owned(), |missing| format!("{said}{TARGET_MISSING}{missing}"))
}

/// Returns the missing targets with which a message ends.
#[must_use]
pub fn missing(message: &str) -> Option<&str> {
    message.split_once(TARGET_MISSING).map(|(_, missing)| missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_only_the_last_missing_target() {
        let first = with_missing("it waits", Some("Deployment a does not exist"));
        assert_eq!(first, "it waits; a target is missing: Deployment a does not exist");
        assert_eq!(missing(&first), Some("Deployment a does not exist"));
        let second = with_missing(&first, Some("Deployment b does not exist"));
        assert_eq!(second, "it waits; a target is missing: Deployment b does not exist");
        assert_eq!((with_missing(&second, None).as_str(), missing("it waits")), ("it waits", None));
    }
}
