//! A rolling update under load: first the CRDs, then one replica after the other; then back, and forward again. The CRDs stay
//! those of the new version, because a rollback does not remove fields.
//!
//! In: the program of the previous version. Out: nothing. The load continues meanwhile and no process is killed, so the verdict
//! allows no exceptions: no change may be missing, out of order, or sent twice.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};

use crate::crew::{Crew, NAMES};
use crate::support::World;

/// Time under load between two steps.
const BETWEEN: Duration = Duration::from_secs(8);

/// Returns the CRDs that a program prints.
pub fn definitions(program: &Path) -> Vec<CustomResourceDefinition> {
    let printed = Command::new(program).arg("crds").output().expect("the program runs");
    assert!(printed.status.success(), "{} crds: {}", program.display(), printed.status);
    let text = String::from_utf8(printed.stdout).expect("text");
    serde_saphyr::from_multiple(&text).expect("definitions")
}

/// Upgrades all replicas, rolls them back, and upgrades them again.
pub async fn there_and_back(world: &World, crew: &mut Crew, before: &Path, now: &Path) {
    crew.pass(BETWEEN).await;
    let api: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    for definition in definitions(now) {
        let name = definition.name_any();
        crew.note(format!("{name} is that of this version"));
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&definition)).await.expect("the definition is taken");
    }
    crew.pass(BETWEEN).await;
    for program in [now, before, now] {
        for replica in 0..NAMES.len() {
            crew.replace(replica, PathBuf::from(program)).await;
            crew.pass(BETWEEN).await;
        }
    }
}
