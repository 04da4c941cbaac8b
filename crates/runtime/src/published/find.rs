//! Reads the configuration that the controllers published.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

use super::choose::choose;
use super::{Dispatch, Installation, LABEL, LookupError, NAME, Pipeline, Versions};
use relaybook_telemetry::chain;
use relaybook_text::first_line;

/// The default namespace of an installation.
const DEFAULT_NAMESPACE: &str = "relaybook-system";
/// Page size of a list.
const PAGE: u32 = 100;
/// Maximum number of times that the list starts again, because the API server no longer has the version of its next page.
const RESTARTS: u32 = 5;

/// Returns the settings that apply to the pipelines of a namespace. If a `controller` namespace is given, they come from it. Otherwise they
/// come from `relaybook-system` if that controller watches the namespace, else from the only controller in the cluster that does.
pub async fn find(client: &Client, controller: Option<&str>, namespace: &str) -> Result<Installation, LookupError> {
    if let Some(controller) = controller {
        return get(client, controller).await;
    }
    let usual = get(client, DEFAULT_NAMESPACE).await;
    if let Ok(found) = &usual
        && found.watches(namespace)
    {
        return usual;
    }
    match all(client).await {
        Ok(all) => choose(all, namespace),
        // A user with access to one namespace cannot list ConfigMaps in all namespaces.
        Err(kube::Error::Api(status)) if status.code == 403 => usual.and_then(|found| choose(vec![Ok(found)], namespace)),
        // Another controller may watch the namespace, so it is not known which settings apply.
        Err(error) => Err(LookupError::Unlisted(chain(&error))),
    }
}

/// Returns the versions of the controllers in a `controller` namespace, or otherwise in all namespaces. Without the permission to list them all,
/// only `relaybook-system` is read. The result is never empty: an error says why versions are unknown.
pub async fn versions(client: &Client, controller: Option<&str>) -> Vec<Result<Versions, LookupError>> {
    let read = |(namespace, object): (String, ConfigMap)| Versions::read(&namespace, object.data.as_ref());
    of_controllers(client, controller).await.into_iter().map(|found| found.and_then(read)).collect()
}

/// Returns the settings of the pipeline controllers in the same namespaces, each with its namespace. The result is empty if no process of
/// them runs the pipeline controller.
pub async fn pipelines(client: &Client, controller: Option<&str>) -> Vec<Result<(String, Pipeline), LookupError>> {
    let read = |found: Result<(String, ConfigMap), LookupError>| {
        let (namespace, object) = match found {
            Ok(found) => found,
            Err(error) => return Some(Err(error)),
        };
        let text = object.data.as_ref().and_then(|data| data.get(Pipeline::KEY))?;
        Some(match serde_saphyr::from_str::<Pipeline>(text) {
            Ok(settings) => Ok((namespace, settings)),
            Err(error) => {
                let problem = format!("{}: {}", Pipeline::KEY, first_line(&error.to_string()));
                Err(LookupError::Unusable { namespace, problem })
            }
        })
    };
    of_controllers(client, controller).await.into_iter().filter_map(read).collect()
}

/// Returns the ConfigMaps of the controllers in a `controller` namespace, or otherwise in all namespaces, each with its namespace. The result
/// is never empty.
async fn of_controllers(client: &Client, controller: Option<&str>) -> Vec<Result<(String, ConfigMap), LookupError>> {
    let namespace = match controller {
        Some(controller) => controller,
        None => match objects(client).await {
            Ok(objects) if objects.is_empty() => return vec![Err(LookupError::NoInstallation)],
            Ok(objects) => return objects.into_iter().map(|o| Ok((o.namespace().unwrap_or_default(), o))).collect(),
            Err(kube::Error::Api(status)) if status.code == 403 => DEFAULT_NAMESPACE,
            Err(error) => return vec![Err(LookupError::Unlisted(chain(&error)))],
        },
    };
    vec![object(client, namespace).await.map(|object| (namespace.to_owned(), object))]
}

/// Returns the configurations of all dispatchers in the cluster.
pub async fn all(client: &Client) -> Result<Vec<Result<Installation, LookupError>>, kube::Error> {
    let objects = objects(client).await?;
    // The ConfigMap of a pipeline controller without a dispatcher has no such key.
    let of_dispatchers =
        objects.iter().filter(|object| object.data.as_ref().is_some_and(|data| data.contains_key(Dispatch::KEY)));
    Ok(of_dispatchers.map(|o| Installation::read(&o.namespace().unwrap_or_default(), o.data.as_ref())).collect())
}

/// Returns the ConfigMaps of all controllers in the cluster.
async fn objects(client: &Client) -> Result<Vec<ConfigMap>, kube::Error> {
    let api: Api<ConfigMap> = Api::all(client.clone());
    let mut params = ListParams::default().labels(&format!("{LABEL}=true")).limit(PAGE);
    let (mut all, mut restarts) = (Vec::new(), 0);
    loop {
        let page = api.list(&params).await;
        let page = match page {
            Ok(page) => page,
            Err(kube::Error::Api(status))
                if status.code == 410 && params.continue_token.is_some() && restarts < RESTARTS =>
            {
                restarts += 1;
                params.continue_token = None;
                all.clear();
                continue;
            }
            Err(error) => return Err(error),
        };
        all.extend(page.items.into_iter().filter(|object| object.name_any() == NAME));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

async fn get(client: &Client, namespace: &str) -> Result<Installation, LookupError> {
    Installation::read(namespace, object(client, namespace).await?.data.as_ref())
}

async fn object(client: &Client, namespace: &str) -> Result<ConfigMap, LookupError> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let owned = || namespace.to_owned();
    match api.get_opt(NAME).await {
        Ok(Some(object)) => Ok(object),
        Ok(None) => Err(LookupError::NoConfigMap(owned())),
        Err(kube::Error::Api(status)) if status.code == 403 => Err(LookupError::Forbidden(owned())),
        Err(error) => Err(LookupError::Unread { namespace: owned(), problem: chain(&error) }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// Returns a client of an API server that has no such ConfigMap in the default namespace. It answers the lists in this order.
    fn client(lists: impl IntoIterator<Item = (u16, Value)>) -> Client {
        let mut lists: VecDeque<_> = lists.into_iter().collect();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let is_list = request.uri().path() == "/api/v1/configmaps";
            let (code, answer) = if is_list { lists.pop_front().unwrap() } else { failure(404) };
            let body = Body::from(answer.to_string().into_bytes());
            std::future::ready(Ok::<_, tower::BoxError>(http::Response::builder().status(code).body(body).unwrap()))
        });
        Client::new(service, "default")
    }

    fn failure(code: u16) -> (u16, Value) {
        let reason = if code == 404 { "NotFound" } else { "Because" };
        (code, json!({"kind": "Status", "status": "Failure", "message": "because", "reason": reason, "code": code}))
    }

    /// A page with the settings of the controller in this namespace.
    fn page(namespace: &str, next: &str) -> (u16, Value) {
        let dispatch = Dispatch {
            version: "0.1.0".to_owned(),
            watch_namespaces: Vec::new(),
            cluster_name: "in-cluster".to_owned(),
            config_map: "relaybook-config".to_owned(),
            allow_http: false,
            allow_destinations: Vec::new(),
            deny_destinations: Vec::new(),
            page_url: None,
        };
        let data = json!({(Dispatch::KEY): serde_saphyr::to_string(&dispatch).unwrap()});
        let metadata = json!({"resourceVersion": "9", "continue": next});
        let items = json!([{"metadata": {"name": NAME, "namespace": namespace}, "data": data}]);
        (200, json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items}))
    }

    #[tokio::test]
    async fn a_failed_list_is_reported_unless_only_the_permission_is_missing() {
        let found = find(&client([failure(500)]), None, "team-a").await;
        assert!(matches!(found, Err(LookupError::Unlisted(_))), "{found:?}");
        let found = find(&client([failure(403)]), None, "team-a").await;
        assert_eq!(found, Err(LookupError::NoConfigMap(DEFAULT_NAMESPACE.to_owned())));
    }

    #[tokio::test]
    async fn a_list_whose_version_has_expired_starts_again() {
        let lists = [page("one", "next"), failure(410), page("one", "next"), failure(410), page("two", "")];
        let found = find(&client(lists), None, "team-a").await;
        assert_eq!(found.map(|found| found.namespace), Ok("two".to_owned()));
        let found = find(&client([failure(410)]), None, "team-a").await;
        assert!(matches!(found, Err(LookupError::Unlisted(_))), "it was the first page: {found:?}");
    }

    #[tokio::test]
    async fn settings_of_pipeline_controllers_are_read_also_from_another_version() {
        let found = async |data: Value| {
            let items = json!([{"metadata": {"name": NAME, "namespace": "a"}, "data": data}]);
            let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": items});
            pipelines(&client([(200, list)]), None).await
        };
        let old = "version: 0.1.0\nwatchNamespaces: [team-a]\nclusterName: in-cluster\nnoCrossNamespaceRefs: true\n\
                   allowInsecureClusters: false\n";
        for (text, follow) in [
            (old.to_owned(), vec![]),
            (format!("{old}follow: [kustomizations]\nlater: 1\n"), vec!["kustomizations".to_owned()]),
        ] {
            let all = found(json!({(Pipeline::KEY): text})).await;
            let [Ok((namespace, settings))] = &all[..] else { panic!("{all:?}") };
            assert_eq!((namespace.as_str(), &settings.follow), ("a", &follow));
            assert!(settings.no_cross_namespace_refs && settings.watch_namespaces == ["team-a"]);
        }
        assert!(found(json!({(Dispatch::KEY): "version: 0.1.0"})).await.is_empty());
        let all = found(json!({(Pipeline::KEY): "["})).await;
        assert!(matches!(&all[..], [Err(LookupError::Unusable { .. })]), "{all:?}");
        assert_eq!(pipelines(&client([failure(403)]), Some("b")).await, [Err(LookupError::NoConfigMap("b".to_owned()))]);
    }

    #[tokio::test]
    async fn versions_are_those_of_every_namespace_or_a_reason() {
        let found = async |lists: Vec<(u16, Value)>, controller: Option<&str>| {
            let found = versions(&client(lists), controller).await;
            found.into_iter().map(|one| one.map(|one| one.namespace)).collect::<Vec<_>>()
        };
        let owned = |text: &str| text.to_owned();
        let empty = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": []});
        let (none, usual) = ((200, empty), owned(DEFAULT_NAMESPACE));
        assert_eq!(found(vec![page("a", "next"), page("b", "")], None).await, [Ok(owned("a")), Ok(owned("b"))]);
        assert_eq!(found(vec![none], None).await, [Err(LookupError::NoInstallation)]);
        assert_eq!(found(vec![failure(403)], None).await, [Err(LookupError::NoConfigMap(usual))]);
        assert_eq!(found(vec![], Some("a")).await, [Err(LookupError::NoConfigMap(owned("a")))]);
        let unlisted = found(vec![failure(500)], None).await;
        assert!(matches!(unlisted[..], [Err(LookupError::Unlisted(_))]), "{unlisted:?}");
    }
}
