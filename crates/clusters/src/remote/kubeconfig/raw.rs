//! The fields of a kubeconfig that are used or refused, as in the file (<https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/>).

use secrecy::SecretString;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct File {
    pub current_context: Option<String>,
    pub clusters: Option<Vec<NamedCluster>>,
    pub contexts: Option<Vec<NamedContext>>,
    pub users: Option<Vec<NamedUser>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NamedCluster {
    pub name: String,
    pub cluster: Option<Cluster>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NamedContext {
    pub name: String,
    pub context: Option<Context>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NamedUser {
    pub name: String,
    pub user: Option<User>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Context {
    pub cluster: String,
    pub user: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub server: Option<String>,
    pub insecure_skip_tls_verify: Option<bool>,
    pub certificate_authority: Option<String>,
    pub certificate_authority_data: Option<String>,
    pub proxy_url: Option<String>,
    pub tls_server_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct User {
    #[serde(default, deserialize_with = "secret")]
    pub token: Option<SecretString>,
    #[serde(rename = "tokenFile")]
    pub token_file: Option<String>,
    pub username: Option<String>,
    #[serde(default, deserialize_with = "secret")]
    pub password: Option<SecretString>,
    pub client_certificate: Option<String>,
    pub client_certificate_data: Option<String>,
    pub client_key: Option<String>,
    #[serde(default, deserialize_with = "secret")]
    pub client_key_data: Option<SecretString>,
    #[serde(rename = "as")]
    pub act_as: Option<String>,
    #[serde(rename = "as-groups")]
    pub act_as_groups: Option<Vec<String>>,
    pub as_uid: Option<IgnoredAny>,
    pub as_user_extra: Option<IgnoredAny>,
    pub exec: Option<IgnoredAny>,
    pub auth_provider: Option<IgnoredAny>,
}

fn secret<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.map(SecretString::from))
}
