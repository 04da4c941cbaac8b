//! Tests `relaybook setters`: which files it reads, what it prints and writes, and its exit codes. No test needs a cluster.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

const PROD: &str = "# {\"$promotion\": \"team-a:podinfo:prod\"}";
const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A folder for one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let root = crate::support::tmp().join("setters").join(name);
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        let file = self.0.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
        self
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }

    /// Runs the command in the folder. Returns exit code, stdout and stderr.
    fn run(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relaybook"));
        command.arg("setters").args(args).current_dir(&self.0).env("KUBECONFIG", "/does/not/exist");
        let output = command.output().expect("relaybook runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    /// Sets a revision in `prod`, with more arguments.
    fn set(&self, revision: &str, more: &[&str]) -> (i32, String, String) {
        self.run(&[&[".", "--promotion", "team-a:podinfo:prod", "--revision", revision], more].concat())
    }
}

/// Returns the marker with a suffix.
fn with(suffix: &str) -> String {
    PROD.replace("prod", &format!("prod:{suffix}"))
}

#[test]
fn the_difference_is_shown_and_written_on_request() {
    let folder = Folder::new("written");
    let (before, after) = (
        format!("# a comment\r\nspec:\r\n    version:   '6.5.0'  {PROD} # the chart\r\n    other: x # y"),
        format!("# a comment\r\nspec:\r\n    version:   '6.5.1'  {PROD} # the chart\r\n    other: x # y"),
    );
    folder.write("apps/prod.yaml", &before).write("apps/other.yml", "a: 6.5.0\n").write("apps/notes.txt", PROD);
    let (code, diff, said) = folder.set("6.5.1", &[]);
    let expected = format!(
        "--- ./apps/prod.yaml\n+++ ./apps/prod.yaml\n@@ -1,4 +1,4 @@\n # a comment\r\n spec:\r\n-    version:   '6.5.0'  {PROD} # the \
         chart\r\n+    version:   '6.5.1'  {PROD} # the chart\r\n     other: x # y\n\\ No newline at end of file\n"
    );
    assert_eq!((code, diff.as_str()), (0, expected.as_str()));
    assert_eq!(said, "relaybook: 1 value to set in 1 file; --write writes them\n");
    assert_eq!(folder.read("apps/prod.yaml"), before, "nothing is written without --write");

    let written = folder.set("6.5.1", &["--write"]);
    assert_eq!(written, (0, expected, "relaybook: 1 value set in 1 file\n".to_owned()));
    assert_eq!(folder.read("apps/prod.yaml"), after);
    let again = folder.set("6.5.1", &["--write"]);
    assert_eq!(again, (0, String::new(), "relaybook: nothing to change: 1 value set already\n".to_owned()));
    let names: Vec<_> = std::fs::read_dir(folder.0.join("apps")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "no temporary file is left: {names:?}");
}

#[test]
fn a_version_tag_commit_or_digest_changes_only_the_bytes_of_its_value() {
    let folder = Folder::new("parts");
    let old = DIGEST.replace('0', "f");
    let files = |version: &str, tag: &str, commit: &str, digest: &str| {
        [
            ("release.yaml", format!("spec:\r\n  version: {version} {PROD}\r\n  # kept\r\n")),
            ("deployment.yaml", format!("- image: \"registry.example.com:5000/web:{tag}\" {}\n", with("tag"))),
            ("source.yaml", format!("a: 1\n---\nref:\n  commit: {commit}\t{}\n", with("commit"))),
            ("image.yaml", format!("\u{feff}image: web@{digest}   {}", with("digest"))),
        ]
    };
    for (name, text) in files("1.0", "1.0", "abc", &old) {
        folder.write(name, text);
    }
    for (file, revision) in [
        ("release.yaml", "1.10"),
        ("deployment.yaml", "1.22.0"),
        ("source.yaml", &format!("main@sha1:{COMMIT}")),
        ("image.yaml", &format!("1.22.0@{DIGEST}")),
    ] {
        let result = folder.run(&[file, "--promotion", "team-a:podinfo:prod", "--revision", revision, "--write"]);
        assert_eq!(result.0, 0, "{file}: {result:?}");
    }
    for (name, text) in files("\"1.10\"", "1.22.0", COMMIT, DIGEST) {
        assert_eq!(folder.read(name), text, "{name}");
    }
}

#[test]
fn a_problem_in_one_file_changes_no_file() {
    let folder = Folder::new("problems");
    let good = format!("a: 1 {PROD}\n");
    folder.write("a.yaml", &good).write("b.yaml", format!("x: 1\nb: {{c: 1, d: 2}} {PROD}\n"));
    folder.write("c.yaml", format!("a: |\n  b: 1 {PROD}\n")).write("d.yaml", format!("a: 1 {}\n", with("name")));
    folder.write("e.yaml", format!("a: &x 1 {PROD}\n")).write("f.yaml", format!("a:\n\tb: 1 {PROD}\n"));
    let (code, diff, said) = folder.set("2", &["--write"]);
    assert_eq!((code, diff.as_str()), (1, ""));
    for start in [
        "./b.yaml:2: the line is in flow style",
        "./c.yaml:2: the marker is inside a text",
        "./d.yaml:1: the marker is malformed: unknown suffix",
        "./e.yaml:1: the line has an anchor",
        "./f.yaml:2: not YAML: ",
    ] {
        assert!(said.contains(&format!("relaybook: {start}")), "{start}: {said}");
    }
    assert!(said.ends_with("relaybook: 5 problems; no file is changed\n"), "{said}");
    assert_eq!(folder.read("a.yaml"), good);
}

#[test]
fn the_exit_codes_of_setters_are_those_of_other_commands() {
    let folder = Folder::new("codes");
    folder.write("apps/prod/a.yaml", format!("a: web:1 {}\n", with("tag"))).write("empty/a.txt", "");
    let set =
        |path: &str, promotion: &str, revision: &str| folder.run(&[path, "--promotion", promotion, "--revision", revision]);
    for (what, (code, stdout, stderr), expected, words) in [
        ("set", set("apps", "team-a:podinfo:prod", "2"), 0, "1 value to set"),
        (
            "no setter",
            set("apps/prod", "team-a:podinfo:dev", "2"),
            1,
            "relaybook: no line under apps/prod ends with # {\"$promotion\": \"team-a:podinfo:dev\"}\n",
        ),
        ("no file", folder.run(&["empty"]), 1, "found no *.yaml or *.yml file in empty"),
        ("no folder", folder.run(&["nowhere"]), 1, "nowhere cannot be read"),
        ("another file", folder.run(&["empty/a.txt"]), 1, "is not a *.yaml or *.yml file"),
        ("no tag", set("apps", "team-a:podinfo:prod", "a/b"), 1, "contains no tag"),
        ("a line break", set("apps", "team-a:podinfo:prod", "a\nb: c"), 1, "a line break"),
        ("an empty revision", set("apps", "team-a:podinfo:prod", ""), 1, "the revision is empty"),
        ("a long revision", set("apps", "team-a:podinfo:prod", &"x".repeat(257)), 1, "257 bytes"),
        ("no flag", set("apps", "team-a:podinfo:prod", "--write"), 1, "contains no tag"),
        ("no environment", set("apps", "podinfo:prod", "2"), 2, "NAMESPACE:PIPELINE:ENVIRONMENT"),
        ("no revision", folder.run(&["apps", "--promotion", "team-a:podinfo:prod"]), 2, "--revision"),
        ("no path", folder.run(&[]), 2, "PATH"),
    ] {
        assert_eq!(code, expected, "{what}: {stderr}");
        assert!(stderr.contains(words), "{what}: {stderr}");
        assert_eq!(stdout.is_empty(), code != 0, "{what}: {stdout}");
    }
}

#[test]
fn setters_are_listed() {
    let folder = Folder::new("listed");
    folder.write("b.yaml", format!("x: 1\nimage: web:1.0 {}\n", with("tag"))).write("a.yaml", format!("- 'v 1' {PROD}\n"));
    let (code, text, said) = folder.run(&["."]);
    assert_eq!(
        (code, text.as_str(), said.as_str()),
        (0, "./a.yaml:1: team-a:podinfo:prod: v 1\n./b.yaml:2: team-a:podinfo:prod:tag: web:1.0\n", "")
    );
    let row = |file: &str, line: u64, part: &str, value: &str| {
        let environment = ("team-a", "podinfo", "prod");
        json!({"file": file, "line": line, "namespace": environment.0, "pipeline": environment.1, "environment": environment.2,
            "part": part, "value": value})
    };
    let rows: Value = serde_json::from_str(&folder.run(&[".", "-o", "json"]).1).unwrap();
    assert_eq!(rows, json!([row("./a.yaml", 1, "whole", "v 1"), row("./b.yaml", 2, "tag", "web:1.0")]));
    let rows: Value = serde_json::from_str(&folder.set("2", &["-o", "json"]).1).unwrap();
    assert_eq!((&rows[0]["newValue"], &rows[1]["newValue"]), (&json!("2"), &json!("web:2")));

    folder.write("c.yaml", "a: # {\"$promotion\": \"team-a:podinfo:prod\"}\n");
    let (code, text, said) = folder.run(&["."]);
    assert_eq!((code, text.lines().count()), (1, 2));
    assert_eq!(said, "relaybook: ./c.yaml:1: there is no value before the marker on this line\nrelaybook: 1 problem\n");
    let none = Folder::new("unmarked");
    none.write("a.yaml", "a: 1\n");
    assert_eq!(none.run(&["."]), (0, String::new(), "no setters found\n".to_owned()));
}

#[test]
fn only_files_of_the_repository_are_read() {
    let folder = Folder::new("tree");
    let text = format!("a: 1 {PROD}\n");
    let large = format!("{text}# {}\n", "x".repeat(1024 * 1024));
    for left_out in [
        ".git/a.yaml",
        ".github/a.yml",
        ".gitea/a.yaml",
        ".forgejo/a.yaml",
        ".gitlab/a.yaml",
        "sub/vendor/.git",
        "sub/vendor/a.yaml",
    ] {
        folder.write(left_out, &text);
    }
    folder.write("large.yaml", &large).write("binary.yaml", b"\xff\xfe").write("a.json", &text).write("a.YAML", &text);
    folder.write("sub/.hidden/a.yaml", &text).write("sub/a.yml", &text);
    let elsewhere = Folder::new("elsewhere");
    elsewhere.write("b.yaml", &text);
    std::os::unix::fs::symlink(&elsewhere.0, folder.0.join("linked")).unwrap();
    std::os::unix::fs::symlink(elsewhere.0.join("b.yaml"), folder.0.join("linked.yaml")).unwrap();

    let (code, listed, said) = folder.run(&["."]);
    let files: Vec<_> = listed.lines().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!((code, files), (0, vec!["./sub/.hidden/a.yaml", "./sub/a.yml"]));
    for note in [
        "./large.yaml: larger than 1 MiB: skipped",
        "./binary.yaml: not UTF-8: skipped",
        "./sub/vendor: another repository: skipped",
    ] {
        assert!(said.contains(&format!("relaybook: {note}\n")), "{note}: {said}");
    }
    let one = |path: &str| folder.run(&[path]).1.lines().count();
    assert_eq!((one(".github"), one("linked"), one("linked.yaml"), one("sub/vendor")), (1, 1, 1, 1), "a path that is named");
    assert_eq!(folder.run(&["large.yaml"]).0, 1);

    // A link that is named stays a link, and its target is edited.
    let (code, ..) = folder.run(&["linked.yaml", "--promotion", "team-a:podinfo:prod", "--revision", "2", "--write"]);
    assert_eq!((code, elsewhere.read("b.yaml")), (0, format!("a: \"2\" {PROD}\n")));
    assert!(Path::new(folder.path()).join("linked.yaml").is_symlink());
}

#[test]
fn an_edit_keeps_the_permissions_of_a_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new("permissions");
    let file = folder.write("a.yaml", format!("a: 1 {PROD}\n")).0.join("a.yaml");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(folder.set("v2", &["--write"]).0, 0);
    assert_eq!(folder.read("a.yaml"), format!("a: v2 {PROD}\n"));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
}
