//! The design as data: which modules are pure, and what only certain modules may name.

/// Crates with several rooms: their top-level modules form no circle. The empty name is the program.
pub const ROOMS: &[&str] = &["", "core", "deliveries", "pipelines", "runtime", "settings", "tools"];

/// Crates and modules that only compute: no I/O, no clock, no random numbers. The first ones are whole crates, which depend neither on a runtime
/// nor on a client.
pub const PURE: &[&str] = &[
    "core",
    "forge",
    "git",
    "settings",
    "text",
    "clusters::remote::kubeconfig",
    "clusters::remote::reference",
    "deliveries::dispatch::cursor::plan",
    "deliveries::dispatch::cursor::progress",
    "deliveries::dispatch::derive",
    "deliveries::dispatch::status::figures",
    "deliveries::dispatch::status::given_up",
    "deliveries::outbox::attempt::decide",
    "deliveries::outbox::attempt::request",
    "deliveries::outbox::lane",
    "deliveries::outbox::record",
    "deliveries::outbox::scheduler::fair_queue",
    "deliveries::outbox::scheduler::initial_sync",
    "deliveries::outbox::send_gate::facts",
    "deliveries::outbox::send_gate::index",
    "deliveries::outbox::trace",
    "egress::attempt::classify",
    "egress::attempt::retry_after",
    "egress::inbound",
    "egress::otlp::encode",
    "hooks::approval",
    "hooks::directory",
    "hooks::limits",
    "hooks::look",
    "hooks::route",
    "http::excess",
    "page::access::origin",
    "page::follow::room",
    "page::follow::rows",
    "page::query",
    "page::screens",
    "page::trouble",
    "pipelines::pipeline::write::pace",
    "pipelines::pipeline::write::trace",
    "pipelines::sets::decide",
    "pipelines::sets::expand",
    "pipelines::sets::made",
    "pipelines::sets::plan",
    "pipelines::sets::status",
    "pipelines::sets::template",
    "promotions::attempt::check",
    "promotions::attempt::problem",
    "promotions::attempt::template",
    "promotions::attempt::values",
    "promotions::controller::retain",
    "promotions::controller::secrets",
    "runtime::certificates",
    "runtime::fair::turns",
    "runtime::installed::acting",
    "runtime::installed::fit",
    "runtime::published::choose",
    "runtime::queue",
    "telemetry::spans",
    "tools::check::needs",
    "tools::lint",
    "tools::preview::defaults",
    "tools::preview::promotions",
    "tools::preview::test_request::effect",
    "tools::preview::test_request::sample",
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
    (
        "secrecy",
        &[
            "egress",
            "clusters::remote::kubeconfig",
            "page::access::caller",
            "page::access::seal",
            "page::service::strangers",
            "app::page",
            "cli::page",
            "options",
        ],
        "one crate reads the credentials of receivers, one file those of clusters, and some the tokens of people",
    ),
    ("opentelemetry_proto", &["egress::otlp::encode"], "one file knows the encoding of spans"),
    (
        "ring",
        &["egress::inbound", "page::access::origin", "page::access::seal"],
        "three files verify signatures and encrypt",
    ),
    ("handlebars", &["settings::render"], "one module knows the template engine"),
    ("axum", &["http", "tools::check::probe"], "one module serves HTTP, and one file asks it whether it is ready"),
    ("anyhow", &["main", "cli"], "errors of a library are typed"),
    (
        "crate::api::Delivery",
        &[
            "api",
            "runtime::watch::raw_object",
            "deliveries::outbox::store::journal",
            "tools::audit",
            "promotions::controller",
            "core::promotion::sent",
            "page",
        ],
        "one file writes deliveries; one module reads them for users, and the promotion controller those of its requests",
    ),
];

/// Maximum number of lines of a file, without its tests.
pub const LONGEST: usize = 400;
/// Number of lines at the start of a top-level module that must contain `In:` and `Out:`.
pub const HEADER: usize = 10;
