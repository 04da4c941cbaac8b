//! Pure: whether a pipeline's spec can be followed at all, and which objects that takes.

use std::collections::HashSet;

use crate::api::PipelineSpec;
use crate::api::pipeline::MAX_TARGETS;
use crate::api::target::{TargetInfo, targets};

/// Why a spec is not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For machines: the reason of `Ready=False`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// The targets of a pipeline that lives in `namespace`, or why it is not followed.
pub fn plan(
    spec: &PipelineSpec,
    namespace: &str,
    cluster_name: &str,
    cross_namespace_refs: bool,
) -> Result<Vec<TargetInfo>, Refused> {
    let count: usize = spec.environments.iter().map(|e| e.targets.len()).sum();
    if count > MAX_TARGETS {
        return Err(Refused {
            reason: "TooManyTargets",
            message: format!("{count} targets; a pipeline has at most {MAX_TARGETS}"),
        });
    }
    let all = targets(spec, cluster_name);
    let mut names = HashSet::new();
    if let Some(twice) = all.iter().find(|t| !names.insert(&t.name)) {
        return Err(Refused {
            reason: "DuplicateTarget",
            message: format!("two targets are called {}; give one of them another appRef.name", twice.name),
        });
    }
    match all.iter().find(|t| !cross_namespace_refs && t.namespace != namespace) {
        Some(elsewhere) => Err(Refused {
            reason: "CrossNamespaceTarget",
            message: format!("target {} is not in the pipeline's own namespace {namespace}", elsewhere.name),
        }),
        None => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pipeline::{Environment, Target};
    use crate::api::refs::AppRef;

    fn spec(namespaces: &[&str]) -> PipelineSpec {
        let target = |n: &&str| Target { namespace: (*n).to_owned(), ..Target::default() };
        PipelineSpec {
            app_ref: AppRef { api_version: "v1".into(), kind: "K".into(), name: "a".into() },
            environments: vec![Environment {
                name: "dev".into(),
                targets: namespaces.iter().map(target).collect(),
                ..Environment::default()
            }],
            notifications: Vec::new(),
        }
    }

    fn reason(spec: &PipelineSpec, cross: bool) -> Option<&'static str> {
        plan(spec, "own", "c", cross).err().map(|r| r.reason)
    }

    #[test]
    fn what_cannot_be_followed() {
        assert_eq!(reason(&spec(&["own", "b"]), true), None);
        assert_eq!(reason(&spec(&["own"]), false), None);
        assert_eq!(reason(&spec(&["own", "b"]), false), Some("CrossNamespaceTarget"));
        assert_eq!(reason(&spec(&["b", "b"]), true), Some("DuplicateTarget"));
        let names: Vec<String> = (0..=MAX_TARGETS).map(|i| format!("n{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(reason(&spec(&names), true), Some("TooManyTargets"));
        assert_eq!(reason(&spec(&names[1..]), true), None);
    }
}
