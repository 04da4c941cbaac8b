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
//!   │ cluster  │─►│ observe │─►│  pipeline  │  │ dispatch │─►│ trigger │─►│  outbox  │─►│ render │─►│  egress  │
//!   │          │  │ (pure)  │  │ changelog  │  │          │  │ (pure)  │  │          │  │ (pure) │  │          │
//!   └──────────┘  └─────────┘  └────────────┘  └──────────┘  └─────────┘  └──────────┘  └────────┘  └──────────┘
//! ```
//!
//! # Crates
//!
//! An arrow between crates is a line in a `Cargo.toml`. A crate that is *pure* only computes: it has no runtime, no client, no clock and no random
//! numbers, so its tests need milliseconds.
//!
//! | crate | what it is for | lines | uses |
//! |---|---|---|---|
//! | [`relaybook_text`](../relaybook_text/index.html) | pure: texts for people: cut, on one line, without invisible characters | 100 | – |
//! | [`relaybook_git`](../relaybook_git/index.html) | pure: one commit in a remote Git repository, over a transport that the caller provides | 1,700 | text |
//! | [`relaybook_api`](../relaybook_api/index.html) | pure: the custom resources, and the values that all crates share | 4,200 | – |
//! | [`relaybook_forge`](../relaybook_forge/index.html) | pure: pull requests at forges: requests, the meaning of answers, what they say about a commit, and when a request may be made | 1,900 | api, text |
//! | [`relaybook_core`](../relaybook_core/index.html) | pure: what happens in pipelines: observations, the change log, the next status, promotions, who holds which bucket | 8,100 | api, text |
//! | [`relaybook_settings`](../relaybook_settings/index.html) | pure: what users write, compiled: triggers, templates, layers, manifests, and the values that comments mark | 9,300 | api, text |
//! | [`relaybook_telemetry`](../relaybook_telemetry/index.html) | log lines, metrics and spans | 900 | text |
//! | [`relaybook_runtime`](../relaybook_runtime/index.html) | what every controller needs: watches, leadership, the loop of a controller, limits, guarded patches, Events | 3,000 | api, core, telemetry, text |
//! | [`relaybook_egress`](../relaybook_egress/index.html) | requests to receivers, forges and collectors, the Secrets for them, issued tokens, and answers about commits | 4,600 | api, forge, runtime, settings, telemetry, text |
//! | [`relaybook_clusters`](../relaybook_clusters/index.html) | watches of application objects on all clusters | 3,700 | api, core, runtime, telemetry |
//! | [`relaybook_pipelines`](../relaybook_pipelines/index.html) | the controllers that write pipelines: their status, and the pipelines of sets | 2,900 | api, clusters, core, egress, runtime, settings, telemetry, text |
//! | [`relaybook_deliveries`](../relaybook_deliveries/index.html) | from the change log to the receiver: cursors, lanes, attempts, the journal of Deliveries | 11,400 | api, core, egress, runtime, settings, telemetry |
//! | [`relaybook_promotions`](../relaybook_promotions/index.html) | the promotion controller, and its attempts at forges and Git servers | 2,800 | api, core, egress, forge, git, runtime, settings, telemetry |
//! | [`relaybook_tools`](../relaybook_tools/index.html) | what a person asks: lint, preview, audit, check, status, wait, init, convert, test | 12,400 | api, core, egress, pipelines, promotions, runtime, settings, telemetry, text |
//! | [`relaybook_page`](../relaybook_page/index.html) | the audit page: what pipelines do and what was sent, as HTML for people | 6,000 | api, core, promotions, runtime, settings, telemetry, text, tools |
//! | [`relaybook_simulation`](../relaybook_simulation/index.html) | for tests only: a model of the API server and virtual clocks, with which the real controllers run | 1,500 | api |
//!
//! The program itself has about 6,500 lines, in these modules:
//!
//! | module | what it does |
//! |---|---|
//! | [`app`] | composition root: creates the parts, joins their tasks, exits the process when a part ends that must keep running |
//! | [`cli`] | the command line; each command calls one function of a crate |
//! | [`hooks`] | signed requests that approve a promotion, or request a check of promotions |
//! | [`http`] | health, readiness and metrics; the ports for hooks and for the audit page |
//! | [`options`] | the options of `relaybook run`, and the values of options that commands share |
//!
//! `tests/architecture` checks what Cargo cannot. `docs/contributing/design.md` explains the reasons, and `docs/contributing/glossary.md` the words.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout))]

pub mod app;
pub mod cli;
pub mod hooks;
pub mod http;
pub mod options;
