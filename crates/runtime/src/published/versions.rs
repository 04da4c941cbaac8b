//! The versions that the controllers publish. Pure.

use std::collections::BTreeMap;

use relaybook_text::first_line;
use serde::{Deserialize, Serialize};

use super::{Dispatch, LookupError, Pipeline};

/// The versions that the controllers in one namespace publish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// The namespace of the controllers.
    pub namespace: String,
    /// The version of the pipeline controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<String>,
    /// The version of the dispatcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<String>,
}

/// The part of the published settings that all versions have.
#[derive(Deserialize)]
struct Published {
    version: String,
}

impl Versions {
    /// Reads the data of the ConfigMap in this namespace. Other settings can be those of any version.
    pub(super) fn read(namespace: &str, data: Option<&BTreeMap<String, String>>) -> Result<Self, LookupError> {
        let unusable = |problem: String| LookupError::Unusable { namespace: namespace.to_owned(), problem };
        let version = |key: &str| {
            let Some(text) = data.and_then(|data| data.get(key)) else { return Ok(None) };
            let published = serde_saphyr::from_str::<Published>(text);
            published.map(|one| Some(one.version)).map_err(|e| unusable(format!("{key}: {}", first_line(&e.to_string()))))
        };
        let (pipeline, dispatch) = (version(Pipeline::KEY)?, version(Dispatch::KEY)?);
        if pipeline.is_none() && dispatch.is_none() {
            return Err(unusable(format!("it has neither the key {} nor {}", Pipeline::KEY, Dispatch::KEY)));
        }
        Ok(Self { namespace: namespace.to_owned(), pipeline, dispatch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_also_from_settings_of_another_version() {
        let read = |entries: &[(&str, &str)]| {
            let data = entries.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
            Versions::read("own", Some(&data))
        };
        let versions = |pipeline: Option<&str>, dispatch: Option<&str>| {
            let text = |text: Option<&str>| text.map(ToOwned::to_owned);
            Ok(Versions { namespace: "own".to_owned(), pipeline: text(pipeline), dispatch: text(dispatch) })
        };
        let (one, two) = (("pipeline.yaml", "version: 0.1.0\n"), ("dispatch.yaml", "version: 0.2.0\nlater: {a: 1}\n"));
        assert_eq!(read(&[one, two]), versions(Some("0.1.0"), Some("0.2.0")));
        assert_eq!(read(&[one, ("later.yaml", "a: 1\n")]), versions(Some("0.1.0"), None));
        assert_eq!(read(&[two]), versions(None, Some("0.2.0")));
        for (entries, words) in [
            (&[][..], "in namespace own cannot be used: it has neither the key pipeline.yaml nor dispatch.yaml"),
            (&[("dispatch.yaml", "allowHttp: true\n")], "dispatch.yaml: "),
            (&[one, ("dispatch.yaml", "[")], "dispatch.yaml: "),
        ] {
            let problem = read(entries).unwrap_err().to_string();
            assert!(problem.contains(words) && problem.lines().count() == 1, "{problem}");
        }
        assert!(Versions::read("own", None).is_err());
    }
}
