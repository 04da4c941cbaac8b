//! Pennant tells the outside world what deployment pipelines do: every change of state becomes one recorded, ordered HTTP
//! request.
//!
//! Two controllers share no memory and meet in the Kubernetes API, so that either can run alone. The pipeline controller
//! writes what happened into a change log; the dispatcher takes it from there, records deliveries, and sends them.
//!
//! ```text
//!  application objects            Pipeline.status.log                     Delivery                       receiver
//!        │ watch                  append ▲        │ watch            create ▲   ▲ outcome                    ▲
//!        ▼                               │        ▼                         │   │                            │
//!   ┌──────────┐  ┌─────────┐  ┌─────────┴──┐  ┌──────────┐  ┌─────────┐  ┌─┴───┴────┐  ┌────────┐  ┌────────┴─┐
//!   │ cluster  │─►│ observe │─►│  pipeline  │  │ dispatch │─►│ trigger │─►│  outbox  │─►│ render │─►│ webhook  │
//!   │          │  │ (pure)  │  │ changelog  │  │          │  │ (pure)  │  │          │  │ (pure) │  │          │
//!   └──────────┘  └─────────┘  └────────────┘  └──────────┘  └─────────┘  └──────────┘  └────────┘  └──────────┘
//! ```
//!
//! # Rooms
//!
//! | room | what it does |
//! |---|---|
//! | [`api`] | the custom resources, and the values that all rooms share; uses nothing of ours |
//! | [`app`] | composition root: makes the parts, joins their tasks, ends the process when one of them must not have ended |
//! | [`audit`] | what was sent, when, and what the receiver said, for whoever asks afterwards |
//! | [`broken`](crate) | promises broken on purpose, for proving that the tests notice; only with the feature of that name |
//! | [`changelog`] | pure: what counts as a change of a target, and the log in which changes wait for their consumers |
//! | [`check`] | whether an installation can work: CRDs, permissions, readiness |
//! | [`cli`] | the command line; each command calls one function of the library |
//! | [`cluster`] | the only room that watches application objects |
//! | [`config`] | pure: from a Notification as it was written to one that cannot be wrong, with the defaults filled in |
//! | [`dispatch`] | the dispatcher: cursors, and from changes to recorded deliveries |
//! | [`http`] | health, readiness and metrics |
//! | [`installed`] | whether the custom resource definitions in the cluster are those of this version |
//! | [`k8s`] | how the API server is used: watches that go on whatever happens, and a limit on calls for each namespace |
//! | [`leader`] | who may act: of any number of replicas one |
//! | [`lint`] | pure: manifests held against all that the API server and the controllers ask of them |
//! | [`manifests`] | pure: objects as they stand in files, with the lines of their fields |
//! | [`observe`] | pure: what an application object's status says |
//! | [`outbox`] | lanes, retries, the journal of recorded deliveries; nothing else decides what may be sent |
//! | [`pipeline`] | the pipeline controller: from observations to a status and a change log |
//! | [`preview`] | what would be sent, without a delivery: for people who write notifications |
//! | [`published`] | the configuration of the running controllers, in a ConfigMap for the command line |
//! | [`render`] | pure: URL, headers and body out of templates and the data of one transition |
//! | [`report`] | what people see: Kubernetes Events and the status of notifications |
//! | [`telemetry`] | log lines, metrics and spans; uses nothing of ours |
//! | [`trigger`] | pure: what a change means, and who wants to know |
//! | [`webhook`] | one request to a receiver, and spans to a collector; the only room that knows HTTP clients and credentials |
//!
//! Which room may use which is in `tests/architecture/rules.rs`, and a test holds the sources to it. Why things are so is in
//! `docs/design.md`.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

pub mod api;
pub mod app;
pub mod audit;
#[cfg(feature = "broken")]
pub mod broken;
pub mod changelog;
pub mod check;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod dispatch;
pub mod http;
pub mod installed;
pub mod k8s;
pub mod leader;
pub mod lint;
pub mod manifests;
pub mod observe;
pub mod outbox;
pub mod pipeline;
pub mod preview;
pub mod published;
pub mod render;
pub mod report;
pub mod telemetry;
pub mod trigger;
pub mod webhook;
