//! The commit in a revision.

/// Why a revision does not name a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCommit {
    /// The revision is empty, because it is not known.
    Unknown,
    /// It contains no Git hash.
    NoHash,
    /// It contains several Git hashes: those of an Application with several Git sources.
    Several,
}

/// Returns the full Git hash of a revision. An Application of Argo CD with several sources has their revisions, joined by `,`. Its commit is
/// that of its Git source. If there are several different commits, none of them is the commit.
pub fn find_commit(revision: &str) -> Result<&str, NoCommit> {
    let mut found = None;
    for hash in revision.split(',').filter_map(hash) {
        if found.is_some_and(|other| other != hash) {
            return Err(NoCommit::Several);
        }
        found = Some(hash);
    }
    found.ok_or(if revision.is_empty() { NoCommit::Unknown } else { NoCommit::NoHash })
}

/// Returns the full Git hash of a revision, if there is one.
#[must_use]
pub fn commit(revision: &str) -> Option<&str> {
    find_commit(revision).ok()
}

/// Returns the full Git hash at the end of the revision of one source. A SHA-256 hash counts only without a prefix, because after `@sha256:`
/// or a tag it is the digest of an artifact.
fn hash(revision: &str) -> Option<&str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_of_several_sources_is_that_of_the_git_source() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        for (revision, found) in [
            (format!("6.5.0,{a}"), Ok(a.as_str())),
            (format!("{a},6.5.0"), Ok(&a)),
            (format!("6.5.0,main@sha1:{a},1.2"), Ok(&a)),
            // Two directories of one repository.
            (format!("{a},{a}"), Ok(&a)),
            (format!("{a},{b}"), Err(NoCommit::Several)),
            (format!("{a},6.5.0,{b}"), Err(NoCommit::Several)),
            (a.clone(), Ok(&a)),
            (format!("6.5.0,latest@sha256:{}", "c".repeat(64)), Err(NoCommit::NoHash)),
            ("6.5.0,1.2".to_owned(), Err(NoCommit::NoHash)),
            (",".to_owned(), Err(NoCommit::NoHash)),
            (String::new(), Err(NoCommit::Unknown)),
        ] {
            assert_eq!(find_commit(&revision), found, "{revision}");
        }
    }
}
