//! The chart as Helm renders it, and the permissions that it grants.
//!
//! In: values. Out: the objects of a release ([`Release`]), applied to a real API server as `kubectl apply` does
//! ([`Release::apply`]), and a kubeconfig with exactly the permissions of the chart's `ServiceAccount`
//! ([`Release::as_its_account`]).

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::config::{AuthInfo, Kubeconfig};
use serde_json::{Value, json};

use super::account;
use super::control_plane;
use super::wait::eventually;

/// Kinds of the objects that grant permissions.
const RIGHTS: [&str; 5] = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];

/// The root folder of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Path of Helm. The first call on a machine builds it, which takes minutes; the script reports that on stderr.
pub fn helm() -> &'static Path {
    static HELM: OnceLock<PathBuf> = OnceLock::new();
    HELM.get_or_init(|| {
        let script = root().join("hack/tool.sh");
        let built = Command::new("bash").arg(script).arg("helm").stderr(Stdio::inherit()).output().expect("bash");
        assert!(built.status.success(), "helm does not build; it says why above");
        String::from_utf8(built.stdout).expect("a path").trim().into()
    })
}

/// Runs a program with this text on stdin.
pub fn run(program: &Path, args: &[&str], stdin: &str) -> Output {
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The Helm settings of the user of this machine must not affect the tests.
    command.env_remove("KUBECONFIG").env("HELM_CONFIG_HOME", crate::support::tmp());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{} cannot be run: {e}", program.display()));
    let mut pipe = child.stdin.take().expect("piped");
    let text = stdin.to_owned();
    let writing = std::thread::spawn(move || pipe.write_all(text.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    // The write fails if the program ends without reading its stdin.
    let _ = writing.join().expect("no panic");
    output
}

/// Returns stdout of a program that succeeded, or stderr of one that failed.
pub fn answer(output: Output) -> Result<String, String> {
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// Returns the documents of a YAML text.
pub fn documents(text: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).unwrap_or_else(|e| panic!("not YAML: {e}\n{text}"));
    all.into_iter().filter(|document| !document.is_null()).collect()
}

/// Returns the sets of values in `charts/relaybook/ci`, by name.
pub fn value_sets() -> BTreeMap<String, Value> {
    let folder = std::fs::read_dir(root().join("charts/relaybook/ci")).expect("the folder of value sets");
    let files = folder.map(|entry| entry.expect("an entry").path());
    let set = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix("-values.yaml")?.to_owned();
        let values: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).ok()?).expect("values are YAML");
        Some((name, values))
    };
    files.filter_map(set).collect()
}

/// The objects that the chart renders.
pub struct Release {
    /// Namespace of the release.
    pub namespace: String,
    /// All objects except hooks.
    pub objects: Vec<Value>,
    /// The objects of `helm test`.
    pub hooks: Vec<Value>,
}

impl Release {
    /// Renders the chart, or returns Helm's error. Adds an image to values that name none.
    pub fn render(name: &str, namespace: &str, values: &Value) -> Result<Self, String> {
        let mut with_image = json!({"image": {"repository": "registry.example.com/relaybook"}});
        json_patch::merge(&mut with_image, values);
        Self::as_given(name, namespace, &with_image)
    }

    /// Renders the chart with exactly these values.
    pub fn as_given(name: &str, namespace: &str, values: &Value) -> Result<Self, String> {
        let args = ["template", name, "charts/relaybook", "--namespace", namespace, "--values", "-"];
        let text = answer(run(helm(), &args, &values.to_string()))?;
        let is_hook = |object: &Value| object["metadata"]["annotations"].get("helm.sh/hook").is_some();
        let (hooks, objects) = documents(&text).into_iter().partition(is_hook);
        Ok(Self { namespace: namespace.to_owned(), objects, hooks })
    }

    /// Returns the objects of a kind.
    pub fn of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// Returns the Pod specification of the Deployment.
    pub fn pod(&self) -> &Value {
        &self.of("Deployment").next().expect("a Deployment")["spec"]["template"]["spec"]
    }

    /// Returns the arguments of the program.
    pub fn args(&self) -> Vec<&str> {
        let args = self.pod()["containers"][0]["args"].as_array().expect("a list");
        args.iter().map(|arg| arg.as_str().expect("a text")).collect()
    }

    /// Returns the name of the `ServiceAccount` of the Pods.
    pub fn account(&self) -> &str {
        self.pod()["serviceAccountName"].as_str().expect("a name")
    }

    /// Returns the Pod specification of `helm test`.
    pub fn test_pod(&self) -> &Value {
        &self.hooks.iter().find(|object| object["kind"] == "Pod").expect("a Pod")["spec"]
    }

    /// Returns the rules of the `Role`s and `ClusterRole`s of the account, each with the namespace in which it applies
    /// (`None`: all namespaces).
    pub fn rules(&self) -> Vec<(Option<&str>, &Value)> {
        let roles = self.of("ClusterRole").chain(self.of("Role")).filter(|role| self.is_of_account(role));
        let all = roles.flat_map(|role| {
            let namespace = role["metadata"]["namespace"].as_str();
            role["rules"].as_array().into_iter().flatten().map(move |rule| (namespace, rule))
        });
        all.collect()
    }

    /// Whether this role is bound to the account. Other roles of the chart are for users.
    fn is_of_account(&self, role: &Value) -> bool {
        let binds = |binding: &Value| {
            let same = |field: &str| binding["metadata"][field] == role["metadata"][field];
            same("namespace")
                && binding["roleRef"]["name"] == role["metadata"]["name"]
                && binding["roleRef"]["kind"] == role["kind"]
                && binding["subjects"][0]["kind"] == "ServiceAccount"
        };
        self.of("ClusterRoleBinding").chain(self.of("RoleBinding")).any(binds)
    }

    /// Applies the objects that `which` selects with `kubectl apply --server-side`. With `dry`, the API server only reports
    /// whether it would accept them.
    pub fn apply(&self, kubeconfig: &Path, dry: bool, which: impl Fn(&Value) -> bool) -> Result<String, String> {
        let items: Vec<_> = self.objects.iter().filter(|object| which(object)).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        let kubeconfig = kubeconfig.to_str().expect("UTF-8");
        let mut args = vec!["--kubeconfig", kubeconfig, "apply", "--server-side", "--force-conflicts", "-f", "-"];
        args.extend(dry.then_some("--dry-run=server"));
        answer(run(&control_plane::kubectl(), &args, &list.to_string()))
    }

    /// Applies the objects that grant permissions, and waits until the API server enforces them.
    pub async fn grant(&self, kubeconfig: &Path) -> Account {
        let applied = self.apply(kubeconfig, false, |object| RIGHTS.iter().any(|kind| object["kind"] == *kind));
        applied.unwrap_or_else(|why| panic!("the rights are refused: {why}"));
        let client = control_plane::client(kubeconfig).await;
        let account = Account { client, namespace: self.namespace.clone(), name: self.account().to_owned() };
        for (namespace, rule) in self.rules() {
            let first = |field: &str| rule[field][0].as_str().unwrap_or_default().to_owned();
            let (resource, subresource) = match first("resources").split_once('/') {
                Some((resource, subresource)) => (resource.to_owned(), Some(subresource.to_owned())),
                None => (first("resources"), None),
            };
            let ask = ResourceAttributes {
                verb: Some(first("verbs")),
                group: Some(first("apiGroups")),
                resource: Some(resource),
                subresource,
                namespace: namespace.map(str::to_owned),
                name: Some(first("resourceNames")).filter(|name| !name.is_empty()),
                ..ResourceAttributes::default()
            };
            eventually(&format!("{ask:?} is allowed"), async || {
                if account.asks(ask.clone()).await { Ok(()) } else { Err("it is not".to_owned()) }
            })
            .await;
        }
        account
    }

    /// Applies the permissions, and returns a kubeconfig with a token of the account.
    pub async fn as_its_account(&self, kubeconfig: &Path) -> PathBuf {
        self.grant(kubeconfig).await.kubeconfig(kubeconfig, &self.namespace).await
    }
}

/// A `ServiceAccount` in an API server.
pub struct Account {
    client: Client,
    /// Namespace of the account.
    pub namespace: String,
    /// Name of the account.
    pub name: String,
}

impl Account {
    /// Creates a `ServiceAccount` with the permissions of a `ClusterRole` in its namespace.
    pub async fn bound(client: &Client, namespace: &str, name: &str, role: &str) -> Self {
        let account = serde_json::from_value(json!({"metadata": {"name": name}})).expect("an account");
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        accounts.create(&PostParams::default(), &account).await.expect("created");
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        });
        let binding: RoleBinding = serde_json::from_value(binding).expect("a binding");
        Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &binding).await.expect("created");
        Self { client: client.clone(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Whether the account has a permission, written as `VERB RESOURCE[.GROUP][/SUBRESOURCE] [NAMESPACE [NAME]]`. Without
    /// a namespace: in all namespaces.
    pub async fn may(&self, words: &str) -> bool {
        let mut words = words.split(' ').map(str::to_owned);
        let verb = words.next();
        let what = words.next().expect("a resource");
        let (what, subresource) = what.split_once('/').map_or((&*what, None), |(what, sub)| (what, Some(sub.to_owned())));
        let (resource, group) = what.split_once('.').unwrap_or((what, ""));
        let (resource, group) = (Some(resource.to_owned()), Some(group.to_owned()));
        let (namespace, name) = (words.next(), words.next());
        self.asks(ResourceAttributes { verb, group, resource, subresource, namespace, name, ..Default::default() }).await
    }

    async fn asks(&self, attributes: ResourceAttributes) -> bool {
        let Self { namespace, name, .. } = self;
        let of_namespace = format!("system:serviceaccounts:{namespace}");
        let groups = vec!["system:serviceaccounts".to_owned(), of_namespace, "system:authenticated".to_owned()];
        let spec = SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{name}")),
            groups: Some(groups),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        api.create(&PostParams::default(), &review).await.expect("reviewed").status.expect("an answer").allowed
    }

    /// Returns a kubeconfig with a token of the account, for the API server of another kubeconfig. `unique` begins the file name.
    pub async fn kubeconfig(&self, of: &Path, unique: &str) -> PathBuf {
        let token = account::token(&self.client, &self.namespace, &self.name).await;
        let mut file = Kubeconfig::read_from(of).expect("a kubeconfig");
        for user in file.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
            *user = AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() };
        }
        let folder = crate::support::tmp().join("accounts");
        std::fs::create_dir_all(&folder).expect("a folder for kubeconfigs");
        // Accounts of the same name can exist in several control planes at a time.
        let path = folder.join(format!("{unique}-{:x}", fastrand::u64(..)));
        // JSON is YAML.
        std::fs::write(&path, serde_json::to_vec(&file).expect("JSON")).expect("written");
        path
    }
}
