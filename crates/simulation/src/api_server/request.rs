//! Pure: a request to the API server, read from HTTP.
//!
//! In: method, URL, headers and body. Out: what is requested of which object.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method};
use url::form_urlencoded;

use super::failure::Failure;

/// What is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read many objects.
    List,
    /// Read changes of many objects.
    Watch,
    /// Create an object.
    Create,
    /// Replace an object.
    Replace,
    /// Change an object by a JSON Patch.
    JsonPatch,
    /// Change an object by a merge patch.
    MergePatch,
    /// Create or change an object by server-side apply.
    Apply,
    /// Delete an object.
    Delete,
}

impl Verb {
    /// Whether the request can change an object.
    #[must_use]
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What is requested.
    pub verb: Verb,
    /// The group of the resource. Empty: the core group.
    pub group: String,
    /// The version of the resource.
    pub version: String,
    /// The name of the resource, such as `pipelines`.
    pub plural: String,
    /// The namespace. Empty: all, or the resource has none.
    pub namespace: String,
    /// The name of the object. Empty in a list, a watch and a create.
    pub name: String,
    /// Whether the status is requested.
    pub is_status: bool,
    /// Whether only metadata is requested.
    pub is_metadata: bool,
    /// The parameters.
    pub query: BTreeMap<String, String>,
    /// The body.
    pub body: Bytes,
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    ///
    /// If the path is not that of a resource, or the model does not know the method.
    pub fn parse(method: &Method, path: &str, query: &str, headers: &HeaderMap, body: Bytes) -> Result<Self, Failure> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match &parts[..] {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(Failure::unserved()),
        };
        let (namespace, plural, rest) = match rest {
            ["namespaces", namespace, plural, rest @ ..] => (*namespace, *plural, rest),
            [plural, rest @ ..] => ("", *plural, rest),
            [] => return Err(Failure::unserved()),
        };
        let (name, is_status) = match rest {
            [] => ("", false),
            [name] => (*name, false),
            [name, "status"] => (*name, true),
            _ => return Err(Failure::unserved()),
        };
        let query: BTreeMap<String, String> = form_urlencoded::parse(query.as_bytes())
            .map(|(key, value)| (Cow::into_owned(key), value.into_owned()))
            .collect();
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_watch = query.get("watch").is_some_and(|watch| watch == "true" || watch == "1");
        let verb = match (method, name.is_empty()) {
            (&Method::GET, false) => Verb::Get,
            (&Method::GET, true) => {
                if is_watch {
                    Verb::Watch
                } else {
                    Verb::List
                }
            }
            (&Method::POST, true) => Verb::Create,
            (&Method::PUT, false) => Verb::Replace,
            (&Method::DELETE, false) => Verb::Delete,
            (&Method::PATCH, false) => match header(CONTENT_TYPE) {
                "application/json-patch+json" => Verb::JsonPatch,
                "application/merge-patch+json" => Verb::MergePatch,
                "application/apply-patch+yaml" => Verb::Apply,
                _ => return Err(Failure::bad("the model does not know this kind of patch")),
            },
            _ => return Err(Failure::bad("the model does not know this method")),
        };
        Ok(Self {
            verb,
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            is_status,
            is_metadata: header(ACCEPT).contains("as=PartialObjectMetadata"),
            query,
            body,
        })
    }

    /// Returns a parameter. Empty: it is absent.
    #[must_use]
    pub fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, plural, namespace, name, .. } = self;
        let status = if self.is_status { "/status" } else { "" };
        write!(f, "{verb:?} {plural}{status} {namespace}/{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_from_its_method_its_url_and_its_headers() {
        let json = "application/json";
        let table = [
            ("GET", "/api/v1/configmaps", json, "List configmaps /"),
            ("GET", "/api/v1/namespaces/a", json, "Get namespaces /a"),
            ("GET", "/api/v1/namespaces/a/configmaps?watch=true&x=%2C", json, "Watch configmaps a/"),
            ("POST", "/apis/g/v1/namespaces/a/things?", json, "Create things a/"),
            ("PUT", "/apis/g/v1/namespaces/a/things/b", json, "Replace things a/b"),
            (
                "PATCH",
                "/apis/g/v1/namespaces/a/things/b/status",
                "application/json-patch+json",
                "JsonPatch things/status a/b",
            ),
            ("PATCH", "/apis/g/v1/namespaces/a/things/b", "application/merge-patch+json", "MergePatch things a/b"),
            ("PATCH", "/apis/g/v1/namespaces/a/things/b", "application/apply-patch+yaml", "Apply things a/b"),
            ("PATCH", "/apis/g/v1/namespaces/a/things/b", "application/strategic-merge-patch+json", "400"),
            ("DELETE", "/apis/g/v1/namespaces/a/things/b?", json, "Delete things a/b"),
            ("DELETE", "/apis/g/v1/namespaces/a/things", json, "400"),
            ("GET", "/healthz", json, "404"),
            ("GET", "/apis/g/v1", json, "404"),
            ("GET", "/apis/g/v1/namespaces/a/things/b/scale", json, "404"),
        ];
        for (method, url, content, expected) in table {
            let (path, query) = url.split_once('?').unwrap_or((url, ""));
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, content.parse().unwrap())]);
            let read = Request::parse(&method.parse().unwrap(), path, query, &headers, Bytes::new());
            let told = read.as_ref().map_or_else(|failure| failure.code.to_string(), Request::to_string);
            assert_eq!(told, expected, "{method} {url}");
        }
        let headers = HeaderMap::from_iter([(
            ACCEPT,
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1".parse().unwrap(),
        )]);
        let read = Request::parse(&Method::GET, "/api/v1/configmaps", "labelSelector=a%3Db&limit=2", &headers, Bytes::new());
        let read = read.unwrap();
        assert_eq!((read.is_metadata, read.parameter("labelSelector"), read.parameter("limit")), (true, "a=b", "2"));
    }
}
