//! What is wrong with the controllers, the CRDs and the global configuration. Pure.

use super::{Finding, Kind, Level};
use relaybook_runtime::installed::INSTALL;
use relaybook_runtime::installed::acting::command;

/// What is known about an installation. What is not known is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installation {
    /// The namespace of the controllers.
    pub namespace: String,
    /// A sentence for each part of the work that no controller does.
    pub idle: Vec<String>,
    /// The versions of this program and of the controller.
    pub versions: Option<(String, String)>,
    /// Why nothing in the namespace is observed or sent: no controller watches it.
    pub unwatched: Option<String>,
    /// Why the CRDs are not those of this program.
    pub crds: Option<String>,
    /// The ConfigMap of the global configuration, and why it cannot be used.
    pub global: Option<(String, String)>,
}

/// Returns what is wrong with an installation.
pub(super) fn findings(installation: &Installation) -> impl Iterator<Item = Finding> {
    let finding = |level: Level, name: &str, reason: &str, message: String, remedy: String| Finding {
        level,
        kind: Kind::Installation,
        namespace: String::new(),
        name: name.to_owned(),
        reason: reason.to_owned(),
        message,
        remedy,
        since: None,
    };
    let Installation { namespace, idle, versions, unwatched, crds, global } = installation;
    let unwatched = unwatched.iter().map(move |why| {
        let remedy = "install Relaybook for this namespace, or add it to `watchNamespaces` of the chart".to_owned();
        finding(Level::Problem, "controllers", "NotWatched", why.clone(), remedy)
    });
    let idle = idle.iter().map(move |text| {
        let remedy = format!("see the replicas, and then their logs: `{}`", command(namespace));
        finding(Level::Problem, "controllers", "NotActing", text.clone(), remedy)
    });
    let crds = crds.iter().map(move |why| {
        let message = format!("Controllers of this version do not run: {why}.");
        finding(Level::Problem, "CRDs", "CrdsDiffer", message, format!("`{INSTALL}`"))
    });
    let global = global.iter().map(move |(config_map, why)| {
        let remedy = match config_map.split_once('/') {
            Some((namespace, name)) => format!("correct it: `kubectl edit configmap -n {namespace} {name}`"),
            None => format!("correct ConfigMap {config_map}"),
        };
        let message = format!("The global configuration in ConfigMap {config_map} is wrong: {why}.");
        finding(Level::Problem, "global configuration", "GlobalConfigInvalid", message, remedy)
    });
    let versions = versions.iter().filter(|(program, controller)| program != controller);
    let versions = versions.map(move |(program, controller)| {
        let message = format!("this program has version {program}, and the controller {controller}");
        let remedy = "use the program of the controller's version; otherwise, fields and reasons can differ".to_owned();
        finding(Level::Warning, "versions", "VersionsDiffer", message, remedy)
    });
    unwatched.chain(idle).chain(crds).chain(global).chain(versions)
}
