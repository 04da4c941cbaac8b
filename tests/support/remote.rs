//! Clusters beside the one in which Pennant runs: real control planes, and the ways in which a pipeline refers to them.

use std::path::Path;
use std::sync::OnceLock;

use pennant::api::Pipeline;
use serde_json::{Value, json};

use super::World;
use super::control_plane::{self, ControlPlane};

/// A second control plane that all tests share; for those that do not stop it.
pub fn second() -> &'static Path {
    control_plane::remote()
}

/// A third one.
pub fn third() -> &'static Path {
    static THIRD: OnceLock<ControlPlane> = OnceLock::new();
    &THIRD.get_or_init(|| ControlPlane::start().expect("a third control plane")).kubeconfig
}

/// A namespace of another cluster, which has the same name as that of the world that refers to it.
pub struct Remote {
    /// What is in it.
    pub world: World,
    /// The Secret with its kubeconfig, and so the cluster's name.
    pub name: &'static str,
}

impl Remote {
    /// Makes the namespace there, and a Secret with the kubeconfig here.
    pub async fn of(world: &World, kubeconfig: &Path, name: &'static str) -> Self {
        let there = World::on(kubeconfig, &world.ns).await;
        let text = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
        world.secret(name, json!({"kubeconfig": text})).await;
        Self { world: there, name }
    }

    /// How a pipeline refers to it.
    pub fn reference(&self) -> Value {
        json!({"kind": "Secret", "name": self.name})
    }
}

/// A pipeline of Deployments, and the fence here. Each target is `ENVIRONMENT/APP`, and where it is.
pub async fn pipeline(world: &World, name: &str, targets: &[(&str, Option<&Remote>)]) -> Pipeline {
    let names: Vec<_> = targets.iter().map(|(target, _)| *target).collect();
    let mut object = super::world::pipeline(&world.ns, name, super::world::apps::Kind::Deployment, &names);
    for (target, remote) in targets {
        let Some(remote) = remote else { continue };
        let (environment, app) = target.split_once('/').expect("ENVIRONMENT/APP");
        let all = object["spec"]["environments"].as_array_mut().expect("a list");
        let of = all.iter_mut().filter(|e| e["name"] == environment);
        let of = of.flat_map(|e| e["targets"].as_array_mut().expect("a list"));
        of.filter(|t| t["appRef"]["name"] == app).for_each(|t| t["clusterRef"] = remote.reference());
    }
    world.create(object).await
}
