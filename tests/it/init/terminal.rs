//! The questions of `relaybook init` on a real terminal, and a signal at each of them.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use super::{folder, names};
use crate::support::relaybook::signal;
use crate::support::running::Running;

/// The number of SIGTERM. A shell lets programs in the background ignore SIGINT, so a test cannot rely on that one.
const TERMINATE: i32 = 15;

/// Starts the command on a terminal, without a cluster.
fn start() -> Running {
    Running::on_terminal(Path::new("/does/not/exist"), &["init", "--offline", "-n", "team-a"])
}

/// Waits until this number of answers has been asked for.
fn asks(terminal: &mut Running, number: usize) {
    terminal.prints(&format!("question {number}"), |shown| shown.matches("\n> ").count() >= number);
}

/// The answers to the five questions.
fn answers(dir: &Path) -> [String; 5] {
    ["deploy/web", "dev=web-dev prod=web", "slack", "", dir.to_str().unwrap()].map(str::to_owned)
}

#[test]
fn five_questions_are_asked_and_none_is_about_a_credential() {
    let dir = folder("asked");
    let mut terminal = start();
    for (number, answer) in answers(&dir).iter().enumerate() {
        asks(&mut terminal, number + 1);
        terminal.answer(answer);
    }
    let (status, shown) = terminal.ended();
    assert!(status.success(), "{shown}");
    assert_eq!(names(&dir), ["notification-web-slack.yaml", "pipeline-web.yaml"]);
    assert_eq!(shown.matches("\n> ").count(), 5, "{shown}");
    assert!(shown.contains("kubectl create secret generic slack -n team-a --from-literal=url='URL'"), "{shown}");
}

#[test]
fn a_receiver_that_needs_more_flags_ends_with_the_complete_command() {
    let mut terminal = start();
    for (number, answer) in ["deploy/web", "prod=web", "gitea-commit-status"].iter().enumerate() {
        asks(&mut terminal, number + 1);
        terminal.answer(answer);
    }
    let (status, shown) = terminal.ended();
    assert_eq!(status.code(), Some(2), "{shown}");
    let line = "  relaybook init --offline -n team-a --app deployment/web --env prod=web --to gitea-commit-status --set owner=acme \
                --set repository=podinfo --url https://gitea.example.com";
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn an_interruption_at_any_question_leaves_no_file() {
    for number in 0..5 {
        let dir = folder(&format!("interrupted-{number}"));
        let mut terminal = start();
        for (at, answer) in answers(&dir)[..number].iter().enumerate() {
            asks(&mut terminal, at + 1);
            terminal.answer(answer);
        }
        asks(&mut terminal, number + 1);
        signal(terminal.pid(), "TERM");
        let (status, shown) = terminal.ended();
        assert_eq!(status.signal(), Some(TERMINATE), "{number}: {shown}");
        assert!(!dir.exists(), "{number}: {:?}", names(&dir));
    }
}
