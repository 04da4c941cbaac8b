//! Checks what Cargo cannot: that each crate and room says what comes in and what goes out, that the rooms of a crate form no circle, that
//! what calls itself pure is pure, and that the map in `src/lib.rs` is right. It reads `src/` and `crates/*/src/` as `cargo fmt` writes them.
//!
//! Which crate may use which is in their `Cargo.toml`. To change the design, change a rule here, and give the reason.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use relaybook_api::GROUP;
use serde_json::Value;

/// Crates whose rooms, the modules at the top, may form a circle. Rooms without one can be read, tested and moved alone.
const CIRCLES: &[&str] = &["relaybook_api", "relaybook_clusters", "relaybook_egress", "relaybook_page"];

/// What nothing pure may name: parts of paths, and what they mean. A crate is pure if the map says so. A module is pure with all in it if its head
/// has the sentence `Pure.`, or one that begins with `Pure:`.
const IMPURE: &[(&[&str], &str)] = &[
    (&["tokio", "tokio_util"], "an async runtime"),
    (&["axum", "hyper", "reqwest", "tower"], "HTTP"),
    (&["kube::Api", "kube::Client", "kube::Config", "kube::api::Api", "kube::client"], "the API server"),
    (&["kube::config", "kube::discovery", "kube::runtime"], "the API server"),
    (&["net::TcpListener", "net::TcpStream", "net::ToSocketAddrs", "net::UdpSocket"], "the network"),
    (&["std::env", "std::fs", "std::process", "std::thread"], "the operating system"),
    (
        &["fastrand::Rng::new", "fastrand::bool", "fastrand::f64", "fastrand::u64"],
        "random numbers; pass them, or a generator",
    ),
    (
        &["fastrand::choice", "fastrand::shuffle", "fastrand::u16", "fastrand::u32", "fastrand::usize"],
        "random numbers; pass them, or a generator",
    ),
    (&["Instant::now", "SystemTime::now", "Time::now", "Timestamp::now", "Zoned::now"], "a clock; pass `now`"),
    (&["relaybook_api::now", "relaybook_api::since_boot"], "a clock; pass `now`"),
];

/// The module of a pure crate that reads the clocks for all others.
const CLOCK: &str = "relaybook_api::values::clock";

/// What no pure crate may depend on, even by way of others.
const RUNTIMES: &[&str] = &["tokio ", "mio ", "hyper ", "hyper-util ", "kube ", "kube-client ", "kube-runtime ", "reqwest "];

/// What only certain modules may name: the beginning of a path, and one of the modules.
const OWNED: &[(&str, &str)] = &[
    // One module serves HTTP, and one file asks it whether it is ready.
    ("axum", "relaybook::http"),
    ("axum", "relaybook_tools::check::probe"),
    // Errors of a library are typed.
    ("anyhow", "relaybook::main"),
    ("anyhow", "relaybook::cli"),
    // One module knows the template engine, and one file the encoding of spans.
    ("handlebars", "relaybook_settings::render"),
    ("opentelemetry_proto", "relaybook_egress::otlp::encode"),
    // Five files sign, verify signatures and encrypt.
    ("ring", "relaybook_egress::inbound"),
    ("ring", "relaybook_egress::request::signing"),
    ("ring", "relaybook_egress::tokens::github"),
    ("ring", "relaybook_page::access::origin"),
    ("ring", "relaybook_page::access::seal"),
    // One crate reads the credentials of receivers, one file those of clusters, and some the tokens of people.
    ("secrecy", "relaybook_egress"),
    ("secrecy", "relaybook_clusters::remote::kubeconfig"),
    ("secrecy", "relaybook_page::access::caller"),
    ("secrecy", "relaybook_page::access::seal"),
    ("secrecy", "relaybook_page::service::strangers"),
    ("secrecy", "relaybook::app::page"),
    ("secrecy", "relaybook::cli::page"),
    ("secrecy", "relaybook::options"),
    // One file writes deliveries. Two crates read them for users, and the promotion controller those of its requests.
    ("relaybook_api::Delivery", "relaybook_api"),
    ("relaybook_api::Delivery", "relaybook_core::promotion::sent"),
    ("relaybook_api::Delivery", "relaybook_deliveries::outbox::store::journal"),
    ("relaybook_api::Delivery", "relaybook_page"),
    ("relaybook_api::Delivery", "relaybook_promotions::controller"),
    ("relaybook_api::Delivery", "relaybook_runtime::watch::raw_object"),
    ("relaybook_api::Delivery", "relaybook_tools::audit"),
];

/// Maximum number of lines of a file before its tests.
const LONGEST: usize = 400;
/// Number of lines at the start of a crate or room that must contain `In:` and `Out:`.
const HEAD: usize = 10;

/// File → text.
type Files = BTreeMap<String, String>;

#[derive(Debug)]
struct Module {
    file: String,
    /// It begins with the name of the crate, like `relaybook_core::observe`.
    path: String,
    only_tests: bool,
    /// Its text. Lines for tests are empty.
    text: String,
}

impl Module {
    /// Returns the lines that are neither empty nor comments, with their numbers.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().map(|line| line.split(" // ").next().unwrap_or(line).trim());
        let lines = lines.enumerate().map(|(at, line)| (at + 1, line));
        lines.filter(|(_, line)| !line.is_empty() && !line.starts_with("//"))
    }

    /// Returns the `//!` lines at the start, without that sign.
    fn head(&self) -> Vec<&str> {
        self.text.lines().map_while(|line| line.strip_prefix("//!")).collect()
    }

    /// Returns all paths of two or more words in the code, with their lines. Imports are expanded. Macros are not, but their arguments count.
    fn named(&self) -> Vec<(usize, String)> {
        let ends_word = |c: char| !c.is_alphanumeric() && c != '_' && c != ':';
        // The word before each open brace, if it is the start of a path.
        let (mut named, mut open) = (Vec::new(), Vec::new());
        for (line, code) in self.code() {
            for piece in code.split_inclusive(ends_word) {
                let word = piece.trim_end_matches(ends_word).trim_start_matches("::");
                if piece.ends_with('{') {
                    open.push(if word.ends_with("::") { word } else { "" });
                    continue;
                }
                let path = open.concat() + word;
                if path.contains("::") && !word.is_empty() {
                    named.push((line, resolve(&self.path, &path)));
                }
                if piece.ends_with('}') {
                    open.pop();
                }
            }
        }
        named
    }
}

/// Returns a path in a module as one that begins with the name of a crate. Other paths are returned unchanged.
fn resolve(module: &str, path: &str) -> String {
    match path.split_once("::") {
        Some(("crate", rest)) => format!("{}::{rest}", module.split("::").next().unwrap_or_default()),
        Some(("super", rest)) => {
            let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
            resolve(parent, &format!("self::{rest}"))
        }
        Some(("self", rest)) if rest.starts_with("super::") => resolve(module, rest),
        Some(("self", rest)) => format!("{module}::{rest}"),
        _ => path.to_owned(),
    }
}

fn is_in(path: &str, of: &str) -> bool {
    path == of || path.strip_prefix(of).is_some_and(|rest| rest.starts_with("::"))
}

/// Returns the path of the module at the top of its crate that contains a path.
fn room(path: &str) -> &str {
    path.match_indices("::").nth(1).map_or(path, |(at, _)| &path[..at])
}

/// Separates the items for tests from the others. Both texts have the lines of the file.
fn split(text: &str) -> (String, String) {
    let (mut product, mut tests) = (String::new(), String::new());
    // The depth of the item for tests, and whether it has a bracket that a later line closes.
    let mut item = None;
    for line in text.lines() {
        let code = line.trim_start();
        let depth = line.len() - code.len();
        if item.is_none() && code.starts_with("#[cfg(") && code.contains("test") && !code.contains("not(") {
            item = Some((depth, false));
        }
        (if item.is_some() { &mut tests } else { &mut product }).push_str(line);
        product.push('\n');
        tests.push('\n');
        item = match item {
            Some((of, true)) if of == depth && code.starts_with([')', ']', '}']) && !code.ends_with('{') => None,
            Some((_, false)) if code.ends_with(['}', ';', ',']) => None,
            Some((of, open)) => Some((of, open || code.ends_with(['(', '[', '{']))),
            None => None,
        };
    }
    (product, tests)
}

/// Returns the modules in files of their own that a text declares.
fn declared(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| match line.trim().strip_suffix(';')?.split(' ').collect::<Vec<_>>()[..] {
        ["mod", name] | [_, "mod", name] => Some(name),
        _ => None,
    })
}

/// Adds the module of a file, and all that it declares.
fn follow(files: &Files, file: &str, path: &str, only_tests: bool, modules: &mut Vec<Module>) {
    let Some(text) = files.get(file) else { return };
    let (product, tests) = split(text);
    let folder = ["/mod.rs", "/lib.rs", "/main.rs", ".rs"].iter().find_map(|end| file.strip_suffix(end)).unwrap();
    for (declaring, only_tests) in [(&product, only_tests), (&tests, true)] {
        for name in declared(declaring) {
            for file in [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")] {
                follow(files, &file, &format!("{path}::{name}"), only_tests, modules);
            }
        }
    }
    modules.push(Module { file: file.to_owned(), path: path.to_owned(), only_tests, text: product });
}

fn modules(files: &Files) -> Vec<Module> {
    let mut modules = Vec::new();
    follow(files, "src/lib.rs", "relaybook", false, &mut modules);
    follow(files, "src/main.rs", "relaybook::main", false, &mut modules);
    for file in files.keys().filter(|file| file.starts_with("crates/") && file.ends_with("/src/lib.rs")) {
        let name = format!("relaybook_{}", file.split('/').nth(1).unwrap());
        follow(files, file, &name, false, &mut modules);
    }
    modules
}

/// Returns the cells of the map after the first, by the name in the first. The program has a sentence instead of a row.
fn rows(modules: &[Module]) -> BTreeMap<&str, Vec<&str>> {
    let head = modules.iter().find(|module| module.file == "src/lib.rs").unwrap().head();
    let program = head.iter().find_map(|line| line.strip_prefix(" The program itself has about ")?.split(' ').next());
    let names = head.iter().filter_map(|line| line.strip_prefix(" | [`")?.split_once("`]"));
    let rows = names.map(|(name, rest)| (name, rest.split('|').skip(1).map(str::trim).collect()));
    rows.chain([("relaybook", vec!["", program.unwrap_or_default()])]).collect()
}

/// Compares the map in the documentation of the program with the crates, with the modules of the program, and with their number of lines.
fn map(modules: &[Module]) -> Vec<String> {
    let drawn = rows(modules);
    let mut sizes = BTreeMap::<&str, usize>::new();
    for module in modules.iter().filter(|module| !module.only_tests) {
        let mut path = module.path.split("::");
        let (of, room) = (path.next().unwrap(), path.next());
        *sizes.entry(of).or_default() += module.code().count();
        sizes.extend(room.filter(|room| of == "relaybook" && *room != "main").map(|room| (room, 0)));
    }
    let gone = drawn.keys().filter(|name| !sizes.contains_key(*name));
    let gone = gone.map(|name| format!("src/lib.rs: the map has {name}, which does not exist"));
    let wrong = sizes.iter().filter_map(|(name, lines)| {
        let Some(row) = drawn.get(name) else { return Some(format!("src/lib.rs: {name} is not on the map")) };
        let stated: usize = row[1].replace(',', "").parse().unwrap_or_default();
        let differ = *lines > 0 && stated.abs_diff(*lines) > stated * 15 / 100 + 10;
        differ.then(|| format!("src/lib.rs: {name} has {lines} lines without tests, blank lines and comments, not {stated}"))
    });
    gone.chain(wrong).collect()
}

/// Checks the length and the head of the file of a module.
fn file(Module { file, path, text, .. }: &Module) -> Vec<String> {
    let mut findings = Vec::new();
    let lines = text.trim_end().lines().count();
    if lines > LONGEST {
        findings.push(format!("{file}: {lines} lines before its tests; at most {LONGEST}"));
    }
    let is_room = path.matches("::").count() < 2 && (file.ends_with("/mod.rs") || file.ends_with("/lib.rs"));
    let head = text.lines().take(HEAD).filter(|line| line.starts_with("//!")).collect::<String>();
    if is_room && file != "src/lib.rs" && !(head.contains("In:") && head.contains("Out:")) {
        findings.push(format!("{file}: its first {HEAD} lines must say what comes in (`In:`) and what goes out (`Out:`)"));
    }
    findings
}

/// Keeps the arrows of circles, by removing those that come from where none leads, or lead to where none comes from.
fn circles(mut arrows: BTreeSet<(String, String)>) -> BTreeSet<(String, String)> {
    loop {
        let (from, to): (BTreeSet<_>, BTreeSet<_>) = arrows.iter().cloned().unzip();
        let before = arrows.len();
        arrows.retain(|(a, b)| to.contains(a) && from.contains(b));
        if arrows.len() == before {
            return arrows;
        }
    }
}

/// Returns the findings in all files.
fn check(files: &Files) -> Vec<String> {
    let modules = modules(files);
    let mut findings = map(&modules);
    let lost = files.keys().filter(|file| !modules.iter().any(|module| module.file == **file));
    findings.extend(lost.map(|file| format!("{file}: no module declares it")));
    let rows = rows(&modules);
    let is_pure = |module: &&Module| {
        let (head, row) = (module.head().concat(), rows.get(&*module.path));
        head.contains("Pure.") || head.contains("Pure:") || row.is_some_and(|row| row[0].starts_with("pure:"))
    };
    let pure: Vec<_> = modules.iter().filter(is_pure).map(|module| &*module.path).collect();
    let rooms: BTreeSet<_> = modules.iter().map(|module| room(&module.path)).collect();
    let mut arrows = BTreeSet::new();
    for module in modules.iter().filter(|module| !module.only_tests) {
        findings.extend(file(module));
        let inside = |of: &str| is_in(&module.path, of);
        let pure = pure.iter().find(|of| inside(of) && module.path != CLOCK);
        for (line, path) in module.named() {
            let at = format!("{}:{line}", module.file);
            let has = |part: &&str| format!("::{path}::").contains(&format!("::{part}::"));
            let impure = IMPURE.iter().find(|(parts, _)| parts.iter().any(has));
            if let (Some(pure), Some((_, what))) = (pure, impure) {
                findings.push(format!("{at}: {pure} is pure, but names `{path}`: {what}"));
            }
            let owners: Vec<_> = OWNED.iter().filter(|(owned, _)| is_in(&path, owned)).map(|(_, owner)| *owner).collect();
            if !owners.is_empty() && !owners.iter().any(|owner| inside(owner)) {
                findings.push(format!("{at}: only {} may name `{path}`", owners.join(", ")));
            }
            let (from, to) = (room(&module.path), room(&path));
            if from != to && rooms.contains(to) && !CIRCLES.iter().any(|of| inside(of)) {
                arrows.insert((from.to_owned(), to.to_owned()));
            }
        }
    }
    findings.extend(circles(arrows).iter().map(|(from, to)| format!("{from} uses {to}, and is in a circle of rooms")));
    findings
}

/// Reads the Rust files of all crates. Cargo runs tests in the folder of the package.
fn sources() -> Files {
    let (mut files, mut folders) = (Files::new(), vec![PathBuf::from("src"), PathBuf::from("crates")]);
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.insert(path.to_string_lossy().into_owned(), std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    files.retain(|file, _| file.starts_with("src/") || file.split('/').nth(2) == Some("src"));
    files
}

#[test]
fn modules_follow_the_rules() {
    let findings = check(&sources());
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

/// The group is a domain, and a publisher can use another one. So product code has it in one place. Only the attribute of each resource needs a
/// literal. A test of the API compares them.
#[test]
fn the_api_group_is_written_once() {
    let modules = modules(&sources());
    let product = modules.iter().filter(|module| !module.only_tests);
    let lines = product.flat_map(|module| module.code().map(move |(_, line)| (module.file.as_str(), line)));
    let (files, lines): (Vec<_>, Vec<_>) = lines.filter(|(_, line)| line.contains(GROUP)).unzip();
    let is_whole = |line: &&str| line.contains(&format!("\"{GROUP}\""));
    assert!(lines.iter().all(is_whole), "use concat!(group!(), …) or GROUP: {lines:?}");
    let resources = ["delivery", "notification", "pipeline", "pipeline_set", "promotion", "lib"];
    assert_eq!(files, resources.map(|name| format!("crates/api/src/{name}.rs")));
}

fn cargo(arguments: &[&str]) -> String {
    let mut cargo = Command::new(std::env::var("CARGO").unwrap());
    let output = cargo.args(arguments).args(["--locked", "--offline"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the packages of the workspace as Cargo describes them.
fn packages() -> Vec<Value> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    list(&serde_json::from_str::<Value>(&metadata).unwrap(), "packages").cloned().collect()
}

fn list<'v>(of: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    of[key].as_array().unwrap().iter()
}

fn name(of: &Value) -> &str {
    of["name"].as_str().unwrap()
}

/// Returns the packages that are compiled into the program for a selection, with their features.
fn compiled(selection: &[&str]) -> BTreeSet<String> {
    let tree = ["tree", "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", "{p} {f}"];
    let text = cargo(&[&tree, selection].concat());
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// A crate has the same dependencies alone and in the workspace. Otherwise `cargo test -p` would compile them again, and test something else.
#[test]
fn features_come_from_the_workspace_only() {
    let manifest = std::fs::read_to_string("Cargo.toml").unwrap();
    let (packages, mut known) = (packages(), BTreeMap::new());
    // The simulation needs a clock that can be paused. The program never contains it.
    let is_real = |package: &&Value| name(package) != "relaybook-simulation";
    for dependency in packages.iter().filter(is_real).flat_map(|package| list(package, "dependencies")) {
        let name = name(dependency);
        assert!(manifest.contains(&format!("\n{name} = ")), "{name} is not in the list of the workspace");
        let has_helpers = dependency["kind"] == "dev" && name.starts_with("relaybook-");
        let features: Vec<_> =
            list(dependency, "features").filter(|feature| !has_helpers || *feature != "testing").collect();
        let settings = (&dependency["req"], &dependency["uses_default_features"], features);
        assert_eq!(*known.entry(name).or_insert_with(|| settings.clone()), settings, "{name}");
    }
    // These change what is read and written. If a dependency enabled one more, it would be off in the tests of a crate alone.
    let json: Vec<_> = compiled(&["--workspace"]).into_iter().filter(|line| line.starts_with("serde_json v")).collect();
    assert!(json.len() == 1 && json[0].ends_with(" alloc,default,float_roundtrip,raw_value,std"), "{json:?}");
}

/// The model of the API server is for tests.
#[test]
fn the_program_does_not_contain_the_simulation() {
    let compiled = compiled(&["--package", "relaybook-controller"]);
    let is_for_tests =
        |line: &&String| ["relaybook-simulation ", "testing", "test-util", "broken"].iter().any(|of| line.contains(of));
    assert_eq!(compiled.iter().find(is_for_tests), None);
}

/// The map says which crate uses which, and which is pure. A pure crate cannot wait, because nothing in it could.
#[test]
fn the_map_has_the_arrows_between_crates() {
    let modules = modules(&sources());
    let rows = rows(&modules);
    for package in packages().iter().filter(|package| name(package) != "relaybook-controller") {
        let product = list(package, "dependencies").filter(|dependency| dependency["kind"].is_null());
        let uses: Vec<_> = product.filter_map(|dependency| name(dependency).strip_prefix("relaybook-")).collect();
        let row = &rows[&*name(package).replace('-', "_")];
        assert_eq!(row[2], if uses.is_empty() { "–".to_owned() } else { uses.join(", ") }, "{}", name(package));
        if row[0].starts_with("pure:") {
            let mut compiled = compiled(&["--package", name(package)]);
            compiled.retain(|line| RUNTIMES.iter().any(|runtime| line.starts_with(runtime)));
            assert!(compiled.is_empty(), "{} depends on {compiled:?}", name(package));
        }
    }
}

#[test]
fn the_page_of_dependencies_lists_all_dependencies() {
    let page = std::fs::read_to_string("docs/contributing/dependencies.md").unwrap();
    let (_, section) = page.split_once("\n## Crates\n\n").unwrap();
    let rows = section.lines().take_while(|line| line.starts_with('|')).skip(2);
    let cells = rows.filter_map(|row| row.split('|').nth(1)).filter(|cell| !cell.contains("`fuzz/` only"));
    let listed = cells.flat_map(|cell| cell.split('(').next().unwrap_or_default().split(',')).map(str::trim);
    let packages = packages();
    let all = packages.iter().flat_map(|package| list(package, "dependencies")).map(name);
    assert_eq!(listed.collect::<BTreeSet<_>>(), all.filter(|name| !name.starts_with("relaybook-")).collect());
}

/// `make test` names the programs of tests, because they run with different numbers of threads.
#[test]
fn make_test_runs_each_program_of_tests() {
    let makefile = std::fs::read_to_string("Makefile").unwrap();
    let recipe = makefile.split_once("\ntest: ").and_then(|(_, after)| after.split_once("\n\n")).unwrap().0;
    let packages = packages();
    let targets = packages.iter().flat_map(|package| list(package, "targets"));
    // The others are stages of their own.
    let programs = targets.filter(|target| target["test"] == true && target["kind"][0] == "test").map(name);
    let (run, missing): (Vec<_>, Vec<_>) = programs.partition(|name| recipe.contains(&format!("--test {name} ")));
    assert!(run.len() >= 3 && missing.is_empty(), "{missing:?}");
}

mod the_checker {
    use super::*;

    const MAP: &str = "//! | [`relaybook_core`] | pure: reads | 10 |\n//! The program itself has about 10 lines, in these modules:\n\
                       //! | [`webhook`] | sends |\n//! | [`outbox`] | all |\npub mod webhook;\npub mod outbox;\n";
    const HEADED: &str = "//! A module.\n//! In: this. Out: that.\n";

    /// Returns the findings for small crates with this file added or replaced.
    fn findings(file: &str, text: &str) -> String {
        let correct = [
            ("src/lib.rs", MAP),
            ("src/main.rs", "fn main() {}"),
            ("crates/core/src/lib.rs", "mod kinds;\nuse kube::core::DynamicObject;"),
            ("crates/core/src/kinds.rs", "use super::State;"),
            ("src/webhook/mod.rs", "use std::net::IpAddr;"),
            ("src/outbox/mod.rs", "mod store;\nmod decide;\n#[cfg(test)]\nmod cases;\nuse crate::webhook;"),
            ("src/outbox/store/mod.rs", "mod journal;"),
            ("src/outbox/store/journal.rs", "use relaybook_core::State;"),
            ("src/outbox/decide.rs", "//! Pure.\nuse std::time::Instant;"),
            ("src/outbox/cases.rs", "use secrecy::X;"),
        ];
        let mut files: Files = correct.map(|(file, text)| (file.to_owned(), format!("{HEADED}{text}"))).into();
        files.insert(file.to_owned(), text.to_owned());
        check(&files).join("\n")
    }

    #[test]
    fn the_checker_finds_what_is_wrong() {
        let circle = "relaybook::webhook uses relaybook::outbox, and is in a circle";
        let webhook = [
            ("use crate::outbox::Sender;", circle),
            ("use crate::{webhook::X, outbox::{self, Sender}};", circle),
            ("use crate::{\n    webhook::X,\n    outbox,\n};", circle),
            ("use crate::outbox as s;", circle),
            ("fn f() { let x = crate::outbox::go::<u8>(1); }", circle),
            ("struct A { b: Vec<crate::outbox::Sender> }", circle),
            ("fn f() { vec![crate::outbox::new()]; }", circle),
            ("use super::outbox;", circle),
            ("use self::super::outbox::X;", circle),
            ("#[cfg(test)]\nuse a::{b, c};\nuse crate::outbox;", circle),
            ("#[cfg(test)]\nmod tests {\n    fn f() {}\n}\nuse crate::outbox;", circle),
            ("#[cfg(not(test))]\nuse crate::outbox;", circle),
            ("use secrecy::SecretString;", "src/webhook/mod.rs:3: only relaybook_egress, "),
            ("// use crate::outbox;\n/// [`crate::outbox::Sender`]\nfn f() {} // crate::outbox::X", ""),
            ("#[cfg(test)]\nmod tests {\n    const A: &str = \"\na;\n\";\n    use crate::outbox;\n}", ""),
            ("#[cfg(any(test, feature = \"testing\"))]\nuse crate::outbox::{\n    a,\n    b,\n};", ""),
            ("pub(crate) fn f() {}\npub(in crate::webhook) fn g() {}", ""),
        ];
        let decide = [
            ("use ::tokio::sync::Mutex;", "decide.rs:2: relaybook::outbox::decide is pure, but names `tokio::sync::Mutex`"),
            ("use kube::{Api, core::X};", "names `kube::Api`: the API server"),
            ("fn f() { std::fs::read(\"a\"); }", "names `std::fs::read`: the operating system"),
            ("fn f() { Instant::now(); }", "names `Instant::now`: a clock"),
            ("use relaybook_api::{State, now};", "names `relaybook_api::now`: a clock"),
        ];
        let long = "// a\n".repeat(LONGEST - 1);
        let late = format!("{}//! In: this. Out: that.\nmod kinds;", "//! A module.\n".repeat(HEAD));
        let others = [
            ("src/lib.rs", MAP.replace("[`webhook`]", "webhook"), "src/lib.rs: webhook is not on the map"),
            ("src/lib.rs", MAP.replace("[`relaybook_core`]", ""), "src/lib.rs: relaybook_core is not on the map"),
            ("src/lib.rs", MAP.replace("outbox`]", "attic`]"), "src/lib.rs: the map has attic, which does not exist"),
            ("src/lib.rs", MAP.replace("| 10 |", "| 1,000 |"), "relaybook_core has 3 lines without tests"),
            ("src/lib.rs", MAP.replace("about 10", "about 100"), "relaybook has 10 lines without tests"),
            ("src/outbox/mod.rs", "//! A module.\nmod store;".to_owned(), "must say what comes in"),
            ("crates/core/src/lib.rs", late, "must say what comes in"),
            ("crates/core/src/kinds.rs", "use std::fs::File;".to_owned(), "relaybook_core is pure, but names"),
            ("src/outbox/store/journal.rs", format!("{long}fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{long}}}\n"), ""),
            ("src/outbox/store/journal.rs", format!("{long}\nfn f() {{}}"), "401 lines before its tests"),
            ("src/outbox/attic.rs", String::new(), "src/outbox/attic.rs: no module declares it"),
        ];
        let webhook = webhook.map(|(text, expected)| ("src/webhook/mod.rs", format!("{HEADED}{text}"), expected));
        let decide = decide.map(|(text, expected)| ("src/outbox/decide.rs", format!("//! Pure: this.\n{text}"), expected));
        for (file, text, expected) in webhook.into_iter().chain(decide).chain(others) {
            let findings = findings(file, &text);
            assert!(findings.contains(expected) && findings.is_empty() == expected.is_empty(), "{text}: {findings}");
        }
    }
}
