//! Pure: which resources the API server says that it serves.
//!
//! In: the path of a group and version. Out: the list of its resources, as `kube::discovery` reads it.

use bytes::Bytes;
use serde_json::{Value, json};

use super::Server;
use super::failure::Failure;

impl Server {
    /// Returns the resources of a path such as `/apis/apps/v1`. `None`: the path is another one.
    ///
    /// # Errors
    ///
    /// If the API server has no such group and version.
    pub(crate) fn discovered(&self, path: &str) -> Option<Result<Bytes, Failure>> {
        let (group, version) = match path.trim_matches('/').split('/').collect::<Vec<_>>()[..] {
            ["api", version] => ("", version),
            ["apis", group, version] => (group, version),
            _ => return None,
        };
        let of_group = self.kinds.iter().filter(|kind| kind.group == group && kind.version == version);
        let resources: Vec<Value> = of_group
            .map(|kind| {
                json!({"name": kind.plural, "singularName": kind.kind.to_lowercase(), "namespaced": kind.is_namespaced,
                    "kind": kind.kind, "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]})
            })
            .collect();
        if resources.is_empty() {
            return Some(Err(Failure::unserved()));
        }
        let group_version = path.trim_matches('/').split_once('/').map_or("", |(_, rest)| rest);
        let list =
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources});
        Some(Ok(list.to_string().into()))
    }
}
