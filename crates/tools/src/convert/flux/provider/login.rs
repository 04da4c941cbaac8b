//! The credentials of a Provider. Pure.
//!
//! In: a Provider that is being converted. Out: `auth`, `signing` and `headersFrom` of its endpoint, which refer to its Secret. If Relaybook reads
//! other keys than Flux, they refer to a new Secret, and a command makes it from the old one without showing a value.

use serde_json::json;

use super::super::receivers::{Address, Forge, Login};
use super::Making;

impl Making<'_, '_, '_> {
    pub(super) fn login(&mut self) {
        let is_github = self.receiver.address == Address::Repository(Forge::Github);
        if is_github && self.has_key("githubAppID") == Some(true) {
            let secret = self.secret.unwrap_or_default();
            self.set("auth", json!({"githubApp": {"secretRef": {"name": secret}}}));
            return self
                .uses(false, "auth.githubApp reads its keys githubAppID, githubAppPrivateKey, githubAppInstallationID");
        }
        match self.receiver.login {
            Login::None | Login::RoutingKey => {}
            Login::Token => self.token(true),
            Login::TokenOrBasic | Login::TokenIfAny if self.has_basic() => self.basic(),
            Login::TokenIfAny => {
                let has_address = self.endpoint.contains_key("urlFrom");
                if !has_address || self.has_key("token") == Some(true) {
                    self.token(false);
                }
            }
            Login::TokenOrBasic => {
                self.token(false);
                if self.secret.is_some() && self.keys.is_none() {
                    self.uses(true, "if it has a user and a password instead, write auth.basic");
                }
            }
            Login::Basic => self.basic(),
            Login::Pair => self.pair(),
            Login::Password => self.password(),
            Login::Signature => {
                self.signature();
                if self.has_key("headers") == Some(true) {
                    self.headers();
                }
            }
            Login::Headers => self.headers(),
        }
    }

    /// Whether requests have the user and the password of the Secret.
    pub(super) fn has_basic(&self) -> bool {
        match self.receiver.login {
            Login::Basic => true,
            Login::TokenOrBasic | Login::TokenIfAny => {
                self.has_key("token") == Some(false) && self.has_key("password") == Some(true)
            }
            _ => false,
        }
    }

    /// Returns the Secret. Without it, or if it is known to have no such key, the report has an error.
    pub(super) fn required(&mut self, key: &str) -> Option<String> {
        let Some(secret) = self.secret else {
            self.error("spec.secretRef", "is missing; name the Secret with the credentials");
            return None;
        };
        if self.has_key(key) == Some(false) {
            self.error("spec.secretRef.name", format!("the Secret has no key {key}; add it"));
            return None;
        }
        Some(secret.to_owned())
    }

    /// A token. `is_required`: without it, the receiver refuses requests.
    pub(super) fn token(&mut self, is_required: bool) {
        if self.endpoint.contains_key("auth") {
            return;
        }
        // Flux also accepts the Secret of a GitRepository here.
        let takes_password =
            matches!(self.receiver.address, Address::Repository(Forge::Github | Forge::Gitlab | Forge::Gitea));
        let has_password = self.has_key("token") == Some(false) && self.has_key("password") == Some(true);
        let key = if takes_password && has_password { "password" } else { "token" };
        let secret = if is_required {
            self.required(key)
        } else {
            self.secret.filter(|_| self.has_key(key) != Some(false)).map(str::to_owned)
        };
        let Some(secret) = secret else { return };
        self.set("auth", json!({"token": {"secretKeyRef": {"name": secret, "key": key}}}));
        self.uses(false, format!("auth.token reads its key {key}"));
    }

    fn basic(&mut self) {
        let Some(secret) = self.required("password") else { return };
        self.set("auth", json!({"basic": {"secretRef": {"name": secret}}}));
        self.uses(false, "auth.basic reads its keys username and password");
    }

    /// Bitbucket: a user and an app password in one key.
    fn pair(&mut self) {
        let Some(old) = self.required("token") else { return };
        let (secret, namespace) = (self.own_secret("login"), self.namespace);
        self.steps.push(format!(
            "kubectl get secret {old} -n {namespace} -o jsonpath='{{.data.token}}' | base64 -d | {{ IFS=: read -r user password; kubectl \
             create secret generic {secret} -n {namespace} --from-literal=username=\"$user\" --from-literal=password=\"$password\"; }}"
        ));
        self.set("auth", json!({"basic": {"secretRef": {"name": secret}}}));
        self.uses(true, format!("auth.basic reads user and password from a new Secret {secret} (see the steps)"));
    }

    /// Azure DevOps: a token as the password of any user.
    fn password(&mut self) {
        let Some(old) = self.required("token") else { return };
        let (secret, namespace) = (self.own_secret("login"), self.namespace);
        self.steps.push(format!(
            "kubectl get secret {old} -n {namespace} -o jsonpath='{{.data.token}}' | base64 -d | kubectl create secret generic {secret} \
             -n {namespace} --from-literal=username=relaybook --from-file=password=/dev/stdin"
        ));
        self.set("auth", json!({"basic": {"secretRef": {"name": secret}}}));
        self.uses(true, format!("auth.basic reads the token as the password from a new Secret {secret} (see the steps)"));
    }

    fn signature(&mut self) {
        let Some(old) = self.required("token") else { return };
        // Relaybook signs with the only key of a Secret.
        let is_alone = match self.keys {
            Some(keys) => keys.len() == 1,
            None => !self.endpoint.contains_key("urlFrom"),
        };
        let secret = if is_alone { old.clone() } else { self.own_secret("signing") };
        self.set("signing", json!({"scheme": "BodyHex", "secretRef": {"name": secret}}));
        if is_alone {
            let more = if self.keys.is_some() { "" } else { ", which must be its only key" };
            return self.uses(self.keys.is_none(), format!("endpoint.signing signs with its key token{more}"));
        }
        let namespace = self.namespace;
        self.steps.push(format!(
            "kubectl get secret {old} -n {namespace} -o jsonpath='{{.data.token}}' | base64 -d | kubectl create secret generic {secret} \
             -n {namespace} --from-file=token=/dev/stdin"
        ));
        self.uses(
            true,
            format!("endpoint.signing reads the token from a new Secret {secret} with this key only (see the steps)"),
        );
    }

    /// Headers of a generic receiver. In Flux, one key has all of them.
    fn headers(&mut self) {
        let Some(old) = self.secret else { return };
        let has_headers = match self.keys {
            Some(keys) => keys.contains("headers"),
            None => !self.endpoint.contains_key("urlFrom"),
        };
        if !has_headers {
            return;
        }
        let (secret, namespace) = (self.own_secret("headers"), self.namespace);
        self.steps.push(format!(
            "kubectl create secret generic {secret} -n {namespace} --from-literal=NAME=VALUE   # one for each header in the key headers of \
             Secret {old}"
        ));
        self.set("headersFrom", json!({"secretRef": {"name": secret}}));
        self.uses(
            true,
            format!("endpoint.headersFrom reads a new Secret {secret} with a key for each header (see the steps)"),
        );
    }
}
