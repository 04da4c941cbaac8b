//! Pure: parts of the names of generated objects.

use sha2::{Digest as _, Sha256};

/// Hashes the parts. Each part ends with a byte that no part can contain, so different keys never give the same input. The result has 64
/// hexadecimal digits.
#[must_use]
pub fn hash(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hex::encode(hasher.finalize())
}

/// Cuts a name to 63 characters. The result must not end in a dot or a dash, which would make the whole name an
/// [invalid object name](https://kubernetes.io/docs/concepts/overview/working-with-objects/names/), and a label an invalid value.
#[must_use]
pub fn cut(part: &str) -> &str {
    let end = part.char_indices().nth(63).map_or(part.len(), |(i, _)| i);
    part[..end].trim_end_matches(['.', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_parts_have_different_hashes() {
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&["a"]), hash(&["a", ""]));
        assert_eq!(hash(&["a"]).len(), 64);
    }

    #[test]
    fn a_name_is_cut_and_ends_as_a_name_can() {
        let long = "a".repeat(62);
        for (part, expected) in [
            ("podinfo", "podinfo"),
            (&format!("{long}bc"), format!("{long}b").as_str()),
            (&format!("{long}.-c"), long.as_str()),
            (&"ä".repeat(70), "ä".repeat(63).as_str()),
        ] {
            assert_eq!(cut(part), expected);
        }
    }
}
