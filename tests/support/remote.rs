//! Remote clusters: real control planes beside the one in which Relaybook runs, and how pipelines refer to them.

use std::path::Path;
use std::sync::OnceLock;

use relaybook_api::Pipeline;
use serde_json::{Value, json};

use super::World;
use super::control_plane::{self, ControlPlane};

/// The second control plane, shared by all tests that do not stop it.
pub fn second() -> &'static Path {
    control_plane::remote()
}

/// The third control plane.
pub fn third() -> &'static Path {
    static THIRD: OnceLock<ControlPlane> = OnceLock::new();
    super::turn::wait();
    &THIRD.get_or_init(|| ControlPlane::start().expect("a third control plane")).kubeconfig
}

/// A namespace of another cluster. It has the same name as the namespace of the world that refers to it.
pub struct Remote {
    /// The namespace in the remote cluster.
    pub world: World,
    /// Name of the Secret with its kubeconfig, which is also the name of the cluster.
    pub name: &'static str,
}

impl Remote {
    /// Creates the namespace in the remote cluster, and a Secret with its kubeconfig in `world`.
    pub async fn of(world: &World, kubeconfig: &Path, name: &'static str) -> Self {
        let there = World::on(kubeconfig, &world.ns).await;
        let text = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
        world.secret(name, json!({"kubeconfig": text})).await;
        Self { world: there, name }
    }

    /// Returns the `clusterRef` of a target in this cluster.
    pub fn reference(&self) -> Value {
        json!({"kind": "Secret", "name": self.name})
    }
}

/// Creates a pipeline of Deployments, with the fence in the local cluster. Each target is `ENVIRONMENT/APP` and its cluster
/// (`None`: local).
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
