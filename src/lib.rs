//! Relaybook notifies other systems of what deployment pipelines do: every change of state becomes one recorded, ordered HTTP
//! request.
//!
//! Three controllers share no memory. They communicate only through the Kubernetes API, so each of them can run alone. The pipeline
//! controller writes each change to a change log. The dispatcher reads the change log, and sends each change as a delivery. A change is in
//! the log before it is sent, and stays there until its outcome is written. If the receiver answers at once, one write creates the Delivery
//! with its outcome. Otherwise a pending Delivery takes the place of the change. The promotion controller reads the status of pipelines, and
//! records in Promotions which revision goes to which environment. The pipeline controller takes their steps into the change log.
//!
//! ```text
//!  application objects            Pipeline.status.log                     Delivery                       receiver
//!        │ watch                  append ▲        │ watch           outcome ▲   ▲ pending                    ▲
//!        ▼                               │        ▼                         │   │                            │
//!   ┌──────────┐  ┌─────────┐  ┌─────────┴──┐  ┌──────────┐  ┌─────────┐  ┌─┴───┴────┐  ┌────────┐  ┌────────┴─┐
//!   │ cluster  │─►│ observe │─►│  pipeline  │  │ dispatch │─►│ trigger │─►│  outbox  │─►│ render │─►│ webhook  │
//!   │          │  │ (pure)  │  │ changelog  │  │          │  │ (pure)  │  │          │  │ (pure) │  │          │
//!   └──────────┘  └─────────┘  └────────────┘  └──────────┘  └─────────┘  └──────────┘  └────────┘  └──────────┘
//! ```
//!
//! # Modules
//!
//! | module | what it does |
//! |---|---|
//! | [`relaybook_api`] | the custom resources, and the values that all modules share; uses no other module |
//! | [`app`] | composition root: creates the parts, joins their tasks, exits the process when a part ends that must keep running |
//! | [`audit`] | queries what was sent, when, and what the receiver answered |
//! | [`broken`](crate) | breaks guarantees on purpose, to prove that the tests detect it; only with the feature `broken` |
//! | [`certificates`] | whether the certificate of a server is trusted; uses no other module |
//! | [`check`] | whether an installation can work: CRDs, permissions, readiness |
//! | [`cli`] | the command line; each command calls one function of the library |
//! | [`cluster`] | the only module that watches application objects |
//! | [`dispatch`] | the dispatcher: keeps cursors, derives deliveries from changes, and has them recorded |
//! | [`fair`] | divides a fixed number of permits among namespaces or persons |
//! | [`relaybook_git`] | one commit in a remote Git repository, over a transport that the caller provides; uses no other module |
//! | [`hooks`] | signed requests that approve a promotion, or request a check of promotions |
//! | [`http`] | health, readiness and metrics; the ports for hooks and for the audit page |
//! | [`installed`] | whether the CRDs in the cluster are those of this version |
//! | [`k8s`] | access to the API server: watches that recover from every error, and a limit on calls for each namespace |
//! | [`leader`] | divides the work among replicas: which of them handles which objects, and for how much longer |
//! | [`lint`] | pure: checks manifests against everything that the API server and the controllers require |
//! | [`outbox`] | lanes, direct attempts, retries, the journal of Deliveries; the only module that decides what is sent |
//! | [`page`] | the audit page: what pipelines do and what was sent, as HTML for people |
//! | [`pipeline`] | the pipeline controller: turns observations into a status and a change log |
//! | [`preview`] | shows what would be sent, without a Delivery, for people who write notifications |
//! | [`promotion`] | takes a revision from one environment to the next: what is promoted (pure), and the promotion controller |
//! | [`published`] | the configuration of the running controllers, in a ConfigMap for the command line |
//! | [`report`] | Kubernetes Events and the status of Notifications |
//! | [`sets`] | makes the pipelines of `PipelineSets`: one for each source |
//! | [`relaybook_core`] | pure: what an object says about a rollout (`observe`), which changes count (`changelog`), and what is promoted (`promotion`) |
//! | [`relaybook_forge`] | pure: pull requests at forges: requests, the meaning of answers, texts, and when a request may be made |
//! | [`relaybook_settings`] | pure: what users write, compiled: triggers, templates, layers, manifests, and the values that comments mark |
//! | [`relaybook_telemetry`] | log lines, metrics and spans |
//! | [`relaybook_text`] | pure: texts for people: cut, on one line, without invisible characters; uses no other crate |
//! | [`webhook`] | one request to a receiver, and spans to a collector; the only module with HTTP clients and credentials for them |
//!
//! `tests/architecture/rules.rs` defines which module can use which, and a test enforces it. `docs/design.md` explains the reasons.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

pub mod app;
pub mod audit;
#[cfg(feature = "broken")]
pub mod broken;
pub mod certificates;
pub mod check;
pub mod cli;
pub mod cluster;
pub mod dispatch;
pub mod fair;
pub mod hooks;
pub mod http;
pub mod installed;
pub mod k8s;
pub mod leader;
pub mod lint;
pub mod outbox;
pub mod page;
pub mod pipeline;
pub mod preview;
pub mod promotion;
pub mod published;
pub mod report;
pub mod sets;
pub mod webhook;
