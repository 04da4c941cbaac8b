//! Tokens of a GitHub App for one repository
//! (<https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app>).
//!
//! In: the Secret of the app, and the URL of a request to the API of a repository. Out: the two requests for a token, and what their answers
//! mean. Both go to the origin and the prefix of that URL.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;

use super::{Issued, LONGEST_LIFE};
use crate::attempt::NotSent;
use crate::secrets::contents::Contents;
use relaybook_api::notification::credentials::SecretKey;
use relaybook_api::values::repository::Repository;
use relaybook_api::{ObjectName, Time};

/// The keys of the Secret. The second names are those of Flux.
const ID: [&str; 3] = ["clientId", "appId", "githubAppID"];
const PRIVATE_KEY: [&str; 2] = ["privateKey", "githubAppPrivateKey"];
const INSTALLATION: [&str; 2] = ["installationId", "githubAppInstallationID"];

/// How long before now a signature begins to be valid, because clocks differ.
const BEFORE: Duration = Duration::from_mins(1);
/// How long a signature is valid. GitHub accepts at most 10 minutes.
const VALID: Duration = Duration::from_mins(9);

/// A GitHub App.
pub(crate) struct App {
    /// Client ID or app ID.
    pub(crate) id: String,
    /// The private key in PEM, as it was written.
    pub(crate) pem: SecretString,
    /// The key of the Secret that has it, for messages.
    pem_key: SecretKey,
    /// The installation, if the Secret names one.
    pub(crate) installation: Option<String>,
}

impl App {
    /// Whether a Secret contains the private key of an app.
    pub(crate) fn is_in(contents: &Contents) -> bool {
        contents.keys().any(|key| PRIVATE_KEY.contains(&key))
    }

    /// Reads an app from its Secret.
    pub(crate) fn read(contents: &Contents, secret: &ObjectName) -> Result<Self, NotSent> {
        let (_, id) = first(contents, secret, &ID)?;
        let (pem_key, pem) = first(contents, secret, &PRIVATE_KEY)?;
        let installation = match first(contents, secret, &INSTALLATION) {
            Ok((_, id)) if id.bytes().all(|byte| byte.is_ascii_digit()) => Some(id.to_owned()),
            Ok((key, _)) => return Err(NotSent::SecretInvalid { key, problem: "is not the number of an installation" }),
            Err(NotSent::KeyMissing(_)) => None,
            Err(why) => return Err(why),
        };
        Ok(Self { id: id.to_owned(), pem: pem.into(), pem_key, installation })
    }

    /// Checks that the key can sign.
    pub(crate) fn check(&self) -> Result<(), NotSent> {
        self.key().map(drop)
    }

    fn key(&self) -> Result<RsaKeyPair, NotSent> {
        let invalid = |problem| NotSent::SecretInvalid { key: self.pem_key.clone(), problem };
        let der = PrivateKeyDer::from_pem_slice(self.pem.expose_secret().as_bytes())
            .map_err(|_| invalid("is not a private key in PEM, as GitHub generates it"))?;
        let pair = match &der {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            _ => return Err(invalid("is not an RSA key")),
        };
        pair.map_err(|_| invalid("is not an RSA key of 2048 to 4096 bits"))
    }

    /// Returns a signed statement that this is the app: a JSON Web Token with RS256
    /// (<https://www.rfc-editor.org/rfc/rfc7519>).
    pub(crate) fn statement(&self, now: Time) -> Result<SecretString, NotSent> {
        let (now, before) = (now.as_second(), i64::try_from(BEFORE.as_secs()).unwrap_or_default());
        let end = now + i64::try_from(VALID.as_secs()).unwrap_or_default();
        let claims = json!({"iat": now - before, "exp": end, "iss": self.id}).to_string();
        let signed =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","typ":"JWT"}"#), URL_SAFE_NO_PAD.encode(claims));
        let key = self.key()?;
        let mut signature = vec![0; key.public().modulus_len()];
        key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .map_err(|_| NotSent::InvalidRequest("the private key of the GitHub App cannot sign"))?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)).into())
    }
}

/// Returns the value of the first of these keys that the Secret has.
fn first<'c>(contents: &'c Contents, secret: &ObjectName, names: &[&str]) -> Result<(SecretKey, &'c str), NotSent> {
    let found = names.iter().find(|name| contents.keys().any(|has| has == **name));
    let name = found.or(names.first()).copied().unwrap_or_default();
    let key = SecretKey::new(&secret.namespace, &secret.name, name);
    contents.text(&key).map(|text| (key.clone(), text))
}

/// The URL that names the installation of an app.
pub(crate) fn installation_url(repository: &Repository) -> String {
    format!("{}/repos/{repository}/installation", repository.api)
}

/// The URL at which a token is requested.
pub(crate) fn token_url(repository: &Repository, installation: &str) -> String {
    format!("{}/app/installations/{installation}/access_tokens", repository.api)
}

/// Returns permissions as a text.
pub(crate) fn listed(permissions: &BTreeMap<String, String>) -> String {
    let each: Vec<_> = permissions.iter().map(|(name, level)| format!("{name}: {level}")).collect();
    each.join(", ")
}

/// The body of the request for a token.
pub(crate) fn token_request(repository: &Repository, permissions: &BTreeMap<String, String>) -> String {
    let mut body = json!({"repositories": [repository.name]});
    if !permissions.is_empty() {
        body["permissions"] = json!(permissions);
    }
    body.to_string()
}

/// Reads the answer with the installation of an app.
pub(crate) fn installation(status: u16, body: &[u8], repository: &Repository) -> Result<String, NotSent> {
    #[derive(Deserialize)]
    struct Installation {
        id: u64,
    }
    let refused = |why: &str| NotSent::TokenRefused { step: INSTALLATION_STEP, why: why.to_owned() };
    match status {
        200 => serde_json::from_slice::<Installation>(body)
            .map(|found| found.id.to_string())
            .map_err(|_| refused("the answer has no id")),
        301 => Err(refused("301; the repository has another name now, use it in the URL")),
        401 => Err(refused("401; check the ID and the private key of the app, and the clock of this node")),
        404 => Err(NotSent::InstallationNotFound(repository.to_string())),
        status => Err(refused(&status.to_string())),
    }
}

/// Reads the answer with a token.
pub(crate) fn issued(
    status: u16,
    body: &[u8],
    now: Time,
    repository: &Repository,
    permissions: &BTreeMap<String, String>,
) -> Result<Issued, NotSent> {
    #[derive(Deserialize)]
    struct Token {
        token: String,
        expires_at: Time,
    }
    let refused = |why: &str| NotSent::TokenRefused { step: STEP, why: why.to_owned() };
    match status {
        201 => {
            let Token { token, expires_at } =
                serde_json::from_slice(body).map_err(|_| refused("the answer has no token"))?;
            let lifetime = Duration::try_from(expires_at.duration_since(now)).ok().filter(|lifetime| !lifetime.is_zero());
            let lifetime = lifetime.ok_or_else(|| refused("the token has expired; check the clock of this node"))?;
            super::checked(token)
                .map(|token| Issued { token, lifetime: lifetime.min(LONGEST_LIFE) })
                .ok_or_else(|| refused("the token cannot be sent in a header"))
        }
        401 => Err(refused("401; check the ID and the private key of the app, and the clock of this node")),
        404 => Err(refused("404; the app has no installation with the number in installationId")),
        422 => Err(NotSent::PermissionMissing { repository: repository.to_string(), permissions: listed(permissions) }),
        status => Err(refused(&status.to_string())),
    }
}

/// The steps, for messages.
pub(crate) const INSTALLATION_STEP: &str = "the installation of the GitHub App";
pub(crate) const STEP: &str = "the token of the GitHub App";

#[cfg(test)]
mod tests {
    use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
    use serde_json::Value;

    use super::*;
    use crate::secrets::Secrets;

    const PEM: &str = include_str!("app.pem");

    fn read(data: &[(&str, &str)]) -> Result<App, NotSent> {
        let secret = ObjectName::new("team-a", "app");
        let key = |key: &str| SecretKey::new("team-a", "app", key);
        let secrets = Secrets::fixed(data.iter().map(|(name, value)| (key(name), (*value).to_owned())));
        let app = App::read(&*secrets.now(&secret)?, &secret)?;
        app.check().map(|()| app)
    }

    #[test]
    fn an_app_is_read_from_the_keys_of_github_or_of_flux() {
        for (data, id, installation) in [
            (&[("clientId", "Iv23"), ("privateKey", PEM)][..], "Iv23", None),
            (&[("appId", "42"), ("privateKey", PEM), ("installationId", "7")], "42", Some("7")),
            (&[("githubAppID", "42"), ("githubAppPrivateKey", PEM), ("githubAppInstallationID", "7\n")], "42", Some("7")),
            (&[("appId", "42"), ("clientId", "Iv23"), ("privateKey", PEM)], "Iv23", None),
        ] {
            let app = read(data).unwrap();
            assert_eq!((app.id.as_str(), app.installation.as_deref()), (id, installation));
        }
        for (data, words) in [
            (&[("privateKey", PEM)][..], "Secret team-a/app has no key clientId"),
            (&[("clientId", "a")], "has no key privateKey"),
            (&[("clientId", "a"), ("privateKey", "s3cr3t")], "key privateKey: is not a private key in PEM"),
            (&[("clientId", "a"), ("privateKey", PEM), ("installationId", "x")], "is not the number of an installation"),
        ] {
            let said = read(data).err().map(|why| why.to_string()).unwrap_or_default();
            assert!(said.contains(words) && !said.contains("s3cr3t"), "{said}");
        }
    }

    #[test]
    fn a_statement_is_signed_and_valid_for_less_than_ten_minutes() {
        let app = read(&[("clientId", "Iv23"), ("privateKey", PEM)]).unwrap();
        let statement = app.statement(Time::from_second(1_800_000_000).unwrap()).unwrap();
        let (signed, signature) = statement.expose_secret().rsplit_once('.').unwrap();
        let pair = app.key().unwrap();
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref());
        key.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
        let parts: Vec<Value> =
            signed.split('.').map(|part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()).collect();
        assert_eq!(parts[0], json!({"alg": "RS256", "typ": "JWT"}));
        assert_eq!(parts[1], json!({"iat": 1_799_999_940, "exp": 1_800_000_540, "iss": "Iv23"}));
    }

    #[test]
    fn answers_of_github_are_tokens_or_reasons() {
        let now = Time::from_second(1_800_000_000).unwrap();
        let token = json!({"token": "ghs_1", "expires_at": "2027-01-15T09:00:00Z"}).to_string();
        let repository = Repository { api: String::new(), owner: "acme".to_owned(), name: "web".to_owned() };
        let permissions = BTreeMap::from([("statuses".to_owned(), "write".to_owned())]);
        let issued = |status, body: &[u8]| issued(status, body, now, &repository, &permissions);
        let fine = issued(201, token.as_bytes()).unwrap();
        assert_eq!((fine.token.expose_secret(), fine.lifetime), ("ghs_1", Duration::from_hours(1)));
        let old = json!({"token": "ghs_1", "expires_at": "2027-01-15T07:00:00Z"}).to_string();
        for (status, body, words) in [
            (201, old.as_str(), "the token has expired"),
            (201, "{}", "the answer has no token"),
            (401, "s3cr3t", "401; check the ID"),
            (404, "s3cr3t", "404; the app has no installation"),
            (
                422,
                "s3cr3t",
                "the token of the GitHub App: 422; give its installation access to acme/web, with statuses: write",
            ),
        ] {
            let said = issued(status, body.as_bytes()).err().map(|why| why.to_string()).unwrap_or_default();
            assert!(said.contains(words) && !said.contains("s3cr3t"), "{said}");
        }
        assert_eq!(installation(200, br#"{"id": 7}"#, &repository), Ok("7".to_owned()));
        assert_eq!(installation(404, b"", &repository), Err(NotSent::InstallationNotFound("acme/web".to_owned())));
        let body = token_request(&repository, &permissions);
        assert_eq!(body, r#"{"permissions":{"statuses":"write"},"repositories":["web"]}"#);
    }
}
