//! The known name that a user most likely meant by an unknown name.

/// Maximum length of a name in bytes. A longer name is not a misspelling of any known name.
const LONGEST: usize = 64;
/// Minimum length of an abbreviation in bytes.
const SHORTEST: usize = 3;

/// Returns the last part of a message about an unknown name: the name that the user most likely meant, with the path `before` it, or
/// all known names.
#[must_use]
pub fn instead<'a>(name: &str, known: impl IntoIterator<Item = &'a str>, before: &str) -> String {
    let known: Vec<_> = known.into_iter().collect();
    match nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean `{before}{meant}`?"),
        None => format!("known names: {}", known.join(", ")),
    }
}

/// Returns the known name with the smallest edit distance, ignoring case. The distance is at most a third of the length of the known name,
/// or 1 for a short name. Otherwise, returns a known name of which the name is an abbreviation, or the other way round.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    let distance = |other: &&str| strsim::damerau_levenshtein(&name.to_lowercase(), &other.to_lowercase());
    let known: Vec<_> = known.into_iter().collect();
    let close =
        known.iter().copied().min_by_key(distance).filter(|other| distance(other) <= (other.chars().count() / 3).max(1));
    close.or_else(|| known.into_iter().find(|other| is_abbreviation(name, other)))
}

/// Whether one of two names begins with the other, as `production` with `prod`.
fn is_abbreviation(name: &str, other: &str) -> bool {
    let (name, other) = (name.to_lowercase(), other.to_lowercase());
    name.len().min(other.len()) >= SHORTEST && (name.starts_with(&other) || other.starts_with(&name))
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
            ("chan", Some("channel")),
            ("ch", None),
            ("channel-of-team", Some("channel")),
        ] {
            assert_eq!(nearest(name, ["url", "urlFrom", "channel"]), meant, "{name}");
        }
        assert_eq!(nearest("x", []), None);
        assert_eq!(nearest(&"x".repeat(65), ["x".repeat(64).as_str()]), None);
        assert_eq!(instead("chanel", ["channel", "room"], "parameters."), "did you mean `parameters.channel`?");
        assert_eq!(instead("x", ["channel", "room"], ""), "known names: channel, room");
    }
}
