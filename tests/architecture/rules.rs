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
    ("preview", "send", "sends to a receiver of one's own"),
    ("app", "*", "composition root: makes all parts and joins them"),
    ("clusters", "observe", "objects are reduced to what they say as they arrive"),
    ("clusters", "watch", "watches the objects that stand for clusters, and their Secrets; leaves out what nobody reads"),
    ("changelog", "observe", "a change is a difference between a settled state and an observation"),
    ("pipeline", "clusters", "asks what the application objects say"),
    ("pipeline", "observe", "names the rules that read a kind"),
    ("pipeline", "changelog", "settles observations and keeps the log"),
    ("pipeline", "gate", "looks at so many pipelines at once, and so many of each namespace"),
    ("dispatch", "gate", "goes over so many pipelines at once, and so many of each namespace"),
    ("delivery", "gate", "makes so many calls at once, and so many in each namespace"),
    ("pipeline", "report", "tells people what has happened, and what they must do something about"),
    ("pipeline", "trigger", "calls a change by the name that triggers have for it, in Events"),
    ("pipeline", "watch", "watches pipelines"),
    ("config", "render", "compiles templates"),
    ("config", "trigger", "compiles triggers"),
    ("trigger", "render", "a condition reads what a template would"),
    ("dispatch", "render", "says what a template would see of a transition, for conditions"),
    ("dispatch", "config", "understands notifications"),
    ("dispatch", "manifests", "reads the global configuration"),
    ("dispatch", "trigger", "asks what a change means and who wants to know"),
    ("dispatch", "delivery", "has transitions recorded"),
    ("dispatch", "report", "writes the status of notifications, and Events"),
    ("dispatch", "send", "says which Secrets are to be watched, and asks whether they are there"),
    ("dispatch", "watch", "watches pipelines and notifications"),
    ("delivery", "lease", "asks whether it may act"),
    ("dispatch", "lease", "asks whether it may act"),
    ("pipeline", "lease", "asks whether it may act"),
    ("published", "lease", "asks whether it may act"),
    ("delivery", "config", "sends as the effective notification says"),
    ("delivery", "render", "renders a recorded transition"),
    ("delivery", "send", "makes the request"),
    ("delivery", "watch", "watches deliveries"),
    ("send", "watch", "watches Secrets"),
    ("delivery", "broken", "breaks its promises where a test wants it, with the feature only"),
    ("dispatch", "broken", "breaks its promises where a test wants it, with the feature only"),
];

/// Rooms that every other may use.
pub const FOUNDATION: &[&str] = &["api", "telemetry"];

/// Modules with fewer arrows than their room: these and no others.
pub const NARROWER: &[(&str, &[&str], &str)] =
    &[("delivery::journal", &["api", "telemetry", "watch"], "one kind of I/O a file: it stores, `send` sends")];

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
    "clusters::kubeconfig",
    "clusters::reference",
    "pipeline::plan",
    "pipeline::ready",
    "pipeline::status",
    "pipeline::taking",
    "pipeline::target",
    "installed::fit",
    "pipeline::traced",
    "published::choose",
    "lease::candidacy",
    "delivery::arrivals",
    "delivery::lane",
    "delivery::schedule",
    "delivery::decide",
    "delivery::pool",
    "delivery::request",
    "delivery::record",
    "delivery::directory",
    "delivery::facts",
    "delivery::parked",
    "delivery::traced",
    "dispatch::clocks",
    "dispatch::cursors",
    "dispatch::derive",
    "dispatch::figures",
    "dispatch::given_up",
    "dispatch::progress",
    "dispatch::subjects",
    "send::classify",
    "send::otlp",
    "send::retry_after",
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
    ("reqwest", &["send"], "one room makes requests"),
    ("hyper", &["send", "http"], "one room makes requests, and one serves HTTP"),
    (
        "hyper_util",
        &["send", "clusters", "http"],
        "one room makes requests, one watches other clusters, and one serves HTTP",
    ),
    ("secrecy", &["send", "clusters::kubeconfig"], "one room knows credentials of receivers, one file those of clusters"),
    ("opentelemetry_proto", &["send::otlp"], "one file knows how spans are written"),
    ("prost", &["send::otlp"], "one file knows how spans are written"),
    ("handlebars", &["render"], "one room knows how templates are written"),
    ("axum", &["http"], "one room serves HTTP"),
    ("prometheus_client", &["telemetry"], "metrics are typed methods for everyone else"),
    ("clap", &["main", "cli", "app"], "nothing else knows that there is a command line"),
    ("anyhow", &["main", "cli"], "errors of a library are typed"),
    (
        "crate::api::Delivery",
        &["api", "delivery::journal", "audit"],
        "one file writes deliveries, and one room reads them for people",
    ),
    (
        "crate::api::delivery::Delivery",
        &["api", "delivery::journal", "audit"],
        "one file writes deliveries, and one room reads them for people",
    ),
];

/// Lines of a file before its tests.
pub const LONGEST: usize = 400;
/// Lines in which a room says what comes in and what goes out.
pub const HEADER: usize = 10;
