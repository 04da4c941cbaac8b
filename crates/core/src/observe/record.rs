//! What changes contain of an application object: the labels, annotations and fields that a pipeline lists. Pure.
//!
//! In: the list, as the author of the pipeline wrote it; an object. Out: the values of the listed names, and nothing else of the object.
//!
//! Anyone who can write a pipeline sees the values, and they are sent to receivers. So a field must not be one whose values can be
//! credentials. In another namespace, only values that are meant for others can be recorded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use kube_core::DynamicObject;

use super::path::{RevisionPath, RevisionPathError, is_credential_name};
use relaybook_api::GROUP;
use relaybook_api::pipeline::record::{MAX_RECORDED, MAX_RECORDED_BYTES, MAX_RECORDED_VALUE};
use relaybook_api::pipeline::{Record, Recorded};
use relaybook_api::values::git::{MAX_GIVEN, without_credentials};

/// Domains whose annotations tell other systems what to do, so that their values are no secrets. `docs/app-data.md` lists them.
const PUBLIC_DOMAINS: [&str; 4] = ["event.toolkit.fluxcd.io", "link.argocd.argoproj.io", "notifications.argoproj.io", GROUP];

/// Why a list of names is invalid.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Too many names.
    #[error("record has {0} names; the maximum is {MAX_RECORDED}")]
    TooMany(usize),
    /// An annotation that contains fields of the object.
    #[error("record.annotations: {0} can contain credentials; name another annotation")]
    Credentials(String),
    /// A path that is invalid.
    #[error("record.fields: {0} {1}")]
    Field(String, RevisionPathError),
}

/// A list of names that can be read from any object.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorder {
    labels: Vec<String>,
    annotations: Vec<String>,
    fields: Vec<(String, RevisionPath)>,
}

impl Recorder {
    /// Parses a list of names.
    pub fn parse(record: &Record) -> Result<Self, RecordError> {
        if record.len() > MAX_RECORDED {
            return Err(RecordError::TooMany(record.len()));
        }
        if let Some(name) = record.annotations.iter().find(|name| is_credential_name(name)) {
            return Err(RecordError::Credentials(name.clone()));
        }
        let field = |path: &String| match RevisionPath::parse(path) {
            Ok(parsed) => Ok((path.clone(), parsed)),
            Err(error) => Err(RecordError::Field(path.clone(), error)),
        };
        let fields = record.fields.iter().map(field).collect::<Result<_, _>>()?;
        Ok(Self { labels: record.labels.clone(), annotations: record.annotations.clone(), fields })
    }

    /// Returns the first annotation or field that a pipeline in another namespace cannot record, with the name of its list.
    #[must_use]
    pub fn private(&self) -> Option<(&'static str, &str)> {
        let annotation =
            self.annotations.iter().find(|name| !is_public_annotation(name)).map(|name| ("annotations", name.as_str()));
        let field = || self.fields.iter().find(|(_, path)| !path.is_public_to_record());
        annotation.or_else(|| field().map(|(path, _)| ("fields", path.as_str())))
    }

    /// Reads the values of an object. `None`: it has none of the names. A value that is too long is left out.
    #[must_use]
    pub fn read(&self, object: &DynamicObject) -> Option<Arc<Recorded>> {
        let mut recorded = Recorded::default();
        let (labels, annotations) = (object.metadata.labels.as_ref(), object.metadata.annotations.as_ref());
        for (name, value) in self.labels.iter().filter_map(|name| labels?.get_key_value(name)) {
            recorded.cut |= !put(&mut recorded.labels, name, value);
        }
        for (name, value) in self.annotations.iter().filter_map(|name| annotations?.get_key_value(name)) {
            let shown = if is_public_annotation(name) { for_others(value) } else { Cow::Borrowed(value.as_str()) };
            recorded.cut |= !put(&mut recorded.annotations, name, &shown);
        }
        for (name, path) in &self.fields {
            let value = path.find(object);
            if !value.is_empty() {
                recorded.cut |= !put(&mut recorded.fields, name, &for_others(&value));
            }
        }
        recorded.shorten(MAX_RECORDED_BYTES);
        (!recorded.is_empty()).then(|| Arc::new(recorded))
    }
}

/// Adds a value. Returns whether it is short enough.
fn put(values: &mut BTreeMap<String, String>, name: &str, value: &str) -> bool {
    let fits = value.len() <= MAX_RECORDED_VALUE;
    if fits {
        values.insert(name.to_owned(), value.to_owned());
    }
    fits
}

/// Returns a value as pipelines of other namespaces can read it. One that is too long is left out, so its URLs do not matter.
fn for_others(value: &str) -> Cow<'_, str> {
    if value.len() <= MAX_GIVEN { Cow::Owned(without_credentials(value)) } else { Cow::Borrowed(value) }
}

/// Whether pipelines of other namespaces can record an annotation: it belongs to a domain whose values are no secrets, or to a part of one.
pub fn is_public_annotation(name: &str) -> bool {
    let Some((domain, _)) = name.split_once('/') else { return false };
    let is_in = |of: &str| domain.strip_suffix(of).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    PUBLIC_DOMAINS.into_iter().any(is_in)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::observe::testing::{APPLICATION, object};

    fn record(labels: &[&str], annotations: &[&str], fields: &[&str]) -> Record {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Record { labels: names(labels), annotations: names(annotations), fields: names(fields) }
    }

    fn application(annotations: &[(&str, &str)], repository: &str) -> DynamicObject {
        let source = json!({"repoURL": repository, "helm": {"values": "password: sesame"}});
        let mut object = object(APPLICATION, &json!({"project": "shop", "source": source, "syncPolicy": {}}), &json!({}));
        object.metadata.labels = Some([("team".to_owned(), "red".to_owned()), ("other".to_owned(), "x".to_owned())].into());
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        object.metadata.annotations = Some(annotations.iter().map(own).collect());
        object
    }

    fn shown(recorded: Option<Arc<Recorded>>) -> serde_json::Value {
        recorded.map(|recorded| serde_json::to_value(&*recorded).unwrap()).unwrap_or_default()
    }

    #[test]
    fn only_listed_names_are_read() {
        let object = application(&[("a.b/c", "#red"), ("d", "no"), ("empty", "")], "https://git.example.com/shop.git");
        for (record, want) in [
            (record(&[], &[], &[]), json!(null)),
            (record(&["none"], &["none"], &[".spec.none", ".spec.syncPolicy"]), json!(null)),
            (record(&["team"], &[], &[]), json!({"labels": {"team": "red"}})),
            (record(&[], &["a.b/c", "empty"], &[]), json!({"annotations": {"a.b/c": "#red", "empty": ""}})),
            (
                record(&["team"], &[], &[".spec.project", "{.spec.source.repoURL}", ".spec.source.helm.*"]),
                json!({
                    "labels": {"team": "red"},
                    "fields": {".spec.project": "shop", "{.spec.source.repoURL}": "https://git.example.com/shop.git"},
                }),
            ),
        ] {
            assert_eq!(shown(Recorder::parse(&record).unwrap().read(&object)), want, "{record:?}");
        }
    }

    #[test]
    fn values_that_are_too_long_are_left_out_and_that_is_visible() {
        let (long, fits) = ("x".repeat(257), "y".repeat(256));
        let annotations = [("a", fits.as_str()), ("b", &long), ("c", &fits), ("d", &fits), ("e", &fits)];
        let object = application(&annotations, "");
        let read = |names: &[&str]| Recorder::parse(&record(&["team"], names, &[])).unwrap().read(&object).unwrap();
        let one = read(&["a", "b"]);
        assert_eq!((one.annotations.keys().collect::<Vec<_>>(), one.cut), (vec![&"a".to_owned()], true));
        let all = read(&["a", "c", "d", "e"]);
        let names: Vec<_> = all.annotations.keys().map(String::as_str).collect();
        assert_eq!((names, all.cut), (vec!["c", "d", "e"], true), "1 KiB");
        assert_eq!(all.labels["team"], "red", "the longest goes first");
        assert!(!read(&["a", "c", "d"]).cut);
        let only = Recorder::parse(&record(&[], &["b"], &[])).unwrap().read(&object).unwrap();
        assert!(only.annotations.is_empty() && only.cut, "the mark stays");
    }

    #[test]
    fn names_that_can_be_credentials_are_refused() {
        for (record, want) in [
            (
                record(&[], &["kubectl.kubernetes.io/last-applied-configuration"], &[]),
                "record.annotations: kubectl.kubernetes.io/last-applied-configuration can contain credentials; name another annotation",
            ),
            (record(&[], &["Token"], &[]), "record.annotations: Token can contain credentials; name another annotation"),
            (
                record(&[], &[], &[".spec.source.helm.values"]),
                "record.fields: .spec.source.helm.values leads through 'values', whose values can be credentials; \
                 name a field that contains only a version",
            ),
            (record(&[], &[], &["..a"]), "record.fields: ..a must name each step: '..' is not allowed"),
            (record(&["a"; 9], &[], &[]), "record has 9 names; the maximum is 8"),
        ] {
            assert_eq!(Recorder::parse(&record).unwrap_err().to_string(), want);
        }
        assert!(Recorder::parse(&record(&["token"], &[], &[])).is_ok(), "labels are no secrets");
    }

    #[test]
    fn in_another_namespace_only_public_values_are_recorded() {
        for (record, want) in [
            (record(&["team"], &[], &[".status.x", ".spec.project", ".spec.sources[0].repoURL"]), None),
            (record(&[], &["notifications.argoproj.io/subscribe.x.slack", "relaybook.dev/slack"], &[]), None),
            (record(&[], &["notify.relaybook.dev/slack", "event.toolkit.fluxcd.io/team"], &[]), None),
            (record(&[], &["team"], &[]), Some(("annotations", "team"))),
            (record(&[], &["acme.example/team"], &[]), Some(("annotations", "acme.example/team"))),
            (record(&[], &["norelaybook.dev/team"], &[]), Some(("annotations", "norelaybook.dev/team"))),
            (
                record(&[], &["relaybook.dev.acme.example/team"], &[]),
                Some(("annotations", "relaybook.dev.acme.example/team")),
            ),
            (record(&[], &[], &[".spec.secretName"]), Some(("fields", ".spec.secretName"))),
            (
                record(&[], &[], &[r".metadata.annotations.acme\.example/team"]),
                Some(("fields", r".metadata.annotations.acme\.example/team")),
            ),
        ] {
            assert_eq!(Recorder::parse(&record).unwrap().private(), want, "{record:?}");
        }
        let docs = include_str!("../../../../docs/app-data.md");
        for domain in PUBLIC_DOMAINS {
            assert!(docs.contains(&format!("`{domain}`")), "{domain}");
        }
    }

    #[test]
    fn public_annotations_and_fields_have_no_credentials() {
        let link = "link.argocd.argoproj.io/external-link";
        let (secret, plain) = ("https://u:sesame@example.com/x?token=sesame", "https://example.com/x");
        let object = application(&[(link, secret), ("own", secret)], secret);
        let record = record(&[], &[link, "own"], &[".spec.source.repoURL"]);
        let want = json!({"annotations": {(link): plain, "own": secret}, "fields": {".spec.source.repoURL": plain}});
        assert_eq!(shown(Recorder::parse(&record).unwrap().read(&object)), want);
    }
}
