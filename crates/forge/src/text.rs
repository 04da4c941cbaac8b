//! Pure: the texts of pull requests.
//!
//! Revisions come from other systems. Forges act on what they find in texts: they notify `@people`, close `fixes #1`, and run lines that begin
//! with `/`. Squash merges copy titles and descriptions into commit messages, in which Markdown does not protect anything. So characters with
//! which such a reference begins are shown as escapes, in titles and in descriptions.

use std::fmt::Write as _;

use relaybook_text::{cut_chars, is_unsafe};

/// Maximum length of a title, in characters. GitLab and Bitbucket Server allow 255.
pub const MAX_TITLE: usize = 200;
/// Maximum length of a description, in bytes. Bitbucket Server allows 32,768 characters.
pub const MAX_BODY: usize = 30_000;
/// Maximum length of a name or revision in a text, in characters.
const MAX_SHOWN: usize = 256;
/// Maximum length of a revision in a title, in characters.
const MAX_IN_TITLE: usize = 80;

/// What a pull request promotes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promoted<'a> {
    /// Namespace of the Promotion.
    pub namespace: &'a str,
    /// Name of the Promotion.
    pub name: &'a str,
    /// Name of the pipeline.
    pub pipeline: &'a str,
    /// Uid of the pipeline.
    pub pipeline_uid: &'a str,
    /// The environment to which the revision goes.
    pub environment: &'a str,
    /// The environment that runs the revision.
    pub from: &'a str,
    /// The revision.
    pub revision: &'a str,
    /// The revision at which the environment was last ready.
    pub previous: Option<&'a str>,
}

/// Returns the line by which Relaybook finds its pull request again. It is the last line of the description, and a comment of HTML.
#[must_use]
pub fn marker(namespace: &str, name: &str, pipeline_uid: &str) -> String {
    format!("<!-- relaybook {namespace}/{name} {pipeline_uid} -->")
}

/// Whether a line is the [`marker`] of a promotion of this pipeline: of this promotion, or of an earlier one for the same occasion.
pub(super) fn is_marker(line: &str, pipeline_uid: &str) -> bool {
    line.starts_with("<!-- relaybook ") && line.ends_with(&format!(" {pipeline_uid} -->"))
}

/// Returns the title of a pull request.
#[must_use]
pub fn title(promoted: &Promoted<'_>) -> String {
    let shown = |text| escaped(text, MAX_IN_TITLE, Spaces::Escaped);
    titled(&format!("Promote {} to {}: {}", shown(promoted.pipeline), shown(promoted.environment), shown(promoted.revision)))
}

/// Returns a text of a user as a title: on one line, and bounded.
#[must_use]
pub fn titled(text: &str) -> String {
    let line: String = text.chars().map(|c| if is_unsafe(c) { ' ' } else { c }).collect();
    cut_chars(line.trim(), MAX_TITLE).into_owned()
}

/// Returns the description of a pull request: Markdown, with the marker as the last line.
#[must_use]
pub fn body(promoted: &Promoted<'_>) -> String {
    let mut text = format!(
        "Relaybook promotes a revision that runs in environment {} to environment {}.\n\n| | |\n|---|---|\n",
        code(promoted.from),
        code(promoted.environment),
    );
    let previous = promoted.previous.filter(|previous| !previous.is_empty());
    for (name, value) in [
        ("Pipeline", format!("{} in namespace {}", code(promoted.pipeline), code(promoted.namespace))),
        ("From", code(promoted.from)),
        ("To", code(promoted.environment)),
        ("Revision", code(promoted.revision)),
        ("Previous revision", previous.map_or_else(|| "none".to_owned(), code)),
        ("Promotion", code(promoted.name)),
    ] {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {name} | {value} |");
    }
    text.push_str("\nIf this pull request is closed without being merged, the promotion ends. Relaybook does not open another one by itself.\n");
    described(&text, promoted)
}

/// Returns a text of a user as a description: bounded, without commands to the forge, and with the marker as the last line.
#[must_use]
pub fn described(text: &str, promoted: &Promoted<'_>) -> String {
    let marker = marker(promoted.namespace, promoted.name, promoted.pipeline_uid);
    let room = MAX_BODY.saturating_sub(marker.len() + 2);
    let mut body = String::with_capacity(text.len().min(room));
    for line in text.lines() {
        // GitLab runs a line such as `/merge`. A backslash is not shown.
        let start = line.trim_start();
        if start.starts_with('/') {
            body.push_str(&line[..line.len() - start.len()]);
            body.push('\\');
        }
        let kept = if start.starts_with('/') { start } else { line };
        body.extend(kept.chars().map(|c| if is_unsafe(c) && c != '\t' { ' ' } else { c }));
        body.push('\n');
    }
    if body.len() > room {
        body.truncate(body.floor_char_boundary(room.saturating_sub('…'.len_utf8())));
        body.push('…');
    }
    // A line above an HTML comment would become part of it without an empty line, and a table does not end.
    format!("{}\n\n{marker}", body.trim_end())
}

/// Returns the comment with which a pull request is withdrawn. `why` is a sentence.
#[must_use]
pub fn withdrawn(promoted: &Promoted<'_>, why: &str) -> String {
    format!(
        "Relaybook closes this pull request. The promotion of {} to environment {} is withdrawn: {}",
        code(promoted.revision),
        code(promoted.environment),
        escaped(why, MAX_SHOWN, Spaces::Kept),
    )
}

/// Returns a name or revision as titles and descriptions may contain it. Templates of users get their values in this form.
#[must_use]
pub fn shown(value: &str) -> String {
    escaped(value, MAX_SHOWN, Spaces::Escaped)
}

/// Returns a text as a code span. No character in it can end the span.
fn code(text: &str) -> String {
    let shown = shown(text);
    if shown.is_empty() { "(empty)".to_owned() } else { format!("`{shown}`") }
}

/// How spaces are shown. No name or revision contains one, and without one there is no keyword such as in `fixes GH-1`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spaces {
    Kept,
    Escaped,
}

/// Returns a text in which everything that a forge, Markdown or HTML could act on is shown as an escape, for example `\u{23}` for `#`.
fn escaped(text: &str, max: usize, spaces: Spaces) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut before = ' ';
    for c in text.trim().chars() {
        let is_plain = match c {
            // An address of a commit such as `main@sha1:…` mentions nobody.
            '@' => before.is_ascii_alphanumeric(),
            // Without `//` it is no link.
            '/' => before != '/' && before != ' ',
            ' ' => spaces == Spaces::Kept,
            '.' | '_' | '+' | ':' | '-' | ',' | '(' | ')' | '=' | ';' => true,
            _ => c.is_alphanumeric() && !is_unsafe(c),
        };
        if is_plain {
            shown.push(c);
        } else {
            let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
        }
        before = c;
    }
    cut_chars(&shown, max).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMOTED: Promoted<'_> = Promoted {
        namespace: "team-a",
        name: "podinfo-prod-7f3a9c2b1d-1763711234567",
        pipeline: "podinfo",
        pipeline_uid: "0b1c",
        environment: "prod",
        from: "staging",
        revision: "main@sha1:9c1e1fd3",
        previous: Some("6.5.0"),
    };

    #[test]
    fn title_body_and_comment_show_a_plain_revision_unchanged() {
        assert_eq!(title(&PROMOTED), "Promote podinfo to prod: main@sha1:9c1e1fd3");
        let expected = "Relaybook promotes a revision that runs in environment `staging` to environment `prod`.\n\n\
            | | |\n|---|---|\n\
            | Pipeline | `podinfo` in namespace `team-a` |\n| From | `staging` |\n| To | `prod` |\n\
            | Revision | `main@sha1:9c1e1fd3` |\n| Previous revision | `6.5.0` |\n\
            | Promotion | `podinfo-prod-7f3a9c2b1d-1763711234567` |\n\n\
            If this pull request is closed without being merged, the promotion ends. Relaybook does not open another one by itself.\n\n\
            <!-- relaybook team-a/podinfo-prod-7f3a9c2b1d-1763711234567 0b1c -->";
        assert_eq!(body(&PROMOTED), expected);
        assert!(body(&Promoted { previous: None, ..PROMOTED }).contains("| Previous revision | none |"));
        assert_eq!(
            withdrawn(&PROMOTED, "staging runs 6.5.2 now."),
            "Relaybook closes this pull request. The promotion of `main@sha1:9c1e1fd3` to environment `prod` is withdrawn: staging runs 6.5.2 now."
        );
    }

    #[test]
    fn hostile_revisions_are_shown_as_escapes() {
        for (revision, shown) in [
            ("6.5.1", "6.5.1"),
            ("v1.2.3-rc.1+build_5", "v1.2.3-rc.1+build_5"),
            ("feature/a", "feature/a"),
            ("a`b", "a\\u{60}b"),
            ("a\nb\r\n/merge", "a\\u{a}b\\u{d}\\u{a}/merge"),
            ("/merge", "\\u{2f}merge"),
            ("a --> <!-- b", "a\\u{20}--\\u{3e}\\u{20}\\u{3c}\\u{21}--\\u{20}b"),
            ("\u{202e}1.5.6", "\\u{202e}1.5.6"),
            ("a\u{200b}b\u{e0041}", "a\\u{200b}b\\u{e0041}"),
            ("@octocat", "\\u{40}octocat"),
            ("a @octocat", "a\\u{20}\\u{40}octocat"),
            ("é@octocat", "é\\u{40}octocat"),
            ("fixes GH-1", "fixes\\u{20}GH-1"),
            ("fixes #123", "fixes\\u{20}\\u{23}123"),
            ("acme/web#1", "acme/web\\u{23}1"),
            ("closes https://github.com/a/b/issues/1", "closes\\u{20}https:/\\u{2f}github.com/a/b/issues/1"),
            ("web!5 ~bug %1 &2 $3", "web\\u{21}5\\u{20}\\u{7e}bug\\u{20}\\u{25}1\\u{20}\\u{26}2\\u{20}\\u{24}3"),
            ("<img src=x>", "\\u{3c}img\\u{20}src=x\\u{3e}"),
            ("[a](b) *c* |d| \\", "\\u{5b}a\\u{5d}(b)\\u{20}\\u{2a}c\\u{2a}\\u{20}\\u{7c}d\\u{7c}\\u{20}\\u{5c}"),
            ("\"; rm -rf '", "\\u{22};\\u{20}rm\\u{20}-rf\\u{20}\\u{27}"),
            ("bücher-1", "bücher-1"),
            ("\0", "\\u{0}"),
        ] {
            let promoted = Promoted { revision, previous: Some(revision), ..PROMOTED };
            assert_eq!(title(&promoted), format!("Promote podinfo to prod: {}", cut_chars(shown, MAX_IN_TITLE)));
            let body = body(&promoted);
            assert!(body.contains(&format!("| Revision | `{shown}` |\n| Previous revision | `{shown}` |\n")), "{body}");
            assert_eq!(body.matches('`').count() % 2, 0, "{body}");
            assert_eq!(body.matches("-->").count(), 1, "{body}");
            assert!(withdrawn(&promoted, revision).ends_with(&shown.replace("\\u{20}", " ")));
            assert_eq!(super::shown(revision), shown);
        }
        assert!(body(&Promoted { revision: "", ..PROMOTED }).contains("| Revision | (empty) |"));
    }

    #[test]
    fn a_marker_is_recognized_only_with_the_uid_of_the_pipeline() {
        for (line, expected) in [
            (marker("n", "p", "u").as_str(), true),
            (&marker("n", "an-earlier-one", "u"), true),
            (&marker("n", "p", "uu"), false),
            (&marker("n", "p", "v"), false),
            ("<!-- other n/p u -->", false),
            ("text <!-- relaybook n/p u -->", false),
            ("<!-- relaybook n/p u --> text", false),
            ("", false),
        ] {
            assert_eq!(is_marker(line, "u"), expected, "{line}");
        }
    }

    #[test]
    fn titles_and_bodies_of_pull_requests_are_bounded() {
        let long = "@".repeat(10_000);
        let promoted = Promoted {
            revision: &long,
            previous: Some(&long),
            pipeline: &long,
            environment: &long,
            from: &long,
            ..PROMOTED
        };
        assert!(title(&promoted).chars().count() <= MAX_TITLE);
        assert!(title(&PROMOTED).chars().count() <= MAX_TITLE);
        let marker = marker("team-a", PROMOTED.name, "0b1c");
        for text in [body(&promoted), described(&"é\n".repeat(40_000), &promoted), described(&"é".repeat(40_000), &promoted)]
        {
            assert!(text.len() <= MAX_BODY, "{}", text.len());
            assert!(text.ends_with(&format!("\n\n{marker}")), "{text}");
        }
        assert!(withdrawn(&promoted, &long).len() < 2000);
        assert_eq!(titled(&"é".repeat(201)), format!("{}…", "é".repeat(199)));
        assert_eq!(titled(&"é".repeat(200)), "é".repeat(200));
        assert_eq!(titled(" a\nb\u{202e} "), "a b");
    }

    #[test]
    fn a_text_of_a_user_gives_no_commands_and_no_other_marker() {
        let text = "Look:\r\n/merge\n  /close\n<!-- relaybook other/x y -->\n\n";
        assert_eq!(
            described(text, &PROMOTED),
            "Look:\n\\/merge\n  \\/close\n<!-- relaybook other/x y -->\n\n<!-- relaybook team-a/podinfo-prod-7f3a9c2b1d-1763711234567 0b1c -->"
        );
        assert_eq!(
            super::super::pull_request::last_line(Some(&described(text, &PROMOTED))),
            marker("team-a", PROMOTED.name, "0b1c")
        );
        assert_eq!(described("", &PROMOTED).lines().count(), 3);
    }
}
