//! Tables for the pure parts.

use proptest::prelude::*;

use crate::wire::report::{Reason, Report, before, kind, report};
use crate::wire::{fetch, lines, remote};
use crate::*;
use relaybook_text::spelling;

/// Writes packet lines. `0000` and `0001` stay as they are.
fn packets(lines: &[&str]) -> Vec<u8> {
    let line = |line: &&str| match *line {
        "0000" | "0001" => (*line).to_owned(),
        line => format!("{:04x}{line}", line.len() + 4),
    };
    lines.iter().map(line).collect::<String>().into_bytes()
}

const ID: &str = "0123456789abcdef0123456789abcdef01234567";

#[test]
fn only_forty_hexadecimal_digits_are_an_id() {
    assert_eq!(ID.parse::<Id>().unwrap().to_string(), ID);
    for text in
        ["", &ID[1..], &"0".repeat(40), &"a".repeat(64), "0123456789abcdef0123456789abcdef0123456g", &format!("{ID}\n")]
    {
        assert_eq!(text.parse::<Id>(), Err(NotAnId), "{text:?}");
    }
}

#[test]
fn messages_of_the_server_are_cut_and_joined_without_repetition() {
    let long = words::clean("é".repeat(2_000).as_bytes());
    assert!(long.len() <= MAX_WORDS && long.ends_with('…'));
    assert!(words::clean(&[0xff; 4_000]).len() <= MAX_WORDS);
    assert_eq!(words::join([&b"a"[..], b"", b"b a", b"b"]), "a: b a");
}

#[test]
fn messages_and_authors_have_one_line() {
    let subject = |text: &str| Message::new(text).map(|message| message.text());
    for (given, expected) in [
        ("Promote", "Promote\n"),
        ("a\n\nSigned-off-by: evil <e@example.com>", "a Signed-off-by: evil <e@example.com>\n"),
        ("a\r\nparent 0\0\u{2028}b", "a parent 0 b\n"),
    ] {
        assert_eq!(subject(given).as_deref(), Ok(expected), "{given:?}");
    }
    assert_eq!(subject(" \n\t"), Err(NotAMessage::Subject));
    assert!(subject(&"é".repeat(500)).unwrap().len() <= 251);
    let with =
        |token: &str, value: &str| Message::new("s").and_then(|message| message.trailer(token, value)).map(|it| it.text());
    assert_eq!(with("Relaybook-Promotion", "a/b c").as_deref(), Ok("s\n\nRelaybook-Promotion: a/b c\n"));
    for (token, value) in
        [("", "a"), ("A B", "a"), ("A:", "a"), ("A\n", "a"), ("A", ""), ("A", "a\nB: c"), ("A", " a"), ("A", "a\r")]
    {
        assert_eq!(with(token, value), Err(NotAMessage::Trailer), "{token:?} {value:?}");
    }
    for name in ["", " a", "a<b", "a>b", "a\nb", "a\0b", "a\rb"] {
        assert_eq!(Author::new(name, "a@example.com"), Err(NotAMessage::Name), "{name:?}");
        assert_eq!(Author::new("a", name), Err(NotAMessage::Email), "{name:?}");
    }
    assert!(Author::new("Päng Nant", "a@example.com").is_ok());
}

#[test]
fn hidden_folders_are_read_only_if_a_path_names_them() {
    for (paths, read, not_read) in [
        (&[][..], &["a.yaml", "x/y/a.yaml", ".a.yaml"][..], &[".github/a.yaml", "x/.hidden/a.yaml"][..]),
        (
            &["apps"],
            &["apps/a.yaml", "apps/.x/a.yaml"],
            &["apps2/a.yaml", "a.yaml", "apps/.github/a.yaml", "apps/x/.gitea/a.yaml"],
        ),
        (&["apps/prod/", "b.yaml"], &["apps/prod/a.yaml", "b.yaml"], &["apps/a.yaml", "apps/dev/a.yaml", "c/b.yaml"]),
        (&[".github"], &[".github/a.yaml", ".github/x/a.yaml"], &["a.yaml", ".github/.git2/a.yaml", ".forgejo/a.yaml"]),
        (&["a/.Gitea/b"], &["a/.Gitea/b/c.yaml"], &["a/.Gitea/c.yaml", "a/b.yaml", "a/.Gitea/b/.FORGEJO/c.yaml"]),
    ] {
        let paths = Paths::new(paths).unwrap();
        let is_read = |file: &str| {
            let folders = file.match_indices('/').all(|(at, _)| paths.enter(&file[..at]));
            folders && paths.read(file)
        };
        for file in read {
            assert!(is_read(file), "{paths:?} {file}");
        }
        for file in not_read {
            assert!(!is_read(file), "{paths:?} {file}");
        }
    }
    for path in ["", "/", "/a", "a//b", "a/../b", ".", "..", "./a", "a/.", "a\0b", "a\nb", &"a".repeat(2_000)] {
        assert!(Paths::new(&[path]).is_err(), "{path:?}");
    }
    assert_eq!(Paths::new(&vec!["a"; MAX_PATHS + 1]), Err(NotAPath::TooMany));
}

#[test]
fn capabilities_decide_what_is_supported() {
    let with = |lines: &[&str]| remote::capabilities(&packets(lines)).map_err(|error| error.to_string());
    let service = ["# service=git-upload-pack\n", "0000"];
    let all = [
        "version 2\n",
        "agent=git/2",
        "ls-refs=unborn",
        "fetch=shallow wait-for-done filter\n",
        "object-format=sha1",
        "0000",
    ];
    let supports = with(&all).unwrap();
    assert!(supports.filter && supports.shallow);
    assert_eq!(with(&[&service[..], &all].concat()), Ok(supports));
    for (lines, expected) in [
        (&["version 1\n", "0000"][..], "the server does not support version 2 of the Git protocol"),
        (&[], "the server does not support version 2 of the Git protocol"),
        (&["version 2", "0000"], "the server does not support the commands ls-refs and fetch"),
        (&["version 2", "ls-refs", "fetch", "0000"], "the server does not support a fetch without history"),
        (&["version 2", "object-format=sha256", "0000"], "repositories with SHA-256 ids are not supported"),
        (&["ERR no\u{7} way\n"], "the server reports an error: no way"),
        (
            &["# service=git-upload-pack\n", "x"],
            "the answer of the server is invalid: there is no flush after the name of the service",
        ),
    ] {
        assert_eq!(with(lines), Err(expected.to_owned()), "{lines:?}");
    }
    assert!(remote::capabilities(b"<html>").is_err());
}

#[test]
fn refs_are_read_only_by_their_exact_name() {
    let read = |lines: &[&str]| remote::read_refs(&packets(lines), &["refs/heads/main"]);
    let (main, more, head) =
        (format!("{ID} refs/heads/main\n"), format!("{ID} refs/heads/main2\n"), format!("{ID} HEAD symref-target:x"));
    assert_eq!(read(&[&main, &more, "0000"]).unwrap().ids.len(), 1);
    assert!(!read(&[&head, &more, "0000"]).unwrap().is_unborn);
    assert!(read(&["unborn HEAD symref-target:refs/heads/main", "0000"]).unwrap().is_unborn);
    let null = format!("{} refs/heads/main", "0".repeat(40));
    for lines in [
        &[main.as_str()][..],
        &[&main, &main, "0000"],
        &["x", "0000"],
        &["x refs/heads/main", "0000"],
        &[&null, "0000"],
        &["0001"],
    ] {
        assert!(matches!(read(lines), Err(GitError::InvalidAnswer(_))), "{lines:?}");
    }
}

#[test]
fn reports_of_a_push_are_parsed() {
    let name = "refs/heads/main";
    let refused = |reason, words: &str| Ok(Report::Refused { reason, words: words.to_owned() });
    for (lines, expected) in [
        (&["unpack ok\n", "ok refs/heads/main\n", "0000"][..], Ok(Report::Done)),
        (&["unpack ok", "ng refs/heads/main fetch first", "0000"], refused(Reason::Moved, "fetch first")),
        (&["unpack ok", "ng refs/heads/main failed to update ref", "0000"], refused(Reason::Unsure, "failed to update ref")),
        (&["unpack quota \u{1b}[1mexceeded\n", "0000"], refused(Reason::Rule, "quota exceeded")),
        (&["unpack ok", "ok refs/heads/other", "0000"], Err(())),
        (&["unpack ok", "ng refs/heads/main2 x", "0000"], Err(())),
        (&["ok refs/heads/main", "0000"], Err(())),
        (&[], Err(())),
    ] {
        assert_eq!(report(&packets(lines), name, false).map_err(|_| ()), expected, "{lines:?}");
    }
    let inner = String::from_utf8(packets(&["unpack ok", "ng refs/heads/main pre-receive hook declined", "0000"])).unwrap();
    let banded = ["\u{2}GitLab: no\n", &format!("\u{1}{}", &inner[..20]), &format!("\u{1}{}", &inner[20..]), "0000"];
    let words = "pre-receive hook declined: GitLab: no";
    assert_eq!(report(&packets(&banded), name, true).map_err(|_| ()), refused(Reason::Rule, words));
    let fatal = report(&packets(&["\u{3}disk full", "0000"]), name, true);
    assert!(matches!(fatal, Err(GitError::Server(words)) if words == "disk full"));
    for (reason, expected) in [
        ("non-fast-forward", Reason::Moved),
        ("stale info", Reason::Moved),
        ("reference already exists", Reason::Moved),
        ("cannot lock ref", Reason::Unsure),
        ("protected branch hook declined", Reason::Rule),
        ("deletion prohibited", Reason::Rule),
    ] {
        assert_eq!(kind(reason.as_bytes()), expected, "{reason}");
    }
}

#[test]
fn the_announcement_of_a_server_before_a_push_is_parsed() {
    let capabilities = "\0report-status delete-refs side-band-64k quiet object-format=sha1 agent=x";
    let (main, empty) =
        (format!("{ID} refs/heads/main{capabilities}\n"), format!("{} capabilities^{{}}{capabilities}", "0".repeat(40)));
    let read = |lines: &[&str]| before(&packets(lines), "refs/heads/main");
    let server = read(&["# service=git-receive-pack\n", "0000", &main, "0000"]).unwrap();
    assert_eq!(server.now, ID.parse().ok());
    assert!(server.bands && server.quiet && server.delete && server.object_format && server.agent);
    assert_eq!(read(&[&empty, "0000"]).unwrap().now, None);
    assert_eq!(read(&[&empty, &format!("{ID} refs/heads/main\n"), "0000"]).unwrap().now, ID.parse().ok());
    let bare = format!("{ID} refs/heads/main");
    for lines in [&["0000"][..], &[&bare, "0000"], &[&main.replace("sha1", "sha256"), "0000"]] {
        assert!(read(lines).is_err(), "{lines:?}");
    }
}

/// Writes a tree as Git does, with one digit as the id of each entry.
fn tree(entries: &[(&str, &str)]) -> Vec<u8> {
    let entry = |(mode, name): &(&str, &str)| [format!("{mode} {name}\0").as_bytes(), &[7; 20]].concat();
    entries.iter().flat_map(entry).collect()
}

#[test]
fn trees_with_invalid_entries_are_refused() {
    let long = "a".repeat(256);
    for entries in [
        &[("100644", "a"), ("100755", "b"), ("120000", "c"), ("160000", "d"), ("40000", "e"), ("100664", "f")][..],
        &[("100644", "a-b"), ("40000", "a"), ("100644", "a0")],
        &[("100644", "CON"), ("100644", "a:b"), ("100644", "a\\b"), ("100644", "ä")],
        &[("40000", ".github"), ("100644", ".gitignore")],
    ] {
        assert!(crate::objects::tree::read(&tree(entries)).is_ok(), "{entries:?}");
    }
    for entries in [
        &[("100644", ".")][..],
        &[("40000", "..")],
        &[("40000", ".git")],
        &[("40000", ".GiT")],
        &[("40000", "git~1")],
        &[("40000", ".git ")],
        &[("40000", ".git::$INDEX_ALLOCATION")],
        &[("40000", ".g\u{200c}it")],
        &[("100644", "")],
        &[("100644", "a/b")],
        &[("100644", &long)],
        &[("100644", "a"), ("100644", "a")],
        &[("100644", "a"), ("100644", "a-"), ("40000", "a")],
        &[("100644", "b"), ("100644", "a")],
        &[("40000", "a"), ("100644", "a-b")],
        &[("100600", "a")],
        &[("300644", "a")],
        &[("0100644", "a")],
        &[("0", "a")],
        &[("x", "a")],
    ] {
        assert!(crate::objects::tree::read(&tree(entries)).is_err(), "{entries:?}");
    }
    let valid = tree(&[("100644", "a")]);
    assert!(crate::objects::tree::read(&valid[..valid.len() - 1]).is_err());
    let null = [b"100644 a\0".as_slice(), &[0; 20]].concat();
    assert!(crate::objects::tree::read(&null).is_err());
}

#[test]
fn commits_are_parsed_and_too_many_parents_are_an_error() {
    let found = Found::parse(
        format!("tree {ID}\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n\nx\n").as_bytes(),
        ID.parse().unwrap(),
    );
    assert_eq!(found.unwrap().seconds, 1);
    for content in ["", "tree x\n", &format!("tree {ID}\n\nx"), &format!("tree {ID}\nauthor A <a> 1\n\n")] {
        let _ = Found::parse(content.as_bytes(), ID.parse().unwrap());
    }
    let many =
        format!("tree {ID}\n{}author A <a> 1 +0000\ncommitter A <a> 1 +0000\n\nx", format!("parent {ID}\n").repeat(65));
    assert!(Found::parse(many.as_bytes(), ID.parse().unwrap()).is_err());
}

proptest! {
    /// Whatever the spelling of a path, files of a forge are read only if a path begins with the name of their folder.
    #[test]
    fn no_spelling_of_a_path_reads_another_folder(
        path in spelling(&["deploy/prod", ".github/workflows", "deploy/.github", "a"]),
        file in spelling(&[".github/workflows/ci.yaml", "deploy/.git/config", "deploy/prod/web.yaml", "a/.forgejo/x"]),
    ) {
        if let Ok(paths) = Paths::new(&[&path]) && paths.read(&file) {
            let path = path.strip_suffix('/').unwrap_or(&path);
            prop_assert!(file == path || file.starts_with(&format!("{path}/")), "{file:?} below {path:?}");
            let below = file[path.len()..].split('/').rev().skip(1);
            prop_assert!(below.into_iter().all(|folder| !folder.starts_with(".git") && folder != ".forgejo"), "{file:?} below {path:?}");
        }
    }

    #[test]
    fn no_answer_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[0-9a-f]{4}[ -~\n\0]{0,60}") {
        for answer in [&bytes[..], text.as_bytes()] {
            let _ = remote::capabilities(answer);
            let _ = remote::read_refs(answer, &["refs/heads/main"]);
            let _ = before(answer, "refs/heads/main");
            let _ = report(answer, "refs/heads/main", true);
            let _ = report(answer, "refs/heads/main", false);
            let _ = fetch::start(answer);
            let _ = lines::joined(bytes::Bytes::copy_from_slice(answer), 0);
            let _ = crate::objects::tree::read(answer);
            let _ = Found::parse(answer, ID.parse().unwrap());
            prop_assert!(words::clean(answer).len() <= MAX_WORDS);
        }
    }
}
