//! What was most likely meant by a name that is not known.

/// The known name that differs least, if it differs little: a third of its letters at most, or one.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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
    }
}
