//! Pure: which texts are names of objects, and parts of the names of generated objects.

use sha2::{Digest as _, Sha256};

/// Whether the text is an RFC 1123 label, such as the name of a namespace
/// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-label-names>).
#[must_use]
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// Whether the text is an RFC 1123 subdomain, such as the name of an object. Kubernetes does not check the length of each label in it
/// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names>).
#[must_use]
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let is_inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

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
    fn subdomains_may_have_dots_and_labels_may_not() {
        for name in ["a", "a-b", "3a", &"a".repeat(63)] {
            assert!(is_label(name) && is_subdomain(name), "{name}");
        }
        for name in ["a.b", &"a".repeat(64)] {
            assert!(!is_label(name) && is_subdomain(name), "{name}");
        }
        for bad in ["", "A", "a..b", ".a", "-a", "a-", "a_b", "a b", "a/b", "é", "a\0", &"a".repeat(254)] {
            assert!(!is_label(bad) && !is_subdomain(bad), "{bad}");
        }
    }

    #[test]
    fn different_parts_have_different_hashes() {
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&["a"]), hash(&["a", ""]));
        assert_eq!(hash(&["a"]).len(), 64);
    }

    #[test]
    fn a_name_is_cut_to_63_characters_and_ends_alphanumeric() {
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
