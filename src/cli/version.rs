//! `relaybook version`: the versions of this program, the controllers, the CRDs and the API server.
//!
//! In: what the controllers publish, the schemas and the version of the API server. Out: one line for each, or one object. A part that cannot be
//! read has the reason instead. If the API server does not answer, the command fails.

use std::cmp::Ordering;
use std::io::{self, Write as _};

use clap::{Args, ValueEnum};
use kube::Error as KubeError;
use serde::Serialize;

use crate::app::Access;
use relaybook_runtime::installed::{CrdChecker, CrdState};
use relaybook_runtime::published::{Versions, versions};
use relaybook_telemetry::chain;
use relaybook_text::escaped;

/// The version of this program.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Args)]
pub(super) struct VersionArgs {
    /// Print only the version of this program. No cluster is used.
    #[arg(long)]
    client: bool,
    /// The output format [default: one line for each version].
    #[arg(short, long)]
    output: Option<Output>,
    /// The namespace of the controllers [default: all namespaces].
    #[arg(long, env = "RELAYBOOK_CONTROLLER_NAMESPACE", value_name = "NAMESPACE")]
    controller_namespace: Option<String>,
    #[command(flatten)]
    pub(super) access: Access,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// One object: `{client, controllers, crds, server, differences}`.
    Json,
    /// The same in YAML.
    Yaml,
}

/// What the command prints.
#[derive(Debug, Serialize)]
struct Report {
    client: Version,
    #[serde(flatten)]
    cluster: Option<Cluster>,
}

#[derive(Debug, Serialize)]
struct Version {
    version: String,
}

#[derive(Debug, Serialize)]
struct Cluster {
    controllers: Vec<Found<Versions>>,
    crds: Crds,
    server: Found<Version>,
    /// Sentences about versions that differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differences: Vec<String>,
}

/// A part, or why it cannot be read.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Found<T> {
    Known(T),
    Unknown { problem: String },
}

/// Whether the CRDs are those of this program.
#[derive(Debug, Serialize)]
struct Crds {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Prints the versions. The version of this program is printed in any case.
pub(super) async fn version(args: VersionArgs) -> anyhow::Result<()> {
    let cluster = if args.client { Ok(None) } else { read(&args).await.map(Some) };
    let (cluster, failed) = match cluster {
        Ok(cluster) => (cluster, None),
        Err(error) => (None, Some(error)),
    };
    let report = Report { client: Version { version: PROGRAM.to_owned() }, cluster };
    let mut out = io::stdout().lock();
    match args.output {
        None => lines(&report).iter().try_for_each(|line| writeln!(out, "{line}"))?,
        Some(Output::Json) => {
            serde_json::to_writer_pretty(&mut out, &report).map_err(io::Error::from)?;
            writeln!(out)?;
        }
        Some(Output::Yaml) => write!(out, "{}", serde_saphyr::to_string(&report)?)?,
    }
    out.flush()?;
    failed.map_or(Ok(()), Err)
}

async fn read(args: &VersionArgs) -> anyhow::Result<Cluster> {
    let client = args.access.client().await?;
    let server = match client.apiserver_version().await {
        Ok(info) => Found::Known(Version { version: info.git_version }),
        // The API server answers, so the other parts can be read.
        Err(error @ KubeError::Api(_)) => Found::Unknown { problem: chain(&error) },
        Err(error) => return Err(anyhow::Error::from(error).context("the version of the API server cannot be read")),
    };
    let mut checker = CrdChecker::new(&client);
    let (found, state) = tokio::join!(versions(&client, args.controller_namespace.as_deref()), checker.check());
    let differences = found.iter().flatten().filter_map(|one| difference(PROGRAM, one)).collect();
    let controllers = found.into_iter().map(|one| match one {
        Ok(versions) => Found::Known(versions),
        Err(error) => Found::Unknown { problem: error.to_string() },
    });
    Ok(Cluster { controllers: controllers.collect(), crds: crds(state), server, differences })
}

fn crds(state: CrdState) -> Crds {
    let (state, problem) = match state {
        CrdState::Match => ("Match", None),
        CrdState::Outdated(words) => ("Outdated", Some(words)),
        CrdState::Missing(words) => ("Missing", Some(words)),
        CrdState::Forbidden => ("Unknown", Some("no permission to read the schemas of the API server".to_owned())),
        CrdState::Unknown(error) => ("Unknown", Some(format!("could not read the schemas of the API server: {error}"))),
    };
    Crds { state, problem }
}

/// Returns the lines for people. Versions and problems come from the cluster. They are escaped, so that they cannot control the terminal.
fn lines(report: &Report) -> Vec<String> {
    let line = |what: &str, text: &str| format!("{what:<14}{}", escaped(text));
    let mut lines = vec![line("program", &report.client.version)];
    let Some(cluster) = &report.cluster else { return lines };
    lines.extend(cluster.controllers.iter().map(|found| match found {
        Found::Known(one) => line("controllers", &format!("{} in namespace {}", published(one), one.namespace)),
        Found::Unknown { problem } => line("controllers", &format!("unknown: {problem}")),
    }));
    lines.push(match &cluster.crds.problem {
        None => line("CRDs", &format!("match version {}", report.client.version)),
        Some(problem) => line("CRDs", &format!("{}: {problem}", cluster.crds.state.to_ascii_lowercase())),
    });
    lines.push(match &cluster.server {
        Found::Known(server) => line("API server", &server.version),
        Found::Unknown { problem } => line("API server", &format!("unknown: {problem}")),
    });
    lines.extend(cluster.differences.iter().map(|text| format!("versions differ: {}", escaped(text))));
    lines
}

/// Returns the version of both controllers, or of each.
fn published(versions: &Versions) -> String {
    match (&versions.pipeline, &versions.dispatch) {
        (Some(pipeline), Some(dispatch)) if pipeline == dispatch => pipeline.clone(),
        (pipeline, dispatch) => {
            let named = |name: &str, version: &Option<String>| version.as_ref().map(|version| format!("{name} {version}"));
            [named("pipeline", pipeline), named("dispatch", dispatch)].into_iter().flatten().collect::<Vec<_>>().join(", ")
        }
    }
}

/// Returns a sentence with the remedy if the controllers of a namespace have other versions than this program, or than each other.
fn difference(program: &str, controllers: &Versions) -> Option<String> {
    let namespace = &controllers.namespace;
    let version = match (&controllers.pipeline, &controllers.dispatch) {
        (Some(pipeline), Some(dispatch)) if pipeline != dispatch => {
            return Some(format!(
                "in namespace {namespace}, the pipeline controller has {pipeline}, and the dispatcher {dispatch}; \
                 upgrade both to one version"
            ));
        }
        (Some(version), _) | (None, Some(version)) if version != program => version,
        _ => return None,
    };
    let order = number(program).zip(number(version)).map(|(program, version)| program.cmp(&version));
    let remedy = match order {
        Some(Ordering::Greater) => format!("upgrade the controllers, or use this program in version {version}"),
        Some(Ordering::Less) => format!("install this program in version {version}"),
        Some(Ordering::Equal) | None => format!("use this program in version {version}"),
    };
    Some(format!("this program has {program}, and the controllers in namespace {namespace} have {version}; {remedy}"))
}

/// Returns the three numbers of a version, without its suffix.
fn number(version: &str) -> Option<[u64; 3]> {
    let core = version.split(['-', '+']).next()?;
    let parts: Vec<u64> = core.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    parts.try_into().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(pipeline: Option<&str>, dispatch: Option<&str>) -> Versions {
        let text = |text: Option<&str>| text.map(ToOwned::to_owned);
        Versions { namespace: "own".to_owned(), pipeline: text(pipeline), dispatch: text(dispatch) }
    }

    #[test]
    fn a_difference_has_a_remedy() {
        let both = |version| of(Some(version), Some(version));
        let controllers = "this program has 0.2.0, and the controllers in namespace own have";
        for (versions, expected) in [
            (both("0.2.0"), None),
            (of(None, Some("0.2.0")), None),
            (of(None, None), None),
            (both("0.10.0"), Some(format!("{controllers} 0.10.0; install this program in version 0.10.0"))),
            (
                of(Some("0.1.9"), None),
                Some(format!("{controllers} 0.1.9; upgrade the controllers, or use this program in version 0.1.9")),
            ),
            (both("0.2.0-rc.1"), Some(format!("{controllers} 0.2.0-rc.1; use this program in version 0.2.0-rc.1"))),
            (both("main"), Some(format!("{controllers} main; use this program in version main"))),
            (
                of(Some("0.2.0"), Some("0.1.0")),
                Some(
                    "in namespace own, the pipeline controller has 0.2.0, and the dispatcher 0.1.0; upgrade both to one version"
                        .to_owned(),
                ),
            ),
        ] {
            assert_eq!(difference("0.2.0", &versions), expected, "{versions:?}");
        }
    }

    #[test]
    fn versions_have_three_numbers() {
        for (text, expected) in [
            ("0.1.0", Some([0, 1, 0])),
            ("1.20.3-rc.1+build", Some([1, 20, 3])),
            ("1.2", None),
            ("1.2.3.4", None),
            ("v1.2.3", None),
            ("", None),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
    }

    fn report(cluster: Option<Cluster>) -> Report {
        Report { client: Version { version: "0.2.0".to_owned() }, cluster }
    }

    #[test]
    fn each_part_has_a_line_or_a_reason() {
        let known = Cluster {
            controllers: vec![
                Found::Known(of(Some("0.2.0"), Some("0.2.0"))),
                Found::Known(of(Some("0.2.0"), Some("0.1.0"))),
                Found::Known(of(None, Some("\u{1b}[2J"))),
            ],
            crds: crds(CrdState::Match),
            server: Found::Known(Version { version: "v1.36.0".to_owned() }),
            differences: vec!["a; b".to_owned()],
        };
        assert_eq!(
            lines(&report(Some(known))),
            [
                "program       0.2.0",
                "controllers   0.2.0 in namespace own",
                "controllers   pipeline 0.2.0, dispatch 0.1.0 in namespace own",
                r"controllers   dispatch \u{1b}[2J in namespace own",
                "CRDs          match version 0.2.0",
                "API server    v1.36.0",
                "versions differ: a; b",
            ]
        );
        let nothing = Cluster {
            controllers: vec![Found::Unknown { problem: "there is none".to_owned() }],
            crds: crds(CrdState::Missing("all".to_owned())),
            server: Found::Unknown { problem: "forbidden".to_owned() },
            differences: Vec::new(),
        };
        assert_eq!(
            lines(&report(Some(nothing)))[1..],
            ["controllers   unknown: there is none", "CRDs          missing: all", "API server    unknown: forbidden"]
        );
        assert_eq!(lines(&report(None)), ["program       0.2.0"]);
    }

    #[test]
    fn programs_get_one_object() {
        assert_eq!(serde_json::to_value(report(None)).unwrap(), json!({"client": {"version": "0.2.0"}}));
        let cluster = Cluster {
            controllers: vec![Found::Known(of(None, Some("0.1.0"))), Found::Unknown { problem: "there is none".to_owned() }],
            crds: crds(CrdState::Forbidden),
            server: Found::Known(Version { version: "v1.36.0".to_owned() }),
            differences: Vec::new(),
        };
        let report = report(Some(cluster));
        let expected = json!({
            "client": {"version": "0.2.0"},
            "controllers": [{"namespace": "own", "dispatch": "0.1.0"}, {"problem": "there is none"}],
            "crds": {"state": "Unknown", "problem": "no permission to read the schemas of the API server"},
            "server": {"version": "v1.36.0"},
        });
        assert_eq!(serde_json::to_value(&report).unwrap(), expected);
        let yaml = serde_saphyr::to_string(&report).unwrap();
        assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&yaml).unwrap(), expected);
    }
}
