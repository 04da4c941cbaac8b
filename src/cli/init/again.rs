//! The command line to run again, if flags are missing that no question asks for.
//!
//! In: the words of this command line, the answers to the questions, and the flags to add. Out: one line for a shell.

use std::path::Path;

use super::ask::Draft;
use crate::cli::name;
use relaybook_text::escaped;
use relaybook_tools::init::{InitError, quoted};

/// Returns the message about an error after the questions. `before`: the answers of the flags.
pub(super) fn message(error: &InitError, before: &Draft, draft: &Draft) -> String {
    let Some(flags) = error.flags() else { return error.to_string() };
    // A path can have bytes that are no text.
    let mut given = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = name(Path::new(&given.next().unwrap_or_default()));
    let given: Vec<String> = given.collect();
    format!("{error}:\n  {program} {}", escaped(&line(&given, &answered(before, draft), flags)))
}

fn line(given: &[String], answered: &[String], flags: &str) -> String {
    let words = given.iter().chain(answered).map(|word| quoted(word));
    words.chain([flags.to_owned()]).collect::<Vec<_>>().join(" ")
}

/// Returns the flags for the answers that questions gave.
fn answered(before: &Draft, draft: &Draft) -> Vec<String> {
    let mut words = Vec::new();
    let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
    if let Some(app) = draft.app.as_ref().filter(|_| before.app.is_none()) {
        add("--app", app.to_string());
    }
    if before.follow.is_empty() && !draft.follow.is_empty() {
        add("--follow", draft.follow.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(","));
    }
    if before.spots.is_empty() {
        for spot in &draft.spots {
            add("--env", spot.to_string());
        }
    }
    if before.receivers.is_empty() && !draft.receivers.is_empty() {
        add("--to", draft.receivers.iter().map(|receiver| receiver.as_str()).collect::<Vec<_>>().join(","));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_api::notification::Builtin;
    use relaybook_pipelines::sets::Followed;
    use relaybook_tools::init::{App, Spot};

    #[test]
    fn the_line_has_the_given_words_the_answers_and_the_flags_to_add() {
        let given = ["init", "--dir", "my files", "-n", "team-a"].map(str::to_owned);
        let spots = ["dev=web-dev", "prod=web@eu-1"].map(|spot| Spot::parse(spot).unwrap());
        let app = App::parse("Rollout.v1alpha1.argoproj.io/web").unwrap();
        let receivers = vec![Builtin::Slack, Builtin::GiteaCommitStatus];
        let draft = Draft { app: Some(app), spots: spots.to_vec(), receivers, ..Draft::default() };
        assert_eq!(
            line(&given, &answered(&Draft::default(), &draft), "--set owner=acme"),
            "init --dir 'my files' -n team-a --app Rollout.v1alpha1.argoproj.io/web --env dev=web-dev --env prod=web@eu-1 --to \
             slack,gitea-commit-status --set owner=acme"
        );
        assert!(answered(&draft, &draft).is_empty());
        let draft = Draft { follow: vec![Followed::Kustomizations, Followed::Bundles], ..Draft::default() };
        assert_eq!(answered(&Draft::default(), &draft), ["--follow", "kustomizations,bundles"]);
        let error = InitError::OnlyDeployments("x");
        assert_eq!(message(&error, &draft, &draft), error.to_string());
    }
}
