//! The kind of an object, parsed once from the texts `apiVersion` and `kind`.
//!
//! Each kind has exactly one spelling. So components that compare texts and components that use the parsed parts cannot differ about what a
//! text means.

use thiserror::Error;

use super::names::{is_label, is_subdomain};

/// The schema of `apiVersion`: `GROUP/VERSION`, or `VERSION` for the core group. A group is a DNS subdomain, and a version is a DNS label
/// (<https://kubernetes.io/docs/reference/using-api/#api-groups>).
pub const API_VERSION_PATTERN: &str =
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?$";
/// The schema of `kind`: a DNS label that starts with a letter, with capital letters.
pub const KIND_PATTERN: &str = r"^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$";

/// Maximum length of an API version, as in the schema.
const MAX_API_VERSION: usize = 253;
/// Maximum length of a kind, as in the schema.
const MAX_KIND: usize = 63;
/// Maximum length of a quoted text in a message.
const MAX_QUOTED: usize = 80;

/// Group, version and kind of an object. It compares by spelling.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKind {
    api_version: String,
    kind: String,
}

/// Why the texts are not the kind of an object.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KindError {
    /// The API version has another form.
    #[error("apiVersion {0:?} is invalid; write GROUP/VERSION, such as apps/v1, or v1 for the core group")]
    ApiVersion(String),
    /// The kind has another form.
    #[error("kind {0:?} is invalid; write it as in a manifest, such as Deployment")]
    Kind(String),
}

impl ObjectKind {
    /// Parses both texts.
    pub fn parse(api_version: &str, kind: &str) -> Result<Self, KindError> {
        let (group, version) = parts(api_version);
        let is_group = group.is_none_or(is_subdomain);
        if !is_group || !is_name(version) || api_version.len() > MAX_API_VERSION {
            return Err(KindError::ApiVersion(quoted(api_version)));
        }
        if !is_name(&kind.to_ascii_lowercase()) || kind.len() > MAX_KIND {
            return Err(KindError::Kind(quoted(kind)));
        }
        Ok(Self { api_version: api_version.to_owned(), kind: kind.to_owned() })
    }

    /// Returns a kind that Relaybook itself names.
    #[must_use]
    pub fn known(api_version: &'static str, kind: &'static str) -> Self {
        Self { api_version: api_version.to_owned(), kind: kind.to_owned() }
    }

    /// Returns another kind of the same group and version.
    #[must_use]
    pub fn sibling(&self, kind: &'static str) -> Self {
        Self { api_version: self.api_version.clone(), kind: kind.to_owned() }
    }

    /// Returns `GROUP/VERSION`, or `VERSION` for the core group.
    #[must_use]
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// Returns the API group. Empty: the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        parts(&self.api_version).0.unwrap_or_default()
    }

    /// Returns the version.
    #[must_use]
    pub fn version(&self) -> &str {
        parts(&self.api_version).1
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }
}

/// Returns the group, if there is one, and the version.
fn parts(api_version: &str) -> (Option<&str>, &str) {
    api_version.split_once('/').map_or((None, api_version), |(group, version)| (Some(group), version))
}

/// Whether the text is a DNS label that starts with a letter.
fn is_name(text: &str) -> bool {
    is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())
}

fn quoted(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_QUOTED)].to_owned()
}

#[cfg(test)]
mod tests {
    use jsonschema::Validator;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use relaybook_text::spelling;

    fn pattern(pattern: &str) -> Validator {
        jsonschema::validator_for(&json!({"type": "string", "pattern": pattern})).unwrap()
    }

    #[test]
    fn a_kind_is_parsed_into_group_version_and_kind() {
        for (api_version, kind, group, version) in [
            ("v1", "Pod", "", "v1"),
            ("apps/v1", "Deployment", "apps", "v1"),
            ("helm.toolkit.fluxcd.io/v2beta2", "HelmRelease", "helm.toolkit.fluxcd.io", "v2beta2"),
            ("3scale.example/foo-1", "lower-case", "3scale.example", "foo-1"),
        ] {
            let parsed = ObjectKind::parse(api_version, kind).unwrap();
            assert_eq!((parsed.group(), parsed.version(), parsed.kind()), (group, version, kind));
            assert_eq!(parsed.api_version(), api_version);
        }
    }

    #[test]
    fn malformed_api_versions_and_kinds_are_refused() {
        for api_version in [
            "",
            "/",
            "/v1",
            "//v1",
            "v1/",
            "v1//",
            "apps/",
            "apps//v1",
            "apps/v1/",
            " v1",
            "v1 ",
            "v1\n",
            "V1",
            "1",
            "%76%31",
            "v1?x",
            "v1#",
            "v1.",
            ".v1",
            "apps./v1",
            ".apps/v1",
            "a..b/v1",
            "../v1",
            "apps/../v1",
            "apps/v1/namespaces/x",
            "аpps/v1",
            "v１",
            "v1\0",
            "-a/v1",
            "a/v-",
        ] {
            let error = ObjectKind::parse(api_version, "Secret").expect_err(api_version);
            assert!(matches!(error, KindError::ApiVersion(_)), "{api_version:?}");
        }
        for kind in [
            "",
            " Secret",
            "Secret ",
            "Secret/",
            "Sеcret",
            "Secret.",
            "Secret\0",
            "-Secret",
            "Secret-",
            "1Secret",
            "Secret%20",
            "ſecret",
        ] {
            let error = ObjectKind::parse("v1", kind).expect_err(kind);
            assert!(matches!(error, KindError::Kind(_)), "{kind:?}");
        }
        let long = format!("{}/v1", "a".repeat(MAX_API_VERSION));
        assert!(ObjectKind::parse(&long, "Secret").unwrap_err().to_string().len() < 200);
    }

    proptest! {
        /// What is accepted has one spelling. The schema accepts the same.
        #[test]
        fn an_accepted_kind_formats_back_to_its_input_and_matches_the_schema(
            api_version in spelling(&["v1", "apps/v1", "fleet.cattle.io/v1alpha1"]),
            kind in spelling(&["Secret", "ConfigMap", "BundleDeployment"]),
        ) {
            let by_schema = pattern(API_VERSION_PATTERN).is_valid(&json!(api_version)) && pattern(KIND_PATTERN).is_valid(&json!(kind));
            match ObjectKind::parse(&api_version, &kind) {
                Ok(parsed) => {
                    let group = parsed.group();
                    let again = if group.is_empty() { parsed.version().to_owned() } else { format!("{group}/{}", parsed.version()) };
                    prop_assert_eq!((again.as_str(), parsed.kind()), (api_version.as_str(), kind.as_str()));
                    prop_assert!(by_schema);
                }
                Err(_) => prop_assert!(!by_schema, "{api_version:?} {kind:?}"),
            }
        }
    }
}
