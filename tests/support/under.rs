//! Runs Relaybook with the chart's permissions in all behaviour tests, if `RELAYBOOK_TEST_RIGHTS` is `cluster` or `namespaced`.
//!
//! In: a kubeconfig with all permissions, possibly of a fault-injecting proxy. Out: a kubeconfig to the same API server through
//! another proxy, with a token of the chart's `ServiceAccount`; the arguments of the chart's Pods; and a failed test for each
//! call that the API server refuses for a missing permission.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use super::chart::Release;
use super::proxy::Proxy;
use super::world::World;

/// The connection of one Relaybook to its API server, with the permissions of the chart.
pub struct Under {
    proxy: Proxy,
    /// The arguments that the chart passes to the program.
    args: Vec<String>,
}

impl Under {
    /// Grants the permissions of the chart, and starts the proxy. Returns `None` if `RELAYBOOK_TEST_RIGHTS` is not set.
    pub async fn rights(world: &World, watch: &[String], of_test: &[String], kubeconfig: &Path) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mode = std::env::var("RELAYBOOK_TEST_RIGHTS").ok().filter(|mode| !mode.is_empty())?;
        let watch: &[String] = match mode.as_str() {
            "cluster" => &[],
            "namespaced" => watch,
            other => panic!("RELAYBOOK_TEST_RIGHTS is cluster or namespaced, not {other}"),
        };
        let release =
            Release::render(&world.ns, &world.ns, &values(watch, of_test.iter().any(|arg| arg == "--fleet-everywhere")))
                .expect("the chart renders");
        let account = release.grant(&world.kubeconfig).await;
        let unique = format!("{}-{}", world.ns, COUNT.fetch_add(1, Ordering::Relaxed));
        let way = account.kubeconfig(kubeconfig, &unique).await;
        let args = release.args().into_iter().map(str::to_owned).collect();
        Some(Self { proxy: Proxy::start(&way, &format!("{unique}-rights")).await, args })
    }

    /// Returns the arguments of the chart, with each flag that the test sets replaced by the test's.
    pub fn args(&self, of_test: Vec<String>) -> Vec<String> {
        let flag = |arg: &str| arg.split('=').next().unwrap_or_default().to_owned();
        let said: BTreeSet<String> = of_test.iter().map(|arg| flag(arg)).collect();
        let left = self.args.iter().filter(|arg| arg.starts_with("--") && !said.contains(&flag(arg)));
        of_test.iter().chain(left).cloned().collect()
    }

    /// Returns the kubeconfig for Relaybook.
    pub fn kubeconfig(&self) -> PathBuf {
        self.proxy.kubeconfig.clone()
    }

    /// Fails the test if a call was refused.
    pub fn check(&self) {
        let forbidden = self.proxy.forbidden();
        assert!(forbidden.is_empty(), "the chart gives no right to {forbidden:#?}");
    }
}

/// Returns the chart values of a user who watches the kinds that the tests use.
fn values(watch: &[String], fleet_everywhere: bool) -> Value {
    let kinds = [
        ("late.example.com", "widgets"),
        ("far.example.com", "gadgets"),
        ("source.toolkit.fluxcd.io", "gitrepositories"),
        ("", "pods"),
        ("", "limitranges"),
    ];
    let extra: Vec<_> = kinds.iter().map(|(group, plural)| json!({"apiGroups": [group], "resources": [plural]})).collect();
    let observe = json!({"extra": extra, "fleetEverywhere": fleet_everywhere});
    json!({"watchNamespaces": watch, "observe": observe, "crds": {"install": false}})
}
