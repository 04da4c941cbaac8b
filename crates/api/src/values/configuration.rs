//! What an application object runs beside its revision: the values of a Helm release, or the images of init containers.
//!
//! It is a text for people, such as `values sha256:3f2a1b9c0d1e` or `init images 1.3`. It is never written anywhere as a version. So values of
//! two environments can differ while both run the same revision.

/// Begins the configuration of a Helm release. The digest of the values follows.
pub const VALUES: &str = "values ";

/// Whether two configurations are known to differ. One that is empty cannot be compared: it is not known, or an earlier version did not read
/// it. Nor can digests of values of different algorithms: Flux can begin to write others without a deployment.
#[must_use]
pub fn differ(before: &str, now: &str) -> bool {
    !before.is_empty() && !now.is_empty() && before != now && algorithm(before) == algorithm(now)
}

/// The algorithm of the digest of values. `None`: the text names no values.
fn algorithm(configuration: &str) -> Option<&str> {
    configuration.strip_prefix(VALUES)?.split_once(':').map(|(algorithm, _)| algorithm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_configurations_that_can_be_compared_differ() {
        for (before, now, want) in [
            ("", "", false),
            ("values sha256:a", "values sha256:a", false),
            ("values sha256:a", "values sha256:b", true),
            ("values sha256:a", "values sha256:a, post-renderers sha256:c", true),
            ("values sha1:a", "values sha256:b", false),
            ("", "values sha256:a", false),
            ("init images 1", "init images 1", false),
            ("init images 1", "init images 2", true),
            ("init images sha256:a", "init images sha512:a", true),
            ("", "init images 1", false),
        ] {
            assert_eq!(differ(before, now), want, "{before} and {now}");
            assert_eq!(differ(now, before), want, "{now} and {before}");
        }
    }
}
