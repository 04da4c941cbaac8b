//! Pure: a pull request, as all forges have it.

/// A pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequest {
    /// Number within the repository.
    pub number: u64,
    /// Its page for users. `None` if the forge names another host than those of the repository: then only the number is shown.
    pub url: Option<String>,
    /// The branch with the change, without `refs/heads/`.
    pub branch: String,
    /// The branch into which it is merged, without `refs/heads/`.
    pub base: String,
    /// Whether the branch is in another repository. Relaybook never creates such a pull request.
    pub from_fork: bool,
    /// The commit at the end of the branch. Bitbucket Cloud abbreviates it.
    pub head: Option<String>,
    /// The state.
    pub state: State,
    /// Whether it conflicts with the base branch. `None` if the forge does not say it: it has not computed it yet, or, like Bitbucket Cloud,
    /// never does. Gitea does not distinguish a conflict from a check that runs, so there it is `Some(false)` or `None`.
    pub conflict: Option<bool>,
    /// The commit on the base branch, once the pull request is merged. Bitbucket Cloud abbreviates it.
    pub merge_commit: Option<String>,
    /// The last line of the description.
    pub last_line: String,
    /// Version of the pull request at Bitbucket Server, for [`super::Intent::Close`].
    pub version: Option<u64>,
}

/// State of a pull request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// It is open. It cannot be merged yet, or the forge does not report that it can.
    Open,
    /// It is open, and nothing prevents the merge.
    Mergeable,
    /// It is merged.
    Merged,
    /// It was closed without being merged.
    Abandoned,
}

impl State {
    /// Whether it is open.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Mergeable)
    }

    /// Returns `Open`, or `Mergeable` if nothing prevents the merge.
    pub(super) const fn open(mergeable: bool) -> Self {
        if mergeable { Self::Mergeable } else { Self::Open }
    }
}

impl PullRequest {
    /// Whether it is that of a promotion of the pipeline with this uid: its description ends with [`super::text::marker`].
    #[must_use]
    pub fn is_of(&self, pipeline_uid: &str) -> bool {
        super::text::is_marker(&self.last_line, pipeline_uid)
    }

    /// Whether it is from a branch of the repository itself to a base branch. Forges ignore filters that they do not know, so this is
    /// compared after each search.
    pub(super) fn is_between(&self, branch: &str, base: &str) -> bool {
        !self.from_fork && self.branch == branch && self.base == base
    }
}

/// Returns a commit id of at least 7 hexadecimal digits.
pub(super) fn commit(text: Option<String>) -> Option<String> {
    text.filter(|id| (7..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Returns the last line of a description that is not empty.
pub(super) fn last_line(body: Option<&str>) -> String {
    let line = body.unwrap_or_default().trim_end().lines().next_back().unwrap_or_default().trim();
    let end = line.floor_char_boundary(1024);
    line[..end].to_owned()
}

/// Returns the name of a branch.
pub(super) fn branch(reference: &str) -> String {
    reference.strip_prefix("refs/heads/").unwrap_or(reference).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_id_has_7_to_64_hexadecimal_digits() {
        for (id, expected) in [("1f2e3d4", true), ("1f2e3d", false), ("main", false), (&"a".repeat(65), false)] {
            assert_eq!(commit(Some(id.to_owned())).is_some(), expected, "{id}");
        }
    }

    #[test]
    fn the_last_line_is_the_last_one_that_is_not_empty() {
        for (body, expected) in [
            (Some("a\r\n<!-- m -->\r\n"), "<!-- m -->"),
            (Some("a\n  <!-- m -->  \n\n \n"), "<!-- m -->"),
            (Some("<!-- m -->\nb"), "b"),
            (Some(""), ""),
            (None, ""),
        ] {
            assert_eq!(last_line(body), expected, "{body:?}");
        }
        assert!(last_line(Some(&"é".repeat(9000))).len() <= 1024);
    }
}
