//! The commit in a revision.

/// Returns the full Git hash at the end of a revision. A SHA-256 hash counts only without a prefix, because after `@sha256:` or a tag it is
/// the digest of an artifact.
#[must_use]
pub fn commit(revision: &str) -> Option<&str> {
    let (prefix, last) = match revision.rfind(['@', ':', '/']) {
        Some(separator) => (&revision[..separator], &revision[separator + 1..]),
        None => ("", revision),
    };
    let lengths: &[usize] = match prefix.rsplit('@').next() {
        Some("") => &[40, 64],
        Some("sha256") => &[],
        _ => &[40],
    };
    let is_hash = lengths.contains(&last.len()) && last.bytes().all(|b| b.is_ascii_hexdigit());
    is_hash.then_some(last)
}
