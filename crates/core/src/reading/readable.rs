//! Which kinds are never read, whatever the permissions of the controller allow. Pure.
//!
//! In: a kind as written, or as a cluster serves it. Out: whether its objects are never read, with the reason. Anyone who can write a
//! Pipeline chooses the kind and sees values of the objects in its status, so the permissions of the controller are no protection.

use kube_core::ApiResource;
use thiserror::Error;

use relaybook_api::GROUP;
use relaybook_api::values::kind::ObjectKind;
use relaybook_api::values::names::is_label;

/// API groups of which nothing is read: the kinds of Relaybook itself, permissions, credentials, and the internal objects of a cluster.
const GROUPS: [&str; 14] = [
    GROUP,
    "admissionregistration.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "events.k8s.io",
    "rbac.authorization.k8s.io",
    // Tokens and kubeconfigs of Rancher, and tokens and permissions of OpenShift.
    "ext.cattle.io",
    "authorization.openshift.io",
    "oauth.openshift.io",
    "user.openshift.io",
    // Generators of the External Secrets Operator contain passwords and tokens.
    "generators.external-secrets.io",
];

/// Kinds of the core group that are not read, in lower case.
const CORE: [&str; 4] = ["configmap", "event", "secret", "serviceaccount"];

/// Ends of the names of kinds and resources that contain credentials, in any API group, in lower case and singular. Aggregated APIs return
/// credentials under such names.
const CREDENTIALS: [&str; 4] = ["token", "credential", "kubeconfig", "password"];

/// Why objects of a kind are not read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unreadable {
    /// The kind has credentials, permissions or internal state.
    #[error(
        "a {kind} of {api_version} cannot be an application object, because such objects contain credentials, permissions or internal state; set another kind"
    )]
    Kind {
        /// The kind, as written.
        kind: String,
        /// The API version, as written.
        api_version: String,
    },
    /// The cluster serves the kind in a way in which no API server does.
    #[error("the cluster serves {kind} of {api_version} under an invalid name; correct its CRD or APIService")]
    Served {
        /// The kind, as written.
        kind: String,
        /// The API version, as written.
        api_version: String,
    },
}

/// Returns why objects of this kind are not read. It decides about the kind as written, before a cluster is asked.
pub fn check(kind: &ObjectKind) -> Result<(), Unreadable> {
    let refused = is_refused(kind.group(), &kind.kind().to_ascii_lowercase());
    if refused { Err(unreadable(kind)) } else { Ok(()) }
}

/// Returns why the objects are not read that a cluster serves for this kind. The name of a resource does not follow from its kind.
pub fn check_served(kind: &ObjectKind, served: &ApiResource) -> Result<(), Unreadable> {
    let is_requested = (served.group.as_str(), served.version.as_str(), served.kind.as_str())
        == (kind.group(), kind.version(), kind.kind());
    // The name becomes a part of the path of each call.
    if !is_requested || !is_label(&served.plural) {
        return Err(Unreadable::Served { kind: kind.kind().to_owned(), api_version: kind.api_version().to_owned() });
    }
    check(kind)?;
    if is_refused(&served.group, &served.plural) { Err(unreadable(kind)) } else { Ok(()) }
}

/// `name`: of the kind or of the resource, in lower case.
fn is_refused(group: &str, name: &str) -> bool {
    let singular = name.strip_suffix('s').unwrap_or(name);
    let is_credential = singular == "secret" || CREDENTIALS.iter().any(|end| singular.ends_with(end));
    is_credential || GROUPS.contains(&group) || (group.is_empty() && CORE.contains(&singular))
}

fn unreadable(kind: &ObjectKind) -> Unreadable {
    Unreadable::Kind { kind: kind.kind().to_owned(), api_version: kind.api_version().to_owned() }
}

#[cfg(test)]
mod tests {
    use kube_core::GroupVersionKind;
    use proptest::prelude::*;

    use super::*;
    use relaybook_text::spelling;

    fn kind(api_version: &str, kind: &str) -> ObjectKind {
        ObjectKind::parse(api_version, kind).unwrap()
    }

    #[test]
    fn kinds_with_credentials_permissions_or_internal_state_are_not_read() {
        for (api_version, name) in [
            ("v1", "Secret"),
            ("v1", "ConfigMap"),
            ("v1", "ServiceAccount"),
            ("v1", "Event"),
            ("events.k8s.io/v1", "Event"),
            ("coordination.k8s.io/v1", "Lease"),
            ("rbac.authorization.k8s.io/v1beta1", "RoleBinding"),
            ("certificates.k8s.io/v1", "CertificateSigningRequest"),
            ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
            ("authentication.k8s.io/v1", "TokenRequest"),
            ("relaybook.dev/v1alpha1", "Pipeline"),
            ("relaybook.dev/v9", "Anything"),
            ("fleet.cattle.io/v1alpha1", "ClusterRegistrationToken"),
            ("management.cattle.io/v3", "Token"),
            ("ext.cattle.io/v1", "Kubeconfig"),
            ("oauth.openshift.io/v1", "OAuthAccessToken"),
            ("acme.example/v1", "Secret"),
            ("acme.example/v1", "AwsCredentials"),
        ] {
            assert!(check(&kind(api_version, name)).is_err(), "{api_version} {name}");
        }
        for (api_version, name) in [
            ("v1", "Pod"),
            ("v1", "Service"),
            ("apps/v1", "Deployment"),
            ("acme.example/v1", "ConfigMap"),
            ("fleet.cattle.io/v1alpha1", "BundleDeployment"),
            ("external-secrets.io/v1", "ExternalSecret"),
            ("bitnami.com/v1alpha1", "SealedSecret"),
        ] {
            assert_eq!(check(&kind(api_version, name)), Ok(()), "{api_version} {name}");
        }
    }

    #[test]
    fn a_kind_is_not_read_if_the_cluster_serves_it_under_a_forbidden_resource() {
        let served = |group: &str, kind: &str, plural: &str| {
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
        };
        let harmless = kind("acme.example/v1", "Harmless");
        for (resource, is_read) in [
            (served("acme.example", "Harmless", "harmlesses"), true),
            (served("acme.example", "Harmless", "secrets"), false),
            (served("acme.example", "Harmless", "sessiontokens"), false),
            (served("acme.example", "Harmless", "../../../api/v1/secrets"), false),
            (served("acme.example", "Harmless", "x?y"), false),
            (served("acme.example", "Harmless", ""), false),
            (served("", "Harmless", "harmlesses"), false),
            (served("acme.example", "Other", "others"), false),
        ] {
            assert_eq!(check_served(&harmless, &resource).is_ok(), is_read, "{resource:?}");
        }
        assert!(check_served(&kind("v1", "Secret"), &served("", "Secret", "secrets")).is_err());
    }

    proptest! {
        /// Whatever the spelling, a text that denotes a Secret to a cluster is refused.
        #[test]
        fn no_spelling_of_a_secret_is_read(
            api_version in spelling(&["v1", "/v1", "apps/v1"]),
            name in spelling(&["Secret", "ConfigMap", "ServiceAccount"]),
        ) {
            if let Ok(kind) = ObjectKind::parse(&api_version, &name) {
                // A cluster compares kinds exactly.
                let is_core_kind = kind.group().is_empty() && ["Secret", "ConfigMap", "ServiceAccount"].contains(&kind.kind());
                prop_assert!(!is_core_kind || check(&kind).is_err(), "{kind:?}");
            }
        }
    }
}
