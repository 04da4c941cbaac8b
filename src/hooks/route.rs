//! The paths of hooks: `/approval/NAMESPACE/PIPELINE` and `/hooks/NAMESPACE/PIPELINE`. Pure.
//!
//! A path is compared as it was sent, and nothing in it is decoded. Names of Kubernetes objects need no escapes. So a proxy that decodes
//! paths cannot make one hook into another one.

use relaybook_api::ObjectName;
use relaybook_telemetry::metrics::Hook;

/// Maximum length of a namespace, and of the name of a pipeline.
const LONGEST_NAME: usize = 63;
/// Maximum length of the name of any object.
const LONGEST_OBJECT: usize = 253;

/// What a request asks for, and of which pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The hook.
    pub hook: Hook,
    /// The pipeline, which need not exist.
    pub pipeline: ObjectName,
}

/// Returns the route of a path. `None`: no hook has this path.
#[must_use]
pub fn route(path: &str) -> Option<Route> {
    let mut segments = path.strip_prefix('/')?.split('/');
    let hook = match segments.next()? {
        "approval" => Hook::Approval,
        "hooks" => Hook::Look,
        _ => return None,
    };
    let (namespace, name) = (segments.next()?, segments.next()?);
    let is_known = segments.next().is_none() && !namespace.contains('.');
    let fits = |name: &str| name.len() <= LONGEST_NAME && is_object_name(name);
    (is_known && fits(namespace) && fits(name)).then(|| Route { hook, pipeline: ObjectName::new(namespace, name) })
}

/// Whether a text can be the name of an object. Such a text is safe in the URL of a call.
pub(super) fn is_object_name(name: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() <= LONGEST_OBJECT
        && name.chars().all(|c| is_alphanumeric(c) || c == '-' || c == '.')
        && name.starts_with(is_alphanumeric)
        && name.ends_with(is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_a_hook_a_namespace_and_a_pipeline() {
        for (path, hook, pipeline) in [
            ("/approval/team-a/podinfo", Hook::Approval, "team-a/podinfo"),
            ("/hooks/team-a/podinfo", Hook::Look, "team-a/podinfo"),
            ("/hooks/1/a.b-c", Hook::Look, "1/a.b-c"),
        ] {
            let found = route(path).unwrap();
            assert_eq!((found.hook, found.pipeline.to_string().as_str()), (hook, pipeline));
        }
        let long = format!("/hooks/team-a/{}", "a".repeat(64));
        for path in [
            "",
            "/",
            "*",
            "/hooks",
            "/hooks/team-a",
            "/hooks/team-a/",
            "/hooks//podinfo",
            "/hooks/team-a/podinfo/",
            "/hooks/team-a/podinfo/prod",
            "//hooks/team-a/podinfo",
            "hooks/team-a/podinfo",
            "/Hooks/team-a/podinfo",
            "/approve/team-a/podinfo",
            "/hooks/team-a/../team-b",
            "/hooks/../team-b",
            "/hooks/team-a/..",
            "/hooks/team-a/.",
            "/hooks/team-a/%2e%2e",
            "/hooks/team-a%2Fpodinfo",
            "/hooks/team-a/pod%69nfo",
            "/hooks/team-a/pod%00info",
            "/hooks/team-a/pod\0info",
            "/hooks/team-a/Podinfo",
            "/hooks/team.a/podinfo",
            "/hooks/-a/podinfo",
            "/hooks/team-a/podinfo-",
            "/hooks/team-a/pödinfo",
            "/hooks/team-a/pod;info",
            "/hooks/team-a\\podinfo",
            long.as_str(),
        ] {
            assert_eq!(route(path), None, "{path}");
        }
    }

    #[test]
    fn the_name_of_an_object_is_safe_in_a_url() {
        for name in ["a", "podinfo-prod-7f3a9c2b1d-17637", "a.b", &"a".repeat(253)] {
            assert!(is_object_name(name), "{name}");
        }
        for name in ["", "a/b", "../secrets/x", "a?b", "a%2fb", "a#b", "A", "a b", ".a", "a.", "-a", &"a".repeat(254)] {
            assert!(!is_object_name(name), "{name}");
        }
    }
}
