//! Label selectors for pipelines, with kube's implementation of the Kubernetes rules
//! (<https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors>).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube_core::{Selector, SelectorExt as _};
use thiserror::Error;

/// Which pipelines of its namespace a notification applies to.
#[derive(Clone, Debug)]
pub struct PipelineSelector(Selector);

/// A selector that Kubernetes would reject.
#[derive(Clone, Debug, Error)]
#[error("is invalid ({0}); the operators are In, NotIn, Exists and DoesNotExist; only In and NotIn have values")]
pub struct SelectorError(String);

impl PipelineSelector {
    /// Parses the selector; an absent one selects everything.
    pub fn parse(selector: Option<&LabelSelector>) -> Result<Self, SelectorError> {
        let selector = selector.cloned().unwrap_or_default();
        Selector::try_from(selector).map(Self).map_err(|e| SelectorError(e.to_string()))
    }

    /// Whether an object with these labels is selected.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.matches(labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn a_selector_follows_the_rules_of_kubernetes() {
        let all = PipelineSelector::parse(None).unwrap();
        assert!(all.selects(&labels(&[])));
        let one: LabelSelector = serde_json::from_str(
            r#"{"matchLabels":{"team":"a"},"matchExpressions":[{"key":"tier","operator":"NotIn","values":["test"]}]}"#,
        )
        .unwrap();
        let one = PipelineSelector::parse(Some(&one)).unwrap();
        assert!(one.selects(&labels(&[("team", "a")])));
        assert!(!one.selects(&labels(&[("team", "a"), ("tier", "test")])));
        assert!(!one.selects(&labels(&[("team", "b")])));
    }

    #[test]
    fn unknown_operator_is_an_error() {
        let bad: LabelSelector =
            serde_json::from_str(r#"{"matchExpressions":[{"key":"a","operator":"Near","values":["x"]}]}"#).unwrap();
        assert!(PipelineSelector::parse(Some(&bad)).is_err());
    }
}
