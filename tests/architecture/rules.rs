//! The design as data: which top-level module may use which, which modules are pure, and what only certain modules may name.

/// The allowed dependencies between top-level modules: from, to (`*`: all), why. Every module may use `api` and `telemetry`,
/// which use no other module.
pub const ARROWS: &[(&str, &str, &str)] = &[
    ("main", "cli", "the program is the command line"),
    ("cli", "app", "each command calls one function of the library"),
    ("cli", "audit", "shows what was sent"),
    ("cli", "check", "checks an installation"),
    ("check", "installed", "checks whether the CRDs are those of this version"),
    ("check", "http", "checks whether the controller is ready"),
    ("check", "published", "checks the permission to write it"),
    ("cli", "lint", "checks manifests"),
    ("cli", "preview", "shows what would be sent"),
    ("cli", "render", "knows the built-in templates by name"),
    ("cli", "published", "reads how the running controllers are configured"),
    ("cli", "config", "passes the configuration with which a notification is resolved"),
    ("lint", "config", "validates notifications as the dispatcher does"),
    ("lint", "manifests", "reads what it checks"),
    ("lint", "pipeline", "validates the specs of pipelines as the pipeline controller does"),
    (
        "manifests",
        "config",
        "reads templates and the global configuration in its types, and suggests corrections of misspelt names as it does",
    ),
    ("preview", "manifests", "reads notifications from files"),
    ("preview", "config", "resolves notifications"),
    ("preview", "render", "renders samples"),
    ("preview", "webhook", "sends to a receiver that the user chooses"),
    ("app", "*", "composition root: creates all parts and connects them"),
    ("cluster", "observe", "reduces objects to observations as they arrive"),
    ("cluster", "k8s", "watches the objects that represent clusters, and their Secrets; drops fields that no module reads"),
    ("changelog", "observe", "a change is a difference between a settled state and an observation"),
    ("pipeline", "cluster", "reads the state of application objects"),
    ("pipeline", "observe", "names the rules that read a kind"),
    ("pipeline", "changelog", "settles observations and keeps the log"),
    ("pipeline", "report", "reports to users what has happened and what needs their action"),
    ("pipeline", "trigger", "names changes in Events as triggers do"),
    ("pipeline", "k8s", "watches pipelines; limits how many are reconciled at once, in total and per namespace"),
    ("config", "render", "compiles templates"),
    ("config", "trigger", "compiles triggers"),
    ("trigger", "render", "a condition reads the data that a template would"),
    ("dispatch", "render", "builds the template data of a transition, for conditions"),
    ("dispatch", "config", "resolves notifications"),
    ("dispatch", "manifests", "reads the global configuration"),
    ("dispatch", "trigger", "derives transitions from a change, and selects the notifications that report them"),
    ("dispatch", "outbox", "hands over transitions, which it records"),
    ("dispatch", "report", "writes the status of notifications, and Events"),
    ("dispatch", "webhook", "selects the Secrets to watch, and checks whether they exist"),
    (
        "dispatch",
        "k8s",
        "watches pipelines and notifications; limits how many are reconciled at once, in total and per namespace",
    ),
    ("outbox", "leader", "checks whether this replica is the leader"),
    ("dispatch", "leader", "checks whether this replica is the leader"),
    ("pipeline", "leader", "checks whether this replica is the leader"),
    ("published", "leader", "checks whether this replica is the leader"),
    ("published", "k8s", "every call has a deadline"),
    ("report", "k8s", "writes the status of a Notification by a guarded patch"),
    ("outbox", "config", "sends as the effective notification defines"),
    ("outbox", "render", "renders a recorded transition"),
    ("outbox", "webhook", "makes the request"),
    ("outbox", "k8s", "watches deliveries; limits how many calls are in flight, in total and per namespace"),
    ("webhook", "k8s", "watches Secrets"),
    ("outbox", "broken", "breaks a promise on purpose for a test; only with the feature `broken`"),
    ("dispatch", "broken", "breaks a promise on purpose for a test; only with the feature `broken`"),
];

/// Top-level modules that every other module may use.
pub const FOUNDATION: &[&str] = &["api", "telemetry"];

/// Modules that may use fewer modules than their top-level module: only those listed here.
pub const NARROWER: &[(&str, &[&str], &str)] = &[(
    "outbox::store::journal",
    &["api", "telemetry", "k8s"],
    "one kind of I/O per file: the journal stores, `webhook` sends",
)];

/// Modules that only compute: no I/O, no clock, no random numbers.
pub const PURE: &[&str] = &[
    "observe",
    "changelog",
    "trigger",
    "render",
    "config",
    "lint",
    "manifests",
    "check::needs",
    "cluster::remote::kubeconfig",
    "cluster::remote::reference",
    "pipeline::plan",
    "pipeline::status::ready",
    "pipeline::status",
    "pipeline::status::apply",
    "pipeline::status::target",
    "installed::fit",
    "pipeline::write::pace",
    "pipeline::write::trace",
    "published::choose",
    "leader::candidacy",
    "outbox::scheduler::initial_sync",
    "outbox::lane",
    "outbox::lane::schedule",
    "outbox::attempt::decide",
    "outbox::scheduler::fair_queue",
    "outbox::attempt::request",
    "outbox::record",
    "outbox::send_gate::index",
    "outbox::send_gate::facts",
    "outbox::lane::parked",
    "outbox::trace",
    "dispatch::derive::timers",
    "dispatch::cursor::plan",
    "dispatch::derive",
    "dispatch::status::figures",
    "dispatch::status::given_up",
    "dispatch::cursor::progress",
    "dispatch::derive::subjects",
    "webhook::attempt::classify",
    "webhook::otlp::encode",
    "webhook::attempt::retry_after",
    "telemetry::spans",
];

/// What no pure module may name: the beginning of a path, and what it means.
pub const IMPURE: &[(&str, &str)] = &[
    ("tokio", "an async runtime"),
    ("tokio_util", "an async runtime"),
    ("reqwest", "HTTP"),
    ("hyper", "HTTP"),
    ("axum", "HTTP"),
    ("tower", "HTTP"),
    ("kube::Api", "the API server"),
    ("kube::Client", "the API server"),
    ("kube::Config", "the API server"),
    ("kube::api", "the API server"),
    ("kube::client", "the API server"),
    ("kube::config", "the API server"),
    ("kube::discovery", "the API server"),
    ("kube::runtime", "the API server"),
    ("std::env", "the environment"),
    ("std::fs", "files"),
    ("std::net", "the network"),
    ("std::process", "other processes"),
    ("std::thread", "threads"),
    ("fastrand", "random numbers; pass them as an argument"),
    ("crate::api::now", "a clock; pass `now` as an argument"),
    ("crate::api::since_boot", "a clock; pass `now` as an argument"),
];

/// Types whose `now` reads a clock.
pub const CLOCKS: &[&str] = &["Instant", "SystemTime", "Time", "Timestamp", "Zoned"];

/// What only certain modules may name: the beginning of a path, the modules, why.
pub const OWNED: &[(&str, &[&str], &str)] = &[
    ("reqwest", &["webhook"], "one module makes requests"),
    ("hyper", &["webhook", "http"], "one module makes requests, and one serves HTTP"),
    (
        "hyper_util",
        &["webhook", "cluster", "http"],
        "one module makes requests, one watches other clusters, and one serves HTTP",
    ),
    (
        "secrecy",
        &["webhook", "cluster::remote::kubeconfig"],
        "one module reads the credentials of receivers, one file those of clusters",
    ),
    ("opentelemetry_proto", &["webhook::otlp::encode"], "one file knows the encoding of spans"),
    ("prost", &["webhook::otlp::encode"], "one file knows the encoding of spans"),
    ("handlebars", &["render"], "one module knows the template engine"),
    ("axum", &["http"], "one module serves HTTP"),
    ("prometheus_client", &["telemetry"], "all other modules use typed methods for metrics"),
    ("clap", &["main", "cli", "app"], "no other module depends on the command line"),
    ("anyhow", &["main", "cli"], "errors of a library are typed"),
    (
        "crate::api::Delivery",
        &["api", "outbox::store::journal", "audit"],
        "one file writes deliveries, and one module reads them for users",
    ),
    (
        "crate::api::delivery::Delivery",
        &["api", "outbox::store::journal", "audit"],
        "one file writes deliveries, and one module reads them for users",
    ),
];

/// Maximum number of lines of a file, without its tests.
pub const LONGEST: usize = 400;
/// Number of lines at the start of a top-level module that must contain `In:` and `Out:`.
pub const HEADER: usize = 10;
