//! Sources and image automation of Flux, with the rules of [`super::flux`]: what they offer is what runs. So a new artifact, image or commit is a
//! change (<https://fluxcd.io/flux/components/source/>, <https://fluxcd.io/flux/components/image/>).

use super::super::revision;
use super::super::view::View;
use super::{Reading, Rules, flux};

const IMAGES: &str = "image.toolkit.fluxcd.io";

/// Every kind of the group, such as `GitRepository`. A `HelmRepository` of the type `oci` has no artifact.
pub(super) static SOURCE: Rules =
    Rules { group: "source.toolkit.fluxcd.io", kind: "", reader: "flux-source/1", read: source };
pub(super) static IMAGE_POLICY: Rules =
    Rules { group: IMAGES, kind: "ImagePolicy", reader: "flux-image-policy/1", read: image_policy };
pub(super) static IMAGE_UPDATE: Rules =
    Rules { group: IMAGES, kind: "ImageUpdateAutomation", reader: "flux-image-update/1", read: image_update };

fn source(view: &View<'_>) -> Reading {
    offered(view, view.text("/status/artifact/revision"))
}

/// The tag of the newest image, with its digest if Flux writes one. Older versions of Flux write only the whole reference.
fn image_policy(view: &View<'_>) -> Reading {
    let (tag, digest) = (view.text("/status/latestRef/tag"), view.text("/status/latestRef/digest"));
    let whole = Some(view.text("/status/latestImage")).filter(|whole| !whole.is_empty());
    match (tag, digest) {
        ("", "") => offered(view, whole.map_or("", revision::of_image)),
        (tag, "") => offered(view, tag),
        ("", digest) => offered(view, digest),
        (tag, digest) => offered(view, &format!("{tag}@{digest}")),
    }
}

fn image_update(view: &View<'_>) -> Reading {
    offered(view, view.text("/status/lastPushCommit"))
}

/// A reading of an object that names only what it offers. That stays available while a newer version cannot be fetched.
fn offered(view: &View<'_>, revision: &str) -> Reading {
    if revision.is_empty() { flux::of_label(view) } else { flux::revised(view, flux::verdict(view), revision, revision) }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;

    #[test]
    fn a_source_runs_its_artifact() {
        let artifact = |conditions: Value, generation: i64| json!({"observedGeneration": generation, "artifact": {"revision": "main@sha1:a"}, "conditions": conditions});
        let ready = |status, reason| condition("Ready", status, reason, 2);
        let reconciling = condition("Reconciling", "True", "Progressing", 2);
        for (name, status, want) in [
            ("never reconciled", json!({}), (InProgress, "", "v7")),
            ("fetched", artifact(json!([ready("True", "Succeeded")]), 2), (Current, "main@sha1:a", "main@sha1:a")),
            (
                "of the spec before",
                artifact(json!([condition("Ready", "True", "Succeeded", 1)]), 1),
                (InProgress, "main@sha1:a", "main@sha1:a"),
            ),
            (
                "fetches",
                artifact(json!([reconciling, ready("Unknown", "Progressing")]), 2),
                (InProgress, "main@sha1:a", "main@sha1:a"),
            ),
            (
                "cannot fetch",
                artifact(json!([ready("False", "GitOperationFailed")]), 2),
                (Failed, "main@sha1:a", "main@sha1:a"),
            ),
            (
                "without an artifact",
                json!({"observedGeneration": 2, "conditions": [ready("True", "Succeeded")]}),
                (Current, "v7", "v7"),
            ),
        ] {
            for kind in [GIT_REPOSITORY, ("source.toolkit.fluxcd.io/v1", "OCIRepository")] {
                assert_eq!(summary(&read(kind, json!({}), status.clone())), want, "{name}");
            }
        }
        let suspended = read(GIT_REPOSITORY, json!({"suspend": true}), artifact(json!([ready("True", "Succeeded")]), 2));
        assert!(suspended.suspended);
    }

    #[test]
    fn an_image_policy_runs_its_newest_image() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let both = format!("1.2.3@{digest}");
        for (status, want) in [
            (json!({"latestRef": {"name": "a.example/app", "tag": "1.2.3"}}), "1.2.3"),
            (json!({"latestRef": {"name": "a.example/app", "tag": "1.2.3", "digest": digest}}), both.as_str()),
            (json!({"latestImage": "a.example:5000/app:1.2.3"}), "1.2.3"),
            (json!({}), "v7"),
        ] {
            let mut status = status;
            status["observedGeneration"] = json!(2);
            status["conditions"] = json!([condition("Ready", "True", "Succeeded", 2)]);
            assert_eq!(summary(&read(IMAGE_POLICY, json!({}), status.clone())), (Current, want, want), "{status}");
        }
    }

    #[test]
    fn image_automation_runs_the_commit_that_it_pushed() {
        let status = json!({"observedGeneration": 2, "lastPushCommit": "5f3d2c1", "conditions": [condition("Ready", "True", "Succeeded", 2)]});
        assert_eq!(summary(&read(IMAGE_UPDATE, json!({}), status)), (Current, "5f3d2c1", "5f3d2c1"));
    }
}
