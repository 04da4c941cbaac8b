//! A rolling update under load: first the CRDs, then one replica after the other; then back, and forward again.
//!
//! In: the program of the previous version. Out: nothing. The load continues meanwhile and no process is killed.
//! - If both versions can run with the CRDs of the new one, these stay, because a rollback does not remove fields. The verdict allows no
//!   exceptions: no change may be missing, out of order, or sent twice. A CRD that only the new version has is created, and stays too.
//!   Meanwhile notifications are [tested](crate::tested).
//! - If not, the CRDs are exchanged together with the program. A running process of the other version must then stop by itself. It cannot
//!   write the outcome of what it has in flight, so each lane may repeat one request.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};

use crate::crew::{Crew, NAMES};
use crate::support::World;
use crate::tested::Tests;

/// Time under load between two steps.
const BETWEEN: Duration = Duration::from_secs(8);

/// Time in which a process must notice that the CRDs are those of another version, and end. It looks every 15 seconds, twice.
const NOTICE: Duration = Duration::from_mins(1);

/// Returns the CRDs that a program prints.
pub fn definitions(program: &Path) -> Vec<CustomResourceDefinition> {
    let printed = Command::new(program).arg("crds").output().expect("the program runs");
    assert!(printed.status.success(), "{} crds: {}", program.display(), printed.status);
    let text = String::from_utf8(printed.stdout).expect("text");
    serde_saphyr::from_multiple(&text).expect("definitions")
}

/// Upgrades all replicas, rolls them back, and upgrades them again.
pub async fn there_and_back(world: &World, crew: &mut Crew, before: &Path, now: &Path, tests: &mut Tests) {
    crew.pass(BETWEEN).await;
    let api: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    if !fit_together(&definitions(before), &definitions(now)) {
        for program in [now, before, now] {
            exchange(&api, crew, program).await;
            crew.pass(BETWEEN).await;
        }
        return;
    }
    for definition in definitions(now) {
        let name = definition.name_any();
        crew.note(format!("{name} is that of this version"));
        if create(&api, &definition).await {
            continue;
        }
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&definition)).await.expect("the definition is taken");
    }
    crew.pass(BETWEEN).await;
    for program in [now, before, now] {
        for replica in 0..NAMES.len() {
            tests.begin(world).await;
            crew.replace(replica, PathBuf::from(program)).await;
            tests.pass(world, crew, BETWEEN / 2).await;
            tests.request(world).await;
            tests.pass(world, crew, BETWEEN / 2).await;
        }
    }
    tests.finish(world, crew).await;
}

/// Creates a CRD that does not exist. Returns whether it did so.
async fn create(api: &Api<CustomResourceDefinition>, definition: &CustomResourceDefinition) -> bool {
    let is_missing = api.get_opt(&definition.name_any()).await.expect("read").is_none();
    if is_missing {
        api.create(&PostParams::default(), definition).await.expect("the definition is taken");
    }
    is_missing
}

/// Returns whether both versions write the status of each kind that both have in the same way.
fn fit_together(one: &[CustomResourceDefinition], other: &[CustomResourceDefinition]) -> bool {
    let subresources = |all: &[CustomResourceDefinition]| -> BTreeMap<String, Vec<_>> {
        let of = |crd: &CustomResourceDefinition| crd.spec.versions.iter().map(|v| v.subresources.clone()).collect();
        all.iter().map(|crd| (crd.name_any(), of(crd))).collect()
    };
    let (one, other) = (subresources(one), subresources(other));
    one.iter().all(|(name, of_one)| other.get(name).is_none_or(|of_other| of_one == of_other))
}

/// Installs the CRDs of a program while another version runs, waits until that has noticed it, and starts the program.
async fn exchange(api: &Api<CustomResourceDefinition>, crew: &mut Crew, program: &Path) {
    let began = Instant::now();
    for mut definition in definitions(program) {
        let name = definition.name_any();
        crew.note(format!("{name} is that of {}", program.display()));
        if create(api, &definition).await {
            continue;
        }
        definition.metadata.resource_version = api.get(&name).await.expect("it is there").metadata.resource_version;
        api.replace(&name, &PostParams::default(), &definition).await.expect("the definition is taken");
    }
    crew.may_end(true);
    crew.pass(NOTICE).await;
    crew.check_ended(began);
    for replica in 0..NAMES.len() {
        crew.replace(replica, PathBuf::from(program)).await;
    }
    crew.may_end(false);
    crew.deposed.push((began, Instant::now()));
}
