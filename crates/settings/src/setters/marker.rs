//! The comment that marks a value, and the environment that it names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use relaybook_api::values::names::is_subdomain;

/// What a comment contains if it is ours, in small letters.
const WORD: &str = "$promotion";

/// An environment of a Pipeline, written as `NAMESPACE:PIPELINE:ENVIRONMENT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct EnvironmentRef {
    /// The namespace of the Pipeline.
    pub namespace: String,
    /// The name of the Pipeline.
    pub pipeline: String,
    /// The name of the environment.
    pub environment: String,
}

/// A text that does not name an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be NAMESPACE:PIPELINE:ENVIRONMENT, such as team-a:podinfo:prod, with small letters, digits, dashes and dots")]
pub struct NotAnEnvironment;

impl fmt::Display for EnvironmentRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.namespace, self.pipeline, self.environment)
    }
}

impl FromStr for EnvironmentRef {
    type Err = NotAnEnvironment;

    fn from_str(text: &str) -> Result<Self, NotAnEnvironment> {
        let mut names = text.split(':');
        let mut next = || names.next().filter(|name| is_subdomain(name)).map(str::to_owned).ok_or(NotAnEnvironment);
        let found = Self { namespace: next()?, pipeline: next()?, environment: next()? };
        if names.next().is_some() { Err(NotAnEnvironment) } else { Ok(found) }
    }
}

/// The part of a value that a setter replaces, and the part of the revision that replaces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// The whole value becomes the whole revision. The marker has no suffix.
    #[default]
    Whole,
    /// The tag of an image, or a value that is a tag.
    Tag,
    /// The digest of an image, or a value that is a digest.
    Digest,
    /// The whole value becomes the hash of the commit.
    Commit,
}

impl Part {
    /// Returns the suffix of the marker, with its colon.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Tag => ":tag",
            Self::Digest => ":digest",
            Self::Commit => ":commit",
        }
    }
}

/// What a comment says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Marker {
    pub(super) environment: EnvironmentRef,
    pub(super) part: Part,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json {
    #[serde(rename = "$promotion")]
    promotion: String,
}

/// Whether a text contains `$promotion`, in any case.
pub(super) fn has_word(text: &str) -> bool {
    text.as_bytes().windows(WORD.len()).any(|bytes| bytes.eq_ignore_ascii_case(WORD.as_bytes()))
}

/// Parses a comment, which starts with `#`. Returns `None` if it does not look like a marker, and the problem if it is malformed.
///
/// A comment that starts with a brace and contains the word looks like a marker. After a value, a comment with the brace and the word
/// further behind also does. On a line of its own, such a comment is a line that somebody has commented out.
pub(super) fn parse(comment: &str, is_after_value: bool) -> Option<Result<Marker, &'static str>> {
    if !has_word(comment) {
        return None;
    }
    let body = comment.strip_prefix('#')?.trim_matches([' ', '\t']);
    if body.starts_with('{') {
        return Some(parse_body(body));
    }
    let is_behind = is_after_value && body.split('{').skip(1).any(has_word);
    is_behind.then_some(Err("it must follow the # directly, and the line can have no other comment before it"))
}

fn parse_body(body: &str) -> Result<Marker, &'static str> {
    let mut values = serde_json::Deserializer::from_str(body).into_iter::<Json>();
    let Some(Ok(Json { promotion })) = values.next() else {
        return Err("it must be {\"$promotion\": \"NAMESPACE:PIPELINE:ENVIRONMENT\"} in JSON, with no other field");
    };
    let rest = &body[values.byte_offset()..];
    if has_word(rest) {
        return Err("a line can have only one marker");
    }
    let is_comment = rest.starts_with([' ', '\t']) && rest.trim_start().starts_with('#');
    if !rest.is_empty() && !is_comment {
        return Err("after the brace, only another comment can follow, which starts with a space and a #");
    }
    of_promotion(&promotion)
}

/// Parses `NAMESPACE:PIPELINE:ENVIRONMENT` with or without a suffix.
fn of_promotion(text: &str) -> Result<Marker, &'static str> {
    let (environment, part) = match text.match_indices(':').nth(2) {
        None => (text, Part::Whole),
        Some((colon, _)) => {
            let known = [Part::Tag, Part::Digest, Part::Commit].into_iter().find(|part| part.suffix() == &text[colon..]);
            (&text[..colon], known.ok_or("unknown suffix; write :tag, :digest, :commit or none")?)
        }
    };
    match environment.parse() {
        Ok(environment) => Ok(Marker { environment, part }),
        Err(NotAnEnvironment) => Err("it must name NAMESPACE:PIPELINE:ENVIRONMENT, such as team-a:podinfo:prod"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use relaybook_text::spelling;

    proptest! {
        /// An environment has one spelling.
        #[test]
        fn an_accepted_environment_formats_back_to_its_input(text in spelling(&["team-a:web:prod", "a:b.c:d-1"])) {
            if let Ok(environment) = text.parse::<EnvironmentRef>() {
                prop_assert_eq!(environment.to_string(), text);
            }
        }
    }

    fn of(comment: &str) -> Option<Result<String, &'static str>> {
        let shown = |marker: Marker| format!("{}{}", marker.environment, marker.part.suffix());
        parse(comment, true).map(|parsed| parsed.map(shown))
    }

    #[test]
    fn a_marker_is_a_comment_that_starts_with_its_json() {
        for (comment, expected) in [
            ("# {\"$promotion\": \"a:b:c\"}", "a:b:c"),
            ("#{\"$promotion\":\"a:b:c\"}", "a:b:c"),
            ("#\t { \"$promotion\" : \"a:b:c:tag\" } \t", "a:b:c:tag"),
            ("# {\"$promotion\": \"a-1:b.c:d:digest\"}", "a-1:b.c:d:digest"),
            ("# {\"$promotion\": \"a:b:c:commit\"}   # the commit", "a:b:c:commit"),
            ("# {\"\\u0024promotion\": \"a:b:c\"} # $promotion", ""),
        ] {
            let found = of(comment);
            assert!(
                found == Some(Ok(expected.to_owned())) || expected.is_empty() && matches!(found, Some(Err(_))),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_malformed_marker_is_an_error() {
        for (comment, words) in [
            ("# {\"$promotion\": \"a:b\"}", "must name"),
            ("# {\"$promotion\": \"a:b:\"}", "must name"),
            ("# {\"$promotion\": \"a::c\"}", "must name"),
            ("# {\"$promotion\": \"A:b:c\"}", "must name"),
            ("# {\"$promotion\": \"a:b:c d\"}", "must name"),
            ("# {\"$promotion\": \"a:b:-c\"}", "must name"),
            ("# {\"$promotion\": \"a:b:c:name\"}", "unknown suffix"),
            ("# {\"$promotion\": \"a:b:c:\"}", "unknown suffix"),
            ("# {\"$promotion\": \"a:b:c:tag:tag\"}", "unknown suffix"),
            ("# {\"$promotion\": \"a:b:c:TAG\"}", "unknown suffix"),
            ("# {\"$promotion\": 5}", "in JSON"),
            ("# {\"$promotion\": \"a:b:c\"", "in JSON"),
            ("# {$promotion: a:b:c}", "in JSON"),
            ("# {'$promotion': 'a:b:c'}", "in JSON"),
            ("# {\"$Promotion\": \"a:b:c\"}", "in JSON"),
            ("# {\"$promotion\": \"a:b:c\", \"x\": 1}", "no other field"),
            ("# {\"$promotion\": \"a:b:c\", \"$promotion\": \"a:b:d\"}", "no other field"),
            ("# {\"$promotion\": \"a:b:c\"} # {\"$promotion\": \"a:b:d\"}", "only one"),
            ("# {\"$promotion\": \"a:b:c\"} and more", "only another comment"),
            ("# {\"$promotion\": \"a:b:c\"}# more", "only another comment"),
            ("# note # {\"$promotion\": \"a:b:c\"}", "directly"),
            ("# {\"$imagepolicy\": \"a:b\"} # {\"$promotion\": \"a:b:c\"}", "in JSON"),
        ] {
            let found = of(comment);
            assert!(matches!(found, Some(Err(problem)) if problem.contains(words)), "{comment}: {found:?}");
        }
    }

    #[test]
    fn other_comments_are_ignored() {
        for comment in ["#", "# text", "# {\"$imagepolicy\": \"a:b\"}", "# $promotion is a word", "# {} promotion"] {
            assert_eq!(of(comment), None, "{comment}");
        }
        // A line that is commented out.
        assert_eq!(parse("#image: a:1 # {\"$promotion\": \"a:b:c\"}", false), None);
        assert!(parse("#{\"$promotion\": \"a:b:c\"}", false).is_some());
    }
}
