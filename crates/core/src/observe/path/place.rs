//! Which values of an object may become a revision. Pure.
//!
//! In: the steps of a path as written, and the location of a value that it has found. Out: whether the value can be a credential, and
//! whether a pipeline in another namespace may show it. Revisions are in the status of pipelines, in deliveries, and at receivers.

use serde_json_path::{NormalizedPath, PathElement};

/// Fields below which values can be credentials, in lower case.
const CREDENTIALS: [&str; 16] = [
    "args",
    "binarydata",
    "command",
    "credentials",
    "data",
    "env",
    "envfrom",
    "kubectl.kubernetes.io/last-applied-configuration",
    "password",
    "secret",
    "stringdata",
    "token",
    "values",
    "valuesfrom",
    "valuesobject",
    "valuesinline",
];

/// Where the places start at which a value can be a label of any name, and where everything was written by a controller.
const LABELS: [&str; 2] = ["metadata", "labels"];
const STATUS: &str = "status";

/// The usual places of versions and clusters, which a pipeline in another namespace may use. `*`: an element of a list.
/// `docs/observing.md` lists them.
pub(super) const PUBLIC: [&str; 27] = [
    "metadata.generation",
    "metadata.name",
    "spec.appVersion",
    "spec.chart.spec.version",
    "spec.chart.version",
    "spec.containers.*.image",
    "spec.destination.name",
    "spec.destination.namespace",
    "spec.destination.server",
    "spec.image",
    "spec.image.tag",
    "spec.images.*.newTag",
    "spec.images.*.tag",
    "spec.jobTemplate.spec.template.spec.containers.*.image",
    "spec.ref.branch",
    "spec.ref.commit",
    "spec.ref.semver",
    "spec.ref.tag",
    "spec.revision",
    "spec.source.targetRevision",
    "spec.sources.*.targetRevision",
    "spec.tag",
    "spec.targetRevision",
    "spec.template.spec.containers.*.image",
    "spec.template.spec.initContainers.*.image",
    "spec.template.spec.revision",
    "spec.version",
];

/// Further places that a pipeline in another namespace may record: where an application comes from, and to which project it belongs.
/// `docs/app-data.md` lists them.
pub(super) const RECORDED: [&str; 9] = [
    "spec.chart.spec.chart",
    "spec.chart.spec.sourceRef.name",
    "spec.path",
    "spec.project",
    "spec.source.chart",
    "spec.source.path",
    "spec.source.repoURL",
    "spec.sourceRef.name",
    "spec.sources.*.repoURL",
];

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A field with this name.
    Name(String),
    /// The element of a list at this position.
    Element(usize),
    /// Elements of a list, by position or by the value of their field `name`. A wildcard also selects all fields of an object.
    Elements,
    /// Any other selector, such as a filter that compares values.
    Other,
}

impl Step {
    /// Returns the step for the text between brackets.
    pub(super) fn in_brackets(text: &str) -> Self {
        let text = text.trim();
        match (unquoted(text), text.parse()) {
            (Some(name), _) => Self::Name(name.to_owned()),
            (None, Ok(position)) => Self::Element(position),
            _ if text == "*" || text.chars().all(|c| c.is_ascii_digit() || matches!(c, '-' | ':')) => Self::Elements,
            _ if is_by_name(text) => Self::Elements,
            _ => Self::Other,
        }
    }
}

/// Returns the text between quotes, if it is one text without escapes.
fn unquoted(text: &str) -> Option<&str> {
    let inner = ['\'', '"'].into_iter().find_map(|quote| {
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inner.contains(quote)).then_some(inner)
    });
    inner.filter(|name| !name.contains('\\'))
}

/// Whether this filter only compares the name of an element: `?(@.name=="web")`. A filter that compares other values would reveal them.
fn is_by_name(text: &str) -> bool {
    let Some(filter) = text.strip_prefix('?').map(str::trim) else { return false };
    let filter = filter.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')).unwrap_or(filter).trim();
    let wanted = filter.strip_prefix("@.name").and_then(|rest| rest.trim_start().strip_prefix("=="));
    wanted.is_some_and(|wanted| unquoted(wanted.trim()).is_some())
}

/// Returns the first field of the path below which values can be credentials.
pub(super) fn credentials(steps: &[Step]) -> Option<&str> {
    first_credential(steps.iter().map(|step| if let Step::Name(name) = step { name } else { "" }))
}

/// Whether the value at this location can be a credential. A wildcard leads through fields that the path does not name.
pub(super) fn is_credential(location: &NormalizedPath<'_>) -> bool {
    first_credential(location.iter().map(|element| match element {
        PathElement::Name(name) => *name,
        PathElement::Index(_) => "",
    }))
    .is_some()
}

fn first_credential<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    if names.clone().take(LABELS.len()).eq(LABELS) {
        return None;
    }
    let mut names = names;
    names.find(|name| is_credential_name(name))
}

/// Whether values below a field with this name can be credentials.
pub(in crate::observe) fn is_credential_name(name: &str) -> bool {
    CREDENTIALS.contains(&name.to_ascii_lowercase().as_str())
}

/// Whether a pipeline in another namespace may show the value at this path: one of the status, a label, or a usual place.
pub(super) fn is_public(steps: &[Step]) -> bool {
    match steps {
        [Step::Name(status), ..] if status == STATUS => true,
        [metadata, labels, Step::Name(_)] if named(metadata, LABELS[0]) && named(labels, LABELS[1]) => true,
        _ => PUBLIC.iter().any(|place| is_place(steps, place)),
    }
}

/// Whether a pipeline in another namespace may record the value at this path.
pub(super) fn is_public_to_record(steps: &[Step]) -> bool {
    is_public(steps) || RECORDED.iter().any(|place| is_place(steps, place))
}

fn named(step: &Step, wanted: &str) -> bool {
    match step {
        Step::Name(name) => name == wanted,
        Step::Element(_) | Step::Elements => wanted == "*",
        Step::Other => false,
    }
}

fn is_place(steps: &[Step], place: &str) -> bool {
    let mut wanted = place.split('.');
    steps.iter().all(|step| wanted.next().is_some_and(|wanted| named(step, wanted))) && wanted.next().is_none()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::observe::path::RevisionPath;
    use crate::observe::testing::{OTHER, object};
    use relaybook_text::spelling;

    fn public(path: &str) -> Option<bool> {
        RevisionPath::parse(path).ok().map(|path| path.is_public())
    }

    #[test]
    fn only_usual_places_are_public_to_pipelines_of_other_namespaces() {
        for path in [
            ".status.anything[?(@.x > 3)].version",
            "$['status']",
            r".metadata.labels.app\.kubernetes\.io/version",
            ".metadata.labels.env",
            ".metadata.name",
            ".spec.version",
            "spec['version']",
            ".spec.images[*].tag",
            ".spec.template.spec.containers[0].image",
            ".spec.template.spec.containers[?(@.name==\"web\")].image",
            ".spec.template.spec.containers[?@.name == 'web'].image",
            ".spec.template.spec.containers[0:2].image",
        ] {
            assert_eq!(public(path), Some(true), "{path}");
        }
        for path in [
            ".spec",
            ".spec.*",
            ".spec[*].version",
            ".spec.replicas",
            ".spec.template.spec.*",
            ".spec.template.spec[*].image",
            ".spec.template.spec.containers[*][*]",
            ".spec.template.spec.containers[?(@.env[0].value > \"m\")].image",
            ".spec.template.spec.containers[?(@.name==\"web\" && @.x==\"y\")].image",
            ".spec.template.spec.containers[?(@.name==@.x)].image",
            ".spec.template.spec.containers[?(@.name>\"web\")].image",
            ".metadata.labels",
            ".metadata.labels.*",
            ".metadata.annotations.a",
            ".metadata.*",
            ".Status.version",
            ".statuses.version",
        ] {
            assert_eq!(public(path), Some(false), "{path}");
        }
    }

    #[test]
    fn the_documentation_lists_the_usual_places() {
        let docs = include_str!("../../../../../docs/observing.md");
        for place in PUBLIC {
            let shown = format!("`.{}`", place.replace(".*", "[*]"));
            assert!(docs.contains(&shown), "{shown}");
        }
    }

    #[test]
    fn the_documentation_lists_the_places_that_can_be_recorded() {
        let docs = include_str!("../../../../../docs/app-data.md");
        for place in RECORDED {
            let shown = format!("`.{}`", place.replace(".*", "[*]"));
            assert!(docs.contains(&shown), "{shown}");
            let path = RevisionPath::parse(&shown.replace('`', "")).unwrap();
            assert!(path.is_public_to_record() && !path.is_public(), "{shown}");
        }
    }

    /// An object with a credential at each place that has some.
    fn secretive() -> (Value, Value) {
        let container = json!({"name": "web", "image": "web:1", "env": [{"name": "A", "value": "sesame"}], "args": ["sesame"],
            "command": ["sesame"], "envFrom": [{"x": "sesame"}]});
        let spec = json!({"version": "1", "values": {"a": {"b": "sesame"}}, "data": {"a": "sesame"}, "stringData": {"a": "sesame"},
            "template": {"spec": {"containers": [container]}}, "valuesObject": {"a": "sesame"}, "Values": "sesame"});
        (spec, json!({"version": "1", "data": {"token": "sesame"}}))
    }

    #[test]
    fn no_revision_is_read_from_places_of_credentials() {
        let (spec, status) = secretive();
        let object = object(OTHER, &spec, &status);
        for path in [
            ".data.password",
            ".spec.values.image.tag",
            ".spec['values'].a",
            ".spec.Values",
            ".spec.template.spec.containers[0].env[0].value",
            ".spec.template.spec.containers[*]['args'][0]",
            ".stringData.a",
            r".metadata.annotations.kubectl\.kubernetes\.io/last-applied-configuration",
            ".status.data.token",
        ] {
            let refused = RevisionPath::parse(path).expect_err(path).to_string();
            assert!(refused.contains("can be credentials"), "{path}: {refused}");
        }
        for path in [
            ".spec[*]",
            ".spec[*][*]",
            ".spec[*][*][*]",
            ".spec.template.spec.containers[0][*][*][*]",
            ".status[*][*]",
            r".spec['va\u006cues'].a.b",
            ".spec.template.spec.containers[*][*][*]",
        ] {
            let found = RevisionPath::parse(path).map(|path| path.find(&object)).unwrap_or_default();
            assert!(!found.contains("sesame"), "{path}: {found}");
        }
    }

    proptest! {
        /// Whatever the spelling, the value of a credential is not found.
        #[test]
        fn no_spelling_of_a_path_finds_a_credential(
            path in spelling(&[
                ".spec.values.a.b", "$['spec']['values'][*][*]", ".spec.template.spec.containers[*].env[*].value",
                ".spec.template.spec.containers[0].args[0]", ".spec.data.a", "{.spec.*.*}",
            ]),
        ) {
            let (spec, status) = secretive();
            if let Ok(path) = RevisionPath::parse(&path) {
                prop_assert!(!path.find(&object(OTHER, &spec, &status)).contains("sesame"), "{path:?}");
            }
        }
    }
}
