//! Checks that the modules follow the design. It reads `src/` and fails on a dependency between top-level modules that the rules
//! do not allow, on I/O in a pure module, on a module without an entry in the map or without a header, on a file that is too
//! long, and on a file that no module declares.
//!
//! The rules are in `architecture/rules.rs`. To change the design, change a rule there, and give the reason.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "architecture/rules.rs"]
mod rules;
#[path = "architecture/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use relaybook::api::GROUP;
use rules::{ARROWS, CLOCKS, FOUNDATION, HEADER, IMPURE, LONGEST, NARROWER, OWNED, PURE};
use source::{Named, Source};

/// File → text.
type Files = BTreeMap<String, String>;

/// A module that is not for tests only.
#[derive(Debug)]
struct Module {
    file: String,
    path: Vec<String>,
    source: Source,
}

impl Module {
    /// Returns the name of the top-level module that contains this one.
    fn top_level(&self) -> &str {
        self.path.first().map_or("lib", String::as_str)
    }

    fn name(&self) -> String {
        self.path.join("::")
    }

    fn is_in(&self, of: &str) -> bool {
        let name = self.name();
        name == of || name.strip_prefix(of).is_some_and(|rest| rest.starts_with("::"))
    }

    /// Resolves a path. A path into this crate starts at its root, with `crate`; other paths are returned unchanged.
    fn resolve(&self, path: &[String]) -> Vec<String> {
        let supers = path.iter().take_while(|p| *p == "super").count();
        match path.first().map(String::as_str) {
            Some("super") => self.rooted(self.path.len().saturating_sub(supers), &path[supers..]),
            // `self::super::x` is `super::x`.
            Some("self") if path.get(1).is_some_and(|p| p == "super") => self.resolve(&path[1..]),
            Some("self") => self.rooted(self.path.len(), &path[1..]),
            // The program sees the library as a separate crate.
            Some("relaybook") if self.top_level() == "main" => [&["crate".to_owned()], &path[1..]].concat(),
            _ => path.to_vec(),
        }
    }

    fn rooted(&self, depth: usize, rest: &[String]) -> Vec<String> {
        [&["crate".to_owned()], &self.path[..depth], rest].concat()
    }
}

/// The modules found so far.
struct Walk<'f> {
    files: &'f Files,
    /// Every file that a module declares.
    seen: BTreeSet<String>,
    modules: Vec<Module>,
}

impl Walk<'_> {
    /// Follows the module declarations from a file. Modules that are for tests only are noted as declared, and not checked.
    fn follow(&mut self, file: &str, path: &[String], only_tests: bool) {
        let Some(text) = self.files.get(file) else { return };
        self.seen.insert(file.to_owned());
        let source = Source::read(text);
        let folder = Path::new(file).parent().unwrap();
        let stem = Path::new(file).file_stem().unwrap();
        let is_root = ["mod", "lib", "main"].iter().any(|root| stem == *root);
        let beneath = if is_root { folder.to_owned() } else { folder.join(stem) };
        for module in &source.modules {
            let places = match &module.path {
                Some(place) => vec![folder.join(place)],
                None => vec![beneath.join(format!("{}.rs", module.name)), beneath.join(&module.name).join("mod.rs")],
            };
            let path = [path, std::slice::from_ref(&module.name)].concat();
            for place in places {
                self.follow(&place.to_string_lossy(), &path, only_tests || module.test);
            }
        }
        if !only_tests {
            self.modules.push(Module { file: file.to_owned(), path: path.to_vec(), source });
        }
    }
}

/// Whether a path begins with another path.
fn begins(path: &[String], with: &str) -> bool {
    with.split("::").zip(path.iter().map(Some).chain(std::iter::repeat(None))).all(|(a, b)| b.is_some_and(|b| a == b))
}

fn arrows(module: &Module, top_level: &BTreeSet<String>, named: &Named, path: &[String]) -> Option<String> {
    let from = module.top_level();
    let to = path.get(1).map_or("", String::as_str);
    if path[0] != "crate" || to == from || from == "lib" {
        return None;
    }
    let place = format!("{}:{}", module.file, named.line);
    if !top_level.contains(to) {
        return Some(format!("{place}: `{}` names no module", path.join("::")));
    }
    if let Some((of, allowed, why)) = NARROWER.iter().find(|(of, ..)| module.is_in(of)) {
        return (!allowed.contains(&to)).then(|| format!("{place}: {of} must not use {to}: {why}"));
    }
    let foundation = FOUNDATION.contains(&to) && !FOUNDATION.contains(&from);
    let drawn = foundation || ARROWS.iter().any(|(f, t, _)| *f == from && [to, "*"].contains(t));
    (!drawn).then(|| format!("{place}: no rule allows {from} → {to}"))
}

fn impure(module: &Module, named: &Named, path: &[String]) -> Option<String> {
    let pure = PURE.iter().find(|of| module.is_in(of))?;
    let clock = matches!(path, [.., of, now] if now == "now" && CLOCKS.contains(&of.as_str()));
    let clock = clock.then_some("a clock; pass `now` as an argument");
    let what = IMPURE.iter().find(|(with, _)| begins(path, with)).map(|(_, what)| *what).or(clock)?;
    Some(format!("{}:{}: {pure} is pure, but names `{}`: {what}", module.file, named.line, path.join("::")))
}

fn owned(module: &Module, named: &Named, path: &[String]) -> Option<String> {
    let (of, owners, why) = OWNED.iter().find(|(of, ..)| begins(path, of))?;
    let alien = !owners.iter().any(|owner| module.is_in(owner));
    alien.then(|| format!("{}:{}: only {} may name `{of}`: {why}", module.file, named.line, owners.join(", ")))
}

/// Checks the length and the header of a module's file.
fn file(module: &Module) -> Vec<String> {
    let Module { file, source, .. } = module;
    let mut findings = Vec::new();
    if source.lines > LONGEST {
        findings.push(format!("{file}: {} lines before its tests; at most {LONGEST}", source.lines));
    }
    let header = source.header.iter().take(HEADER).map(String::as_str).collect::<Vec<_>>().join("\n");
    if module.path.len() == 1 && file.ends_with("/mod.rs") && !["In:", "Out:"].iter().all(|w| header.contains(w)) {
        findings.push(format!("{file}: its first {HEADER} lines must say what comes in (`In:`) and what goes out (`Out:`)"));
    }
    findings
}

/// Compares the map in the crate's documentation with the top-level modules.
fn map(lib: &Module, top_level: &BTreeSet<String>) -> Vec<String> {
    let entry = |line: &String| Some(line.trim().strip_prefix("| [`")?.split_once("`]")?.0.to_owned());
    let drawn: BTreeSet<String> = lib.source.header.iter().filter_map(entry).collect();
    let missing = top_level.difference(&drawn).map(|name| format!("src/lib.rs: module {name} is not on the map"));
    let gone =
        drawn.difference(top_level).map(|name| format!("src/lib.rs: the map has a module {name}, which does not exist"));
    missing.chain(gone).collect()
}

/// Returns the findings, and the dependencies that were seen, which prove that the checker has read the files.
fn check(files: &Files) -> (Vec<String>, BTreeSet<(String, String)>) {
    let mut walk = Walk { files, seen: BTreeSet::new(), modules: Vec::new() };
    walk.follow("src/lib.rs", &[], false);
    walk.follow("src/main.rs", &["main".to_owned()], false);
    let Walk { seen, modules, .. } = walk;
    let mut findings: Vec<String> =
        files.keys().filter(|f| !seen.contains(*f)).map(|f| format!("{f}: no module declares it")).collect();
    let lib = modules.iter().find(|m| m.path.is_empty()).unwrap();
    let top_level: BTreeSet<String> = lib.source.modules.iter().map(|m| m.name.clone()).collect();
    findings.extend(map(lib, &top_level));
    let mut used = BTreeSet::new();
    for module in &modules {
        findings.extend(file(module));
        for named in &module.source.named {
            let path = module.resolve(&named.path);
            findings.extend(arrows(module, &top_level, named, &path));
            findings.extend(impure(module, named, &path));
            findings.extend(owned(module, named, &path));
            if path[0] == "crate" && path.len() > 1 {
                used.insert((module.top_level().to_owned(), path[1].clone()));
            }
        }
    }
    (findings, used)
}

/// Reads all Rust files below a folder.
fn read(folder: &Path, files: &mut Files) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.insert(path.to_string_lossy().into_owned(), std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn modules_use_only_the_modules_that_the_rules_allow() {
    // cargo runs tests in the folder of the package.
    let mut files = Files::new();
    read(Path::new("src"), &mut files);
    let (findings, used) = check(&files);
    for (from, to) in [("dispatch", "outbox"), ("outbox", "webhook"), ("config", "render")] {
        assert!(used.contains(&(from.to_owned(), to.to_owned())), "the checker does not see {from} → {to}");
    }
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

/// The group is a domain, and a publisher can use another one. So product code has it in one place.
#[test]
fn the_api_group_is_written_once() {
    let mut files = Files::new();
    read(Path::new("src"), &mut files);
    let is_test_file = |path: &str| path.contains("/tests") || path.contains("/properties") || path.contains("testing");
    let product = files.iter().filter(|(path, _)| !is_test_file(path));
    let texts = product.flat_map(|(path, text)| Source::read(text).texts.into_iter().map(move |(line, t)| (path, line, t)));
    let of_group: Vec<_> = texts.filter(|(.., text)| text.contains(GROUP)).collect();
    let (whole, parts): (Vec<_>, Vec<_>) = of_group.into_iter().partition(|(.., text)| text == GROUP);
    assert!(parts.is_empty(), "use concat!(group!(), …) or GROUP: {parts:?}");
    let files: Vec<_> = whole.iter().map(|(path, ..)| path.as_str()).collect();
    // The attribute of each resource needs a literal. A test of the API compares them.
    let resources = ["delivery", "mod", "notification", "pipeline", "pipeline_set", "promotion"];
    assert_eq!(files, resources.map(|name| format!("src/api/{name}.rs")));
}

mod the_checker {
    use super::*;

    const LIB: &str = "//! | [`api`] | values |\n//! | [`observe`] | reads |\n//! | [`webhook`] | sends |\n//! | [`outbox`] | all |\n\
                       pub mod api;\npub mod observe;\npub mod webhook;\npub mod outbox;\n";
    const HEAD: &str = "//! A module.\n//! In: this. Out: that.\n";

    /// Returns the findings for a small crate with these files added or replaced.
    fn findings(over: &[(&str, &str)]) -> Vec<String> {
        let head = |rest: &str| format!("{HEAD}{rest}");
        let mut files = Files::from([
            ("src/lib.rs".to_owned(), LIB.to_owned()),
            ("src/main.rs".to_owned(), "fn main() {}".to_owned()),
            ("src/api/mod.rs".to_owned(), head("")),
            ("src/observe/mod.rs".to_owned(), head("mod kinds;\nuse crate::api::State;\nuse kube::core::DynamicObject;")),
            ("src/observe/kinds.rs".to_owned(), "use super::super::api::State;".to_owned()),
            ("src/webhook/mod.rs".to_owned(), head("use reqwest::Client;\nuse std::net::IpAddr;")),
            ("src/outbox/mod.rs".to_owned(), head("mod store;\nmod lane;\nuse crate::webhook;")),
            ("src/outbox/store/mod.rs".to_owned(), head("mod journal;")),
            ("src/outbox/store/journal.rs".to_owned(), "use crate::api::{Delivery, State};".to_owned()),
            ("src/outbox/lane.rs".to_owned(), "use std::time::Instant;".to_owned()),
        ]);
        files.extend(over.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())));
        check(&files).0
    }

    #[test]
    fn a_correct_layout_has_no_findings() {
        assert_eq!(findings(&[]), Vec::<String>::new());
    }

    #[test]
    fn the_checker_finds_the_modules_that_a_file_uses() {
        let table = [
            ("an import", "use crate::webhook::Sender;", "no rule allows observe → webhook"),
            ("one of a group", "use crate::{api::State, webhook::{self, Sender}};", "no rule allows observe → webhook"),
            ("renamed", "use crate::webhook as s;", "no rule allows observe → webhook"),
            ("in passing", "fn f() { let x = crate::webhook::go::<u8>(1); }", "no rule allows observe → webhook"),
            ("in a type", "struct A { b: Vec<crate::webhook::Sender> }", "no rule allows observe → webhook"),
            ("in a macro", "fn f() { vec![crate::webhook::new()]; }", "no rule allows observe → webhook"),
            ("by way of the parent", "use super::super::webhook;", "no rule allows observe → webhook"),
            ("by way of itself", "use self::super::super::webhook::X;", "no rule allows observe → webhook"),
            (
                "after what confuses",
                "const A: char = '\"'; fn f<'a>(b: &'a str) {} use crate::webhook;",
                "observe → webhook",
            ),
            ("after a raw string", "const A: &str = r#\"a \"quoted\" b\"#; use crate::webhook;", "observe → webhook"),
            ("after a comment", "/* a /* b */ c */ use crate::webhook;", "observe → webhook"),
            ("after a test", "#[cfg(test)]\nuse a::{b, c};\nuse crate::webhook;", "src/observe/kinds.rs:3: "),
            ("not only in tests", "#[cfg(not(test))]\nuse crate::webhook;", "observe → webhook"),
            ("the whole crate", "use crate::*;", "names no module"),
            ("what is no module", "use crate::Thing;", "names no module"),
            ("a runtime", "use ::tokio::sync::Mutex;", "observe is pure, but names `tokio::sync::Mutex`"),
            ("a client", "use kube::{Api, core::X};", "names `kube::Api`: the API server"),
            ("files", "fn f() { std::fs::read(\"a\"); }", "names `std::fs::read`: files"),
            ("a clock", "fn f() { Instant::now(); }", "names `Instant::now`: a clock"),
            ("our clock", "use crate::api::{State, now};", "names `crate::api::now`: a clock"),
            ("another's crate", "use reqwest::Client;", "only webhook may name `reqwest`"),
            (
                "another's type",
                "use crate::api::Delivery;",
                "only api, outbox::store::journal, audit, promotion::controller",
            ),
        ];
        for (what, text, expected) in table {
            let findings = findings(&[("src/observe/kinds.rs", text)]);
            assert!(findings.iter().any(|f| f.contains(expected)), "{what}: {findings:?}");
        }
    }

    #[test]
    fn the_checker_ignores_comments_and_tests() {
        for text in [
            "// use crate::webhook;\n/// [`crate::webhook::Sender`]\nfn f() {}",
            "const A: &str = \"crate::webhook::X\"; const B: &str = r\"crate::webhook::X\";",
            "#[cfg(test)]\nmod tests {\n    use crate::webhook;\n    fn f() { Instant::now(); }\n}",
            "#[cfg(test)]\n#[path = \"kinds_tests.rs\"]\nmod tests;",
            "pub(crate) fn f() {}\npub(in crate::observe) fn g() {}",
            "use std::time::{Duration, Instant}; fn f(now: Instant) -> impl Fn() + use<> { move || now }",
        ] {
            let tests = "use crate::webhook;\nuse tokio::sync::Mutex;";
            let over = [("src/observe/kinds.rs", text), ("src/observe/kinds_tests.rs", tests)];
            let over = if text.contains("path") { &over[..] } else { &over[..1] };
            assert_eq!(findings(over), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn parts_of_a_module_have_their_own_rules() {
        let of = |file: &str, text: &str| findings(&[(file, text)]).join("\n");
        assert!(
            of("src/outbox/store/journal.rs", "use crate::webhook;").contains("outbox::store::journal must not use webhook")
        );
        assert!(of("src/outbox/lane.rs", "use tokio::sync::Mutex;").contains("outbox::lane is pure"));
        assert!(of("src/api/mod.rs", &format!("{HEAD}use crate::observe::X;")).contains("no rule allows api → observe"));
        assert!(of("src/main.rs", "use relaybook::webhook::X;").contains("no rule allows main → webhook"));
    }

    #[test]
    fn the_checker_requires_a_map_headers_and_short_files() {
        let of = |file: &str, text: &str| findings(&[(file, text)]).join("\n");
        let hidden = LIB.replace("//! | [`webhook`] | sends |\n", "");
        assert_eq!(of("src/lib.rs", &hidden), "src/lib.rs: module webhook is not on the map");
        let ghost = format!("//! | [`attic`] | old |\n{LIB}");
        assert_eq!(of("src/lib.rs", &ghost), "src/lib.rs: the map has a module attic, which does not exist");
        assert!(of("src/api/mod.rs", "//! A module.\n").contains("must say what comes in"));
        let late = format!("{}//! In: this. Out: that.\n", "//! A module.\n".repeat(HEADER));
        assert!(of("src/api/mod.rs", &late).contains("must say what comes in"));
        let long = "fn f() {}\n".repeat(LONGEST);
        assert_eq!(of("src/outbox/lane.rs", &long), "");
        assert_eq!(of("src/outbox/lane.rs", &format!("{long}#[cfg(test)]\nmod tests {{\n{long}}}\n")), "");
        assert!(of("src/outbox/lane.rs", &format!("{long}fn g() {{}}\n")).contains("401 lines before its tests"));
        assert_eq!(of("src/outbox/attic.rs", ""), "src/outbox/attic.rs: no module declares it");
    }
}

/// Returns the links of a page to files of this repository, relative to the folder of the page.
fn links(page: &str) -> Vec<&str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    // Other text after `](` belongs to a regular expression.
    let is_path = |target: &&str| target.chars().all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c));
    targets.filter(|target| !target.is_empty()).filter(is_path).collect()
}

#[test]
fn links_of_documents_are_not_broken() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut missing = Vec::new();
    for folder in [".", "docs", "docs/contributing", "docs/design", "docs/promotions"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap().map(Result::unwrap) {
            let page = entry.path();
            if page.extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(&page).unwrap();
                let gone = links(&text).into_iter().filter(|link| !page.parent().unwrap().join(link).exists());
                missing.extend(gone.map(|link| format!("{}: {link}", entry.file_name().to_string_lossy())));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert_eq!(links("[a](b.md#c) [d](https://e/f) [g](#h) ![i](../j.png)"), ["b.md", "../j.png"]);
}

/// Returns the names in the first cells of the table, without the text in brackets and without the crates of `fuzz/`.
fn crates_of_the_page(page: &str) -> BTreeSet<String> {
    let (_, section) = page.split_once("\n## Crates\n\n").unwrap();
    let rows = section.lines().take_while(|line| line.starts_with('|')).skip(2);
    let cells = rows.filter_map(|row| row.split('|').nth(1)).filter(|cell| !cell.contains("`fuzz/` only"));
    let names = cells.flat_map(|cell| cell.split('(').next().unwrap_or_default().split(','));
    names.map(|name| name.trim().to_owned()).collect()
}

/// Returns the names in the dependency sections.
fn crates_of_the_manifest(manifest: &str) -> BTreeSet<String> {
    let sections = manifest.split("\n[").filter(|section| section.contains("dependencies]"));
    let lines = sections.flat_map(|section| section.lines().skip(1));
    lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn the_page_of_dependencies_lists_all_dependencies() {
    let text = |file: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    assert_eq!(crates_of_the_page(&text("docs/contributing/dependencies.md")), crates_of_the_manifest(&text("Cargo.toml")));
}

/// `make test` names the programs of tests, because they run with different numbers of threads.
#[test]
fn make_test_runs_each_program_of_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let makefile = std::fs::read_to_string(root.join("Makefile")).unwrap();
    let (_, after) = makefile.split_once("\ntest: ").unwrap();
    let recipe: BTreeSet<&str> = after.split_once("\n\n").unwrap().0.split_whitespace().collect();
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(root.join("tests")).unwrap().flatten() {
        let path = entry.path();
        if path.join("main.rs").exists() || path.extension().is_some_and(|e| e == "rs") {
            found.insert(path.file_stem().unwrap().to_string_lossy().into_owned());
        }
    }
    // Stages of their own.
    assert!(found.remove("chaos") && found.remove("page"));
    assert!(found.len() >= 3 && found.iter().all(|name| recipe.contains(name.as_str())), "{found:?}");
}
