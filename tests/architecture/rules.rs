//! The design as data: which room may use which, what is pure, and what belongs to one room alone.

/// The arrows between rooms: from, to (`*`: all), why. Every room may use `api` and `telemetry`, which use nothing of ours.
pub const ARROWS: &[(&str, &str, &str)] = &[
    ("main", "cli", "the program is the command line"),
    ("cli", "app", "each command calls one function of the library"),
    ("cli", "audit", "tells what was sent"),
    ("cli", "check", "checks an installation"),
    ("check", "installed", "asks whether the CRDs are those of this version"),
    ("check", "http", "asks whether the controller is ready"),
    ("check", "published", "asks for the permission to write it"),
    ("cli", "lint", "checks manifests"),
    ("cli", "preview", "shows what would be sent"),
    ("cli", "render", "knows the built-in templates by name"),
    ("cli", "published", "asks how the running controllers are configured"),
    ("cli", "config", "says what a notification is understood with"),
    ("lint", "config", "asks what the dispatcher would say of a notification"),
    ("lint", "manifests", "reads what it checks"),
    ("lint", "pipeline", "asks whether a pipeline's spec would be followed"),
    (
        "manifests",
        "config",
        "gives templates and the global configuration as it takes them, and guesses at misspelt names as it does",
    ),
    ("preview", "manifests", "reads notifications out of files"),
    ("preview", "config", "understands notifications"),
    ("preview", "render", "renders samples"),
    ("preview", "webhook", "sends to a receiver of one's own"),
    ("app", "*", "composition root: makes all parts and joins them"),
    ("cluster", "observe", "objects are reduced to what they say as they arrive"),
    ("cluster", "k8s", "watches the objects that stand for clusters, and their Secrets; leaves out what nobody reads"),
    ("changelog", "observe", "a change is a difference between a settled state and an observation"),
    ("pipeline", "cluster", "asks what the application objects say"),
    ("pipeline", "observe", "names the rules that read a kind"),
    ("pipeline", "changelog", "settles observations and keeps the log"),
    ("pipeline", "report", "tells people what has happened, and what they must do something about"),
    ("pipeline", "trigger", "calls a change by the name that triggers have for it, in Events"),
    ("pipeline", "k8s", "watches pipelines, and looks at so many at once, and at so many of each namespace"),
    ("config", "render", "compiles templates"),
    ("config", "trigger", "compiles triggers"),
    ("trigger", "render", "a condition reads what a template would"),
    ("dispatch", "render", "says what a template would see of a transition, for conditions"),
    ("dispatch", "config", "understands notifications"),
    ("dispatch", "manifests", "reads the global configuration"),
    ("dispatch", "trigger", "asks what a change means and who wants to know"),
    ("dispatch", "outbox", "has transitions recorded"),
    ("dispatch", "report", "writes the status of notifications, and Events"),
    ("dispatch", "webhook", "says which Secrets are to be watched, and asks whether they are there"),
    ("dispatch", "k8s", "watches pipelines and notifications, and goes over so many at once, and so many of each namespace"),
    ("outbox", "leader", "asks whether it may act"),
    ("dispatch", "leader", "asks whether it may act"),
    ("pipeline", "leader", "asks whether it may act"),
    ("published", "leader", "asks whether it may act"),
    ("published", "k8s", "no call without a deadline"),
    ("report", "k8s", "writes the status of a Notification by a guarded patch"),
    ("outbox", "config", "sends as the effective notification says"),
    ("outbox", "render", "renders a recorded transition"),
    ("outbox", "webhook", "makes the request"),
    ("outbox", "k8s", "watches deliveries, and makes so many calls at once, and so many in each namespace"),
    ("webhook", "k8s", "watches Secrets"),
    ("outbox", "broken", "breaks its promises where a test wants it, with the feature only"),
    ("dispatch", "broken", "breaks its promises where a test wants it, with the feature only"),
];

/// Rooms that every other may use.
pub const FOUNDATION: &[&str] = &["api", "telemetry"];

/// Modules with fewer arrows than their room: these and no others.
pub const NARROWER: &[(&str, &[&str], &str)] =
    &[("outbox::store::journal", &["api", "telemetry", "k8s"], "one kind of I/O a file: it stores, `webhook` sends")];

/// Modules that are functions over values: no I/O, no clock, no chance of their own.
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

/// What no pure module names: the beginning of a path, and what it stands for.
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
    ("fastrand", "chance; let it be an argument"),
    ("crate::api::now", "a clock; let `now` be an argument"),
    ("crate::api::since_boot", "a clock; let `now` be an argument"),
];

/// Types whose `now` is a clock.
pub const CLOCKS: &[&str] = &["Instant", "SystemTime", "Time", "Timestamp", "Zoned"];

/// What only these modules name: the beginning of a path, the modules, why.
pub const OWNED: &[(&str, &[&str], &str)] = &[
    ("reqwest", &["webhook"], "one room makes requests"),
    ("hyper", &["webhook", "http"], "one room makes requests, and one serves HTTP"),
    (
        "hyper_util",
        &["webhook", "cluster", "http"],
        "one room makes requests, one watches other clusters, and one serves HTTP",
    ),
    (
        "secrecy",
        &["webhook", "cluster::remote::kubeconfig"],
        "one room knows credentials of receivers, one file those of clusters",
    ),
    ("opentelemetry_proto", &["webhook::otlp::encode"], "one file knows how spans are written"),
    ("prost", &["webhook::otlp::encode"], "one file knows how spans are written"),
    ("handlebars", &["render"], "one room knows how templates are written"),
    ("axum", &["http"], "one room serves HTTP"),
    ("prometheus_client", &["telemetry"], "metrics are typed methods for everyone else"),
    ("clap", &["main", "cli", "app"], "nothing else knows that there is a command line"),
    ("anyhow", &["main", "cli"], "errors of a library are typed"),
    (
        "crate::api::Delivery",
        &["api", "outbox::store::journal", "audit"],
        "one file writes deliveries, and one room reads them for people",
    ),
    (
        "crate::api::delivery::Delivery",
        &["api", "outbox::store::journal", "audit"],
        "one file writes deliveries, and one room reads them for people",
    ),
];

/// Lines of a file before its tests.
pub const LONGEST: usize = 400;
/// Lines in which a room says what comes in and what goes out.
pub const HEADER: usize = 10;
