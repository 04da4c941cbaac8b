//! The known name that a user most likely meant by an unknown name.

/// A longer name is not a misspelling of any known name.
const LONGEST: usize = 64;

/// What to write instead of an unknown name, for a message: the name that was most likely meant with the path `before` it, or all
/// known names.
#[must_use]
pub fn instead(name: &str, known: impl IntoIterator<Item = &'static str>, before: &str) -> String {
    let known: Vec<_> = known.into_iter().collect();
    match nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean `{before}{meant}`?"),
        None => format!("there are {}", known.join(", ")),
    }
}

/// The known name that differs least, if it differs in at most a third of its letters, or in one letter.
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
        assert_eq!(instead("x", ["channel", "room"], ""), "there are channel, room");
    }
}
