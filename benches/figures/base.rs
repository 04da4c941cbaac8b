//! Measures another program in turns with the built one, on the same control plane: the one of an earlier commit, for example.
//!
//! In: the path of that program. Out: the ratio of each figure in [`COMPARED`].

use std::path::Path;
use std::process::Command;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};

use crate::bed::Bed;
use crate::support::relaybook::use_program;
use crate::table::{CPU, CPU_BASE, Figure, LATENCY, LATENCY_BASE, Reading, THROUGHPUT, THROUGHPUT_BASE};

/// The figures that are compared, each with the figure of its ratio.
const COMPARED: [(&Figure, &Figure); 3] = [(&THROUGHPUT, &THROUGHPUT_BASE), (&CPU, &CPU_BASE), (&LATENCY, &LATENCY_BASE)];

/// The scenarios that contain these figures.
pub const SCENARIOS: [&str; 4] = ["throughput", "lane", "noisy", "rollout"];

/// Makes this program, with its CRDs, the one that scenarios start. `None`: the built one.
pub async fn switch(bed: &Bed, program: Option<&Path>) {
    let definitions = program.map_or_else(relaybook_api::crds, definitions);
    let api: Api<CustomResourceDefinition> = Api::all(bed.client.clone());
    for mut definition in definitions {
        let name = definition.name_any();
        definition.metadata.resource_version = api.get(&name).await.expect("it is installed").metadata.resource_version;
        api.replace(&name, &PostParams::default(), &definition).await.expect("the definition is accepted");
    }
    use_program(program.map(Path::to_owned));
}

/// Returns the CRDs that a program prints.
fn definitions(program: &Path) -> Vec<CustomResourceDefinition> {
    let printed = Command::new(program).arg("crds").output().expect("the program runs");
    assert!(printed.status.success(), "{} crds: {}", program.display(), printed.status);
    serde_saphyr::from_multiple(&String::from_utf8(printed.stdout).expect("text")).expect("definitions")
}

/// Returns the ratios of what was measured with the built program to what was measured with the other one.
pub fn compare(ours: &[Reading], theirs: &[Reading]) -> Vec<Reading> {
    let value = |readings: &[Reading], of: &Figure| {
        readings.iter().find_map(|reading| match reading {
            Reading::Value { figure, value, .. } if *figure == of.name => Some(*value),
            _ => None,
        })
    };
    let ratio =
        |(figure, ratio): &(&Figure, &Figure)| Some(Reading::against(ratio, value(ours, figure)?, value(theirs, figure)?));
    COMPARED.iter().filter_map(ratio).collect()
}
