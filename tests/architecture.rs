//! Checks what Cargo cannot: that each crate and module says what comes in and what goes out, that the modules of a crate form no circle, that
//! decisions in crates with I/O are pure, and that files are short and declared. It reads `src/` and `crates/*/src/`.
//!
//! Which crate may use which is in their `Cargo.toml`. The other rules are in `architecture/rules.rs`. To change the design, change a rule
//! there, and give the reason.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "architecture/rules.rs"]
mod rules;
#[path = "architecture/source.rs"]
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use relaybook_api::GROUP;
use rules::{CLOCKS, HEADER, IMPURE, LONGEST, OWNED, PURE, ROOMS};
use source::{Named, Source};

/// File → text.
type Files = BTreeMap<String, String>;

/// A module that is not for tests only. Its path begins with the name of its crate. The path of a module of the program has no such name.
#[derive(Debug)]
struct Module {
    file: String,
    path: Vec<String>,
    /// Length of the path of its crate.
    root: usize,
    source: Source,
}

impl Module {
    fn is_in(&self, of: &str) -> bool {
        let name = self.path.join("::");
        name == of || name.strip_prefix(of).is_some_and(|rest| rest.starts_with("::"))
    }

    /// The module of the crate that contains this one.
    fn top_level(&self) -> Option<&String> {
        self.path.get(self.root)
    }

    /// Resolves a path. A path into a crate of Relaybook starts with `crate` and the name of the crate; other paths are returned unchanged.
    fn resolve(&self, path: &[String]) -> Vec<String> {
        let supers = path.iter().take_while(|p| *p == "super").count();
        let rooted = |depth: usize, rest: &[String]| [&["crate".to_owned()], &self.path[..depth], rest].concat();
        match path.first().map(String::as_str) {
            Some("crate") => rooted(self.root, &path[1..]),
            Some("super") => rooted(self.path.len().saturating_sub(supers), &path[supers..]),
            // `self::super::x` is `super::x`.
            Some("self") if path.get(1).is_some_and(|p| p == "super") => self.resolve(&path[1..]),
            Some("self") => rooted(self.path.len(), &path[1..]),
            Some(name) => match name.strip_prefix("relaybook_") {
                Some(of) => [&["crate".to_owned(), of.to_owned()], &path[1..]].concat(),
                None => path.to_vec(),
            },
            None => Vec::new(),
        }
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
    fn follow(&mut self, file: &str, path: &[String], root: usize, only_tests: bool) {
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
                self.follow(&place.to_string_lossy(), &path, root, only_tests || module.test);
            }
        }
        if !only_tests {
            self.modules.push(Module { file: file.to_owned(), path: path.to_vec(), root, source });
        }
    }
}

/// Whether a path begins with another path.
fn begins(path: &[String], with: &str) -> bool {
    with.split("::").zip(path.iter().map(Some).chain(std::iter::repeat(None))).all(|(a, b)| b.is_some_and(|b| a == b))
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
    let is_room = match module.path.len() - module.root {
        0 => file.starts_with("crates/"),
        1 => file.ends_with("/mod.rs"),
        _ => false,
    };
    if is_room && !["In:", "Out:"].iter().all(|w| header.contains(w)) {
        findings.push(format!("{file}: its first {HEADER} lines must say what comes in (`In:`) and what goes out (`Out:`)"));
    }
    findings
}

/// Compares the map in the documentation of the program with the crates, and with the modules of the program.
fn map(modules: &[Module]) -> Vec<String> {
    let lib = modules.iter().find(|m| m.file == "src/lib.rs").unwrap();
    let entry = |line: &String| Some(line.trim().strip_prefix("| [`")?.split_once("`]")?.0.to_owned());
    let drawn: BTreeSet<String> = lib.source.header.iter().filter_map(entry).collect();
    let crates = modules.iter().filter(|m| m.root == 1).map(|m| format!("relaybook_{}", m.path[0]));
    let all: BTreeSet<String> = crates.chain(lib.source.modules.iter().map(|m| m.name.clone())).collect();
    let missing = all.difference(&drawn).map(|name| format!("src/lib.rs: {name} is not on the map"));
    let gone = drawn.difference(&all).map(|name| format!("src/lib.rs: the map has {name}, which does not exist"));
    missing.chain(gone).collect()
}

/// Which module of a crate uses which, by the path of its crate.
type Arrows = BTreeMap<(String, String), BTreeSet<String>>;

/// Returns the modules of a circle in a crate with several rooms, if there is one. Rooms without a circle can be read, tested and moved alone.
fn circle(arrows: &Arrows) -> Option<String> {
    let mut open: BTreeSet<_> = arrows
        .iter()
        .filter(|((of, _), _)| ROOMS.contains(&of.as_str()))
        .flat_map(|((of, from), used)| used.iter().map(move |to| (of.clone(), from.clone(), to.clone())))
        .collect();
    loop {
        let (from, to): (BTreeSet<_>, BTreeSet<_>) = open.iter().map(|(of, a, b)| ((of, a), (of, b))).unzip();
        let kept: BTreeSet<_> =
            open.iter().filter(|(of, a, b)| to.contains(&(of, a)) && from.contains(&(of, b))).cloned().collect();
        if kept.len() == open.len() {
            let names = kept.iter().map(|(of, from, to)| format!("{of}: {from} → {to}")).collect::<Vec<_>>();
            return (!kept.is_empty()).then(|| format!("these modules form a circle: {}", names.join(", ")));
        }
        open = kept;
    }
}

/// Returns the findings, and which modules use which, which proves that the checker has read the files.
fn check(files: &Files) -> (Vec<String>, Arrows) {
    let mut walk = Walk { files, seen: BTreeSet::new(), modules: Vec::new() };
    walk.follow("src/lib.rs", &[], 0, false);
    walk.follow("src/main.rs", &["main".to_owned()], 0, false);
    for file in files.keys().filter(|file| file.starts_with("crates/") && file.ends_with("/src/lib.rs")) {
        walk.follow(file, &[file.split('/').nth(1).unwrap().to_owned()], 1, false);
    }
    let Walk { seen, modules, .. } = walk;
    let mut findings: Vec<String> =
        files.keys().filter(|f| !seen.contains(*f)).map(|f| format!("{f}: no module declares it")).collect();
    findings.extend(map(&modules));
    let mut arrows = Arrows::new();
    for module in &modules {
        findings.extend(file(module));
        let of = module.path[..module.root].join("::");
        for named in &module.source.named {
            let path = module.resolve(&named.path);
            findings.extend(impure(module, named, &path));
            findings.extend(owned(module, named, &path));
            let same = path[0] == "crate" && path[1..].starts_with(&module.path[..module.root]);
            if let (true, Some(from), Some(to)) = (same, module.top_level(), path.get(module.root + 1))
                && from != to
                && modules.iter().any(|m| m.root == module.root && m.path.len() == m.root + 1 && m.path.last() == Some(to))
            {
                arrows.entry((of.clone(), from.clone())).or_default().insert(to.clone());
            }
        }
    }
    findings.extend(circle(&arrows));
    (findings, arrows)
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

/// Reads all crates. Cargo runs tests in the folder of the package.
fn sources() -> Files {
    let mut files = Files::new();
    read(Path::new("src"), &mut files);
    for member in std::fs::read_dir("crates").unwrap() {
        read(&member.unwrap().path().join("src"), &mut files);
    }
    files
}

#[test]
fn modules_follow_the_rules() {
    let (findings, arrows) = check(&sources());
    assert!(arrows.len() > 10, "the checker does not see which modules use which: {arrows:?}");
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

/// A crate has the same dependencies alone and in the workspace. Otherwise `cargo test -p` would compile them again, and test something else.
#[test]
fn features_come_from_the_workspace_only() {
    for member in std::fs::read_dir("crates").unwrap() {
        let manifest = std::fs::read_to_string(member.unwrap().path().join("Cargo.toml")).unwrap();
        let sections = manifest.split("\n[").filter(|section| section.split(']').next().unwrap().ends_with("dependencies"));
        for line in sections.flat_map(|section| section.lines().skip(1)).filter(|line| line.contains('=')) {
            let plain = line.ends_with(".workspace = true") || line.contains("workspace = true, optional = true");
            let is_helper =
                line.starts_with("relaybook-") && line.ends_with("{ workspace = true, features = [\"testing\"] }");
            assert!(plain || is_helper, "{line}");
        }
    }
}

/// Returns the packages of a selection that are compiled into the program, in this format.
fn cargo_tree(selection: &[&str], format: &str) -> BTreeSet<String> {
    let tree = ["tree", "--locked", "--offline", "--edges", "normal,no-proc-macro", "--prefix", "none", "--format", format];
    let output = Command::new(std::env::var("CARGO").unwrap()).args(tree).args(selection).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

/// The map in the documentation of the program says which crate uses which.
#[test]
fn the_map_has_the_arrows_between_crates() {
    let lib = std::fs::read_to_string("src/lib.rs").unwrap();
    for member in std::fs::read_dir("crates").unwrap().map(Result::unwrap) {
        let manifest = std::fs::read_to_string(member.path().join("Cargo.toml")).unwrap();
        let (_, section) = manifest.split_once("\n[dependencies]\n").unwrap();
        let ours =
            section.lines().take_while(|line| !line.starts_with('[')).filter_map(|line| line.strip_prefix("relaybook-"));
        let uses: Vec<_> = ours.map(|line| line.split('.').next().unwrap()).collect();
        let uses = if uses.is_empty() { "–".to_owned() } else { uses.join(", ") };
        let name = format!("[`relaybook_{}`]", member.file_name().to_string_lossy());
        let row = lib.lines().find(|line| line.contains(&name)).unwrap();
        assert!(row.ends_with(&format!(" | {uses} |")), "src/lib.rs: {name} uses {uses}");
    }
}

/// Features of `serde_json` change what it reads and writes. Another crate of the workspace could enable one, and it would be off in the tests of
/// a single crate.
#[test]
fn a_crate_alone_has_the_same_serde_json_as_in_the_workspace() {
    let features = |selection: &[&str]| {
        let lines = cargo_tree(selection, "{p} {f}").into_iter().filter(|line| line.starts_with("serde_json v"));
        lines.collect::<BTreeSet<_>>()
    };
    let workspace = features(&["--workspace"]);
    assert_eq!(workspace.len(), 1);
    for member in std::fs::read_dir("crates").unwrap() {
        let member = member.unwrap();
        let manifest = std::fs::read_to_string(member.path().join("Cargo.toml")).unwrap();
        let name = format!("relaybook-{}", member.file_name().to_string_lossy());
        let uses = manifest.split("[dev-dependencies]").next().unwrap().contains("\nserde_json.workspace");
        let alone = if uses { features(&["--package", &name]) } else { workspace.clone() };
        assert!(alone == workspace, "{name} alone: {alone:?}, in the workspace: {workspace:?}");
    }
}

/// A crate that is pure cannot wait, because nothing in it could.
#[test]
fn pure_crates_have_no_runtime_and_no_client() {
    let crates = rules::PURE.iter().filter(|name| !name.contains("::") && **name != "api");
    let impure = ["tokio", "mio", "hyper", "hyper-util", "kube", "kube-client", "kube-runtime", "reqwest"];
    for name in crates.chain(&["api"]) {
        let tree = cargo_tree(&["--package", &format!("relaybook-{name}")], "{p}");
        let found: Vec<_> = tree.iter().filter(|line| impure.contains(&line.split(' ').next().unwrap())).collect();
        assert!(tree.len() > 1 || *name == "text", "{name}: {tree:?}");
        assert!(found.is_empty(), "{name} depends on {found:?}");
    }
}

/// The group is a domain, and a publisher can use another one. So product code has it in one place.
#[test]
fn the_api_group_is_written_once() {
    let files = sources();
    let is_test_file = |path: &str| path.contains("/tests") || path.contains("/properties") || path.contains("testing");
    let product = files.iter().filter(|(path, _)| !is_test_file(path));
    let texts = product.flat_map(|(path, text)| Source::read(text).texts.into_iter().map(move |(line, t)| (path, line, t)));
    let of_group: Vec<_> = texts.filter(|(.., text)| text.contains(GROUP)).collect();
    let (whole, parts): (Vec<_>, Vec<_>) = of_group.into_iter().partition(|(.., text)| text == GROUP);
    assert!(parts.is_empty(), "use concat!(group!(), …) or GROUP: {parts:?}");
    let files: Vec<_> = whole.iter().map(|(path, ..)| path.as_str()).collect();
    // The attribute of each resource needs a literal. A test of the API compares them.
    let resources = ["delivery", "lib", "notification", "pipeline", "pipeline_set", "promotion"];
    assert_eq!(files, resources.map(|name| format!("crates/api/src/{name}.rs")));
}

mod the_checker {
    use super::*;

    const LIB: &str = "//! | [`relaybook_observe`] | reads |\n//! | [`webhook`] | sends |\n//! | [`outbox`] | all |\n\
                       pub mod webhook;\npub mod outbox;\n";
    const HEAD: &str = "//! A module.\n//! In: this. Out: that.\n";

    /// Returns the findings for small crates with these files added or replaced.
    fn findings(over: &[(&str, &str)]) -> Vec<String> {
        let head = |rest: &str| format!("{HEAD}{rest}");
        let mut files = Files::from([
            ("src/lib.rs".to_owned(), LIB.to_owned()),
            ("src/main.rs".to_owned(), "fn main() {}".to_owned()),
            ("crates/observe/src/lib.rs".to_owned(), head("mod kinds;\nuse kube::core::DynamicObject;")),
            ("crates/observe/src/kinds.rs".to_owned(), "use super::State;".to_owned()),
            ("src/webhook/mod.rs".to_owned(), head("use std::net::IpAddr;")),
            ("src/outbox/mod.rs".to_owned(), head("mod store;\nmod decide;\nuse crate::webhook;")),
            ("src/outbox/store/mod.rs".to_owned(), head("mod journal;")),
            ("src/outbox/store/journal.rs".to_owned(), "use relaybook_observe::State;".to_owned()),
            ("src/outbox/decide.rs".to_owned(), "use std::time::Instant;".to_owned()),
        ]);
        files.extend(over.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())));
        check(&files).0
    }

    #[test]
    fn a_correct_layout_has_no_findings() {
        assert_eq!(findings(&[]), Vec::<String>::new());
    }

    #[test]
    fn the_checker_finds_what_a_file_names() {
        let file = "crates/core/src/lib.rs".to_owned();
        let circle = "these modules form a circle: : outbox → webhook, : webhook → outbox";
        let table = [
            ("an import", "use crate::outbox::Sender;", circle),
            ("one of a group", "use crate::{webhook::X, outbox::{self, Sender}};", circle),
            ("renamed", "use crate::outbox as s;", circle),
            ("in passing", "fn f() { let x = crate::outbox::go::<u8>(1); }", circle),
            ("in a type", "struct A { b: Vec<crate::outbox::Sender> }", circle),
            ("in a macro", "fn f() { vec![crate::outbox::new()]; }", circle),
            ("by way of the parent", "use super::outbox;", circle),
            ("by way of itself", "use self::super::outbox::X;", circle),
            ("after what confuses", "const A: char = '\"'; fn f<'a>(b: &'a str) {} use crate::outbox;", circle),
            ("after a raw string", "const A: &str = r#\"a \"quoted\" b\"#; use crate::outbox;", circle),
            ("after a comment", "/* a /* b */ c */ use crate::outbox;", circle),
            ("after a test", "#[cfg(test)]\nuse a::{b, c};\nuse crate::outbox;", circle),
            ("not only in tests", "#[cfg(not(test))]\nuse crate::outbox;", circle),
            ("a token", "use secrecy::SecretString;", "may name `secrecy`"),
        ];
        for (what, text, expected) in table {
            let findings = findings(&[("src/webhook/mod.rs", &format!("{HEAD}{text}"))]);
            assert!(findings.iter().any(|f| f.contains(expected)), "{what}: {findings:?}");
        }
        let table = [
            ("a runtime", "use ::tokio::sync::Mutex;", "is pure, but names `tokio::sync::Mutex`"),
            ("a client", "use kube::{Api, core::X};", "names `kube::Api`: the API server"),
            ("files", "fn f() { std::fs::read(\"a\"); }", "names `std::fs::read`: files"),
            ("a clock", "fn f() { Instant::now(); }", "names `Instant::now`: a clock"),
            ("our clock", "use relaybook_api::{State, now};", "names `crate::api::now`: a clock"),
        ];
        for (what, text, expected) in table {
            let source = Source::read(text);
            let path: Vec<String> = rules::PURE[0].split("::").map(str::to_owned).collect();
            let module = Module { file: file.clone(), path, root: 1, source };
            let findings: Vec<_> = module
                .source
                .named
                .iter()
                .filter_map(|named| impure(&module, named, &module.resolve(&named.path)))
                .collect();
            assert!(findings.iter().any(|f| f.contains(expected)), "{what}: {findings:?}");
        }
    }

    #[test]
    fn the_checker_ignores_comments_and_tests() {
        for text in [
            "// use crate::outbox;\n/// [`crate::outbox::Sender`]\nfn f() {}",
            "const A: &str = \"crate::outbox::X\"; const B: &str = r\"crate::outbox::X\";",
            "#[cfg(test)]\nmod tests {\n    use crate::outbox;\n    fn f() { Instant::now(); }\n}",
            "#[cfg(test)]\n#[path = \"kinds_tests.rs\"]\nmod tests;",
            "pub(crate) fn f() {}\npub(in crate::webhook) fn g() {}",
        ] {
            let text = format!("{HEAD}{text}");
            let over = [
                ("src/webhook/mod.rs", text.as_str()),
                ("src/webhook/kinds_tests.rs", "use crate::outbox;\nuse secrecy::X;"),
            ];
            let over = if text.contains("path") { &over[..] } else { &over[..1] };
            assert_eq!(findings(over), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn the_checker_requires_a_map_headers_and_short_files() {
        let of = |file: &str, text: &str| findings(&[(file, text)]).join("\n");
        let hidden = LIB.replace("//! | [`webhook`] | sends |\n", "");
        assert_eq!(of("src/lib.rs", &hidden), "src/lib.rs: webhook is not on the map");
        let hidden = LIB.replace("//! | [`relaybook_observe`] | reads |\n", "");
        assert_eq!(of("src/lib.rs", &hidden), "src/lib.rs: relaybook_observe is not on the map");
        let ghost = format!("//! | [`attic`] | old |\n{LIB}");
        assert_eq!(of("src/lib.rs", &ghost), "src/lib.rs: the map has attic, which does not exist");
        for room in ["src/webhook/mod.rs", "crates/observe/src/lib.rs"] {
            assert!(of(room, "//! A module.\nmod kinds;").contains("must say what comes in"));
            let late = format!("{}//! In: this. Out: that.\nmod kinds;", "//! A module.\n".repeat(HEADER));
            assert!(of(room, &late).contains("must say what comes in"));
        }
        let long = "fn f() {}\n".repeat(LONGEST);
        assert_eq!(of("src/outbox/decide.rs", &long), "");
        assert_eq!(of("src/outbox/decide.rs", &format!("{long}#[cfg(test)]\nmod tests {{\n{long}}}\n")), "");
        assert!(of("src/outbox/decide.rs", &format!("{long}fn g() {{}}\n")).contains("401 lines before its tests"));
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

/// Returns the crates of others in the list of the workspace.
fn crates_of_the_manifest(manifest: &str) -> BTreeSet<String> {
    let (_, section) = manifest.split_once("\n[workspace.dependencies]\n").unwrap();
    let names = section.lines().map_while(|line| line.split_once(" = ")).map(|(name, _)| name.to_owned());
    names.filter(|name| !name.starts_with("relaybook-")).collect()
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
