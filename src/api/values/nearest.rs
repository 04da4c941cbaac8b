//! The known name that a user most likely meant by an unknown name.

/// Maximum length of a name in bytes. A longer name is not a misspelling of any known name.
const LONGEST: usize = 64;

/// Returns the last part of a message about an unknown name: the name that the user most likely meant, with the path `before` it, or
/// all known names.
#[must_use]
pub fn instead(name: &str, known: impl IntoIterator<Item = &'static str>, before: &str) -> String {
    let known: Vec<_> = known.into_iter().collect();
    match nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean `{before}{meant}`?"),
        None => format!("known names: {}", known.join(", ")),
    }
}

/// Returns the known name with the smallest edit distance, ignoring case. Returns `None` if the distance is more than a third of the
/// length of the known name, or more than 1 for a short name.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    let distance = |other: &&str| strsim::damerau_levenshtein(&name.to_lowercase(), &other.to_lowercase());
    known.into_iter().min_by_key(distance).filter(|other| distance(other) <= (other.chars().count() / 3).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_differences_are_misspellings() {
        for (name, meant) in [
            ("ulr", Some("url")),
            ("chanel", Some("channel")),
            ("URL", Some("url")),
            ("urlfrom", Some("urlFrom")),
            ("x", None),
            ("webhook", None),
        ] {
            assert_eq!(nearest(name, ["url", "urlFrom", "channel"]), meant, "{name}");
        }
        assert_eq!(nearest("x", []), None);
        assert_eq!(nearest(&"x".repeat(65), ["x".repeat(64).as_str()]), None);
        assert_eq!(instead("chanel", ["channel", "room"], "parameters."), "did you mean `parameters.channel`?");
        assert_eq!(instead("x", ["channel", "room"], ""), "known names: channel, room");
    }
}
