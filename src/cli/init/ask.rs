//! The questions on a terminal: at most five, and none about a credential.
//!
//! In: lines of a person, and what the cluster offers. Out: a complete [`Draft`]. A wrong answer is explained, and asked for again. If a flag must be
//! added that no question asks for, the result is an [`InitError`]. The end of the input ends the command, and nothing is written.

use std::fmt::Write as _;
use std::io::{BufRead, Write};
use std::path::PathBuf;

use clap::ValueEnum as _;

use super::Changes;
use super::cluster::Choices;
use crate::cli::shared::exit::{Code, Ended};
use relaybook_api::notification::Builtin;
use relaybook_pipelines::sets::Followed;
use relaybook_text::escaped;
use relaybook_tools::init::{App, InitError, Spot, followed, receiver};

/// Maximum number of choices that are listed.
const LISTED: usize = 30;
/// Number of names on a line.
const PER_LINE: usize = 5;

/// The answers so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub(super) app: Option<App>,
    pub(super) spots: Vec<Spot>,
    pub(super) follow: Vec<Followed>,
    pub(super) receivers: Vec<Builtin>,
    pub(super) on: Option<Changes>,
    pub(super) dir: Option<PathBuf>,
}

impl Draft {
    /// Returns the flags whose answers are missing and have no default.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let source = match &self.app {
            None if self.follow.is_empty() => Some("--app or --follow"),
            Some(_) if self.spots.is_empty() => Some("--env"),
            _ => None,
        };
        let to = self.receivers.is_empty().then_some("--to");
        source.into_iter().chain(to).collect()
    }
}

/// A terminal with a person.
pub(super) struct Terminal<R, W> {
    input: R,
    output: W,
}

/// What to follow.
#[derive(Debug, PartialEq, Eq)]
enum What {
    App(App),
    Kinds(Vec<Followed>),
}

impl<R: BufRead, W: Write> Terminal<R, W> {
    pub(super) fn new(input: R, output: W) -> Self {
        Self { input, output }
    }

    /// Asks until an answer can be used. The question comes from the cluster, too.
    fn ask<T>(&mut self, question: &str, parse: impl Fn(&str) -> Result<T, String>) -> anyhow::Result<T> {
        for line in question.lines() {
            writeln!(self.output, "{}", escaped(line))?;
        }
        loop {
            write!(self.output, "> ")?;
            self.output.flush()?;
            let mut answer = String::new();
            if self.input.read_line(&mut answer)? == 0 {
                return Err(Ended::new(Code::Usage, "there is no answer; nothing was written").into());
            }
            match parse(answer.trim()) {
                Ok(parsed) => return Ok(parsed),
                Err(why) => writeln!(self.output, "{}", escaped(&why))?,
            }
        }
    }
}

/// Asks for what is missing. `asks_dir`: whether the person would see the manifests on this terminal. `refused`: why the answers so far cannot be
/// used, if they cannot.
pub(super) fn fill<R: BufRead, W: Write>(
    draft: &mut Draft,
    choices: &Choices,
    terminal: &mut Terminal<R, W>,
    asks_dir: bool,
    refused: impl Fn(&Draft) -> Option<InitError>,
) -> anyhow::Result<()> {
    if draft.app.is_none() && draft.follow.is_empty() {
        let has_spots = !draft.spots.is_empty();
        match terminal.ask(&what_question(choices), |answer| what(answer, choices, has_spots))? {
            What::App(app) => draft.app = Some(app),
            What::Kinds(kinds) => draft.follow = kinds,
        }
    }
    if let Some(app) = draft.app.as_ref().filter(|_| draft.spots.is_empty()) {
        draft.spots = terminal.ask(&spots_question(app, choices), spots)?;
    }
    // Which changes are reported is a later question, and each receiver reports deployments.
    let before = Draft { on: draft.on.or(Some(Changes::Deployments)), ..draft.clone() };
    if draft.receivers.is_empty() {
        let names = Builtin::ALL.map(Builtin::as_str);
        let lines: Vec<String> = names.chunks(PER_LINE).map(|names| format!("  {}", names.join(", "))).collect();
        let question = format!("Where to send? One or more of:\n{}", lines.join("\n"));
        draft.receivers = terminal.ask(&question, |answer| {
            let receivers = words(answer).map(receiver).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
            if receivers.is_empty() {
                return Err("write the name of a receiver, such as slack".to_owned());
            }
            match refused(&Draft { receivers: receivers.clone(), ..before.clone() }) {
                Some(error) if error.flags().is_none() => Err(error.to_string()),
                _ => Ok(receivers),
            }
        })?;
    }
    // No other answer helps.
    if let Some(error) = refused(&Draft { receivers: draft.receivers.clone(), ..before }) {
        return Err(error.into());
    }
    if draft.on.is_none() {
        let before = draft.clone();
        draft.on = terminal.ask("Which changes? failures, deployments or all [failures]", |answer| {
            let on = if answer.is_empty() { Ok(Changes::Failures) } else { Changes::from_str(answer, true) };
            let on = on.map_err(|_| "write failures, deployments or all".to_owned())?;
            let tried = Draft { on: Some(on), ..before.clone() };
            refused(&tried).map_or(Ok(Some(on)), |error| Err(error.to_string()))
        })?;
    }
    if draft.dir.is_none() && asks_dir {
        draft.dir = terminal.ask("The folder for the files? [print them]", |answer| {
            Ok(Some(answer).filter(|answer| !answer.is_empty()).map(PathBuf::from))
        })?;
    }
    Ok(())
}

fn what_question(choices: &Choices) -> String {
    let mut question = "What to follow?\n".to_owned();
    let width = choices.apps.iter().take(LISTED).map(|(app, _)| app.to_string().chars().count()).max().unwrap_or_default();
    for (at, (app, namespaces)) in choices.apps.iter().take(LISTED).enumerate() {
        let app = app.to_string();
        let _ = writeln!(question, "  {:>2}  {app:width$}  in {}", at + 1, some(namespaces));
    }
    let more = choices.apps.len().saturating_sub(LISTED);
    if more > 0 {
        let _ = writeln!(question, "  and {more} more");
    }
    let number = if choices.apps.is_empty() { "" } else { "a number, or " };
    let kinds = Followed::ALL.map(Followed::name).join(", ");
    let _ = write!(
        question,
        "Write {number}KIND/NAME, such as deploy/web. To follow all objects of some kinds, write the kinds: {kinds}"
    );
    question
}

/// Reads what to follow: a number of the list, an application, or kinds. `has_spots`: a flag already says where the application runs.
fn what(answer: &str, choices: &Choices, has_spots: bool) -> Result<What, String> {
    if let Ok(number) = answer.parse::<usize>() {
        let listed = choices.apps.iter().take(LISTED);
        let chosen = number.checked_sub(1).and_then(|at| listed.clone().nth(at));
        let chosen = chosen.ok_or_else(|| match listed.count() {
            0 => "there is no list; write KIND/NAME, such as deploy/web".to_owned(),
            last => format!("write a number from 1 to {last}"),
        });
        return chosen.map(|(app, _)| What::App(app.clone()));
    }
    if answer.contains('/') {
        return App::parse(answer).map(What::App).map_err(|error| error.to_string());
    }
    let kinds = words(answer).map(followed).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    if kinds.is_empty() {
        return Err("write KIND/NAME, such as deploy/web".to_owned());
    }
    if has_spots {
        Err("--env is for one application; write KIND/NAME, such as deploy/web".to_owned())
    } else {
        Ok(What::Kinds(kinds))
    }
}

fn spots_question(app: &App, choices: &Choices) -> String {
    let own = choices.apps.iter().find(|(known, _)| known == app).map(|(_, namespaces)| namespaces);
    let known = match own {
        Some(namespaces) => format!("{app} exists in {}.\n", some(namespaces)),
        None if choices.namespaces.is_empty() => String::new(),
        None => format!("The namespaces are {}.\n", some(&choices.namespaces)),
    };
    format!(
        "Which environments, in the order in which a revision passes through them?\n{known}Write NAME=NAMESPACE for each, such as \
         dev=web-dev prod=web"
    )
}

fn spots(answer: &str) -> Result<Vec<Spot>, String> {
    let spots = words(answer).map(Spot::parse).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
    if spots.is_empty() { Err("write NAME=NAMESPACE, such as prod=web".to_owned()) } else { Ok(spots) }
}

/// Returns the first names, and how many more there are.
fn some(names: &[String]) -> String {
    let more = names.len().saturating_sub(LISTED);
    let listed = names.iter().take(LISTED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{listed} and {more} more") } else { listed }
}

/// Splits an answer at spaces and commas.
fn words(answer: &str) -> impl Iterator<Item = &str> {
    answer.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices() -> Choices {
        let app = |text: &str, namespaces: &[&str]| {
            (App::parse(text).unwrap(), namespaces.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        Choices {
            apps: vec![app("ks/apps", &["flux-system"]), app("deploy/web", &["web", "web-dev"])],
            namespaces: vec!["web".to_owned(), "web-dev".to_owned()],
        }
    }

    /// Asks, with these lines as input. Returns the result, and what the terminal shows.
    fn asked(draft: &mut Draft, lines: &str, refused: impl Fn(&Draft) -> Option<InitError>) -> (anyhow::Result<()>, String) {
        let mut output = Vec::new();
        let mut terminal = Terminal::new(lines.as_bytes(), &mut output);
        let result = fill(draft, &choices(), &mut terminal, true, refused);
        (result, String::from_utf8(output).unwrap())
    }

    #[test]
    fn five_questions_are_enough() {
        let mut draft = Draft::default();
        assert_eq!(draft.missing(), ["--app or --follow", "--to"]);
        let (result, shown) = asked(&mut draft, "2\ndev=web-dev, prod=web\nslack\n\ndeploy\n", |_| None);
        result.unwrap();
        assert!(draft.missing().is_empty() && draft.dir == Some(PathBuf::from("deploy")), "{draft:?}");
        let app = draft.app.unwrap().to_string();
        assert_eq!((app.as_str(), draft.spots.len(), draft.on), ("deployment/web", 2, Some(Changes::Failures)));
        assert!(shown.contains("   2  deployment/web      in web, web-dev\n"), "{shown}");
        assert!(shown.contains("deployment/web exists in web, web-dev.\n"), "{shown}");
        assert_eq!(shown.matches("\n> ").count(), 5, "{shown}");
    }

    #[test]
    fn what_flags_answer_is_not_asked() {
        let mut draft = Draft { receivers: vec![Builtin::Slack], on: Some(Changes::All), ..Draft::default() };
        let (result, shown) = asked(&mut draft, "kustomizations helmreleases\n\n", |_| None);
        result.unwrap();
        assert_eq!(draft.follow, [Followed::Kustomizations, Followed::Helmreleases]);
        assert!(draft.dir.is_none() && shown.matches("\n> ").count() == 2, "{shown}");
    }

    #[test]
    fn a_wrong_answer_is_explained_and_asked_for_again() {
        let lines =
            "\n3\n0\nweb\ndeploy/Web\ndeploy/web\n\nprod\nprod=web\nslak\n\nsentry-release-deploy\nslack\nnever\nall\n\n";
        let is_refused = |draft: &Draft| draft.receivers.contains(&Builtin::SentryReleaseDeploy);
        let refused = |draft: &Draft| is_refused(draft).then_some(InitError::OnlyDeployments("\u{1b}[2J"));
        let mut draft = Draft::default();
        let (result, shown) = asked(&mut draft, lines, refused);
        result.unwrap();
        for words in [
            "write a number from 1 to 2",
            "no such kind; known kinds: kustomizations",
            "the name of an application must have",
            "write NAME=NAMESPACE, such as prod=web\n",
            "no such receiver; did you mean slack?",
            "write the name of a receiver, such as slack",
            r"\u{1b}[2J shows no failures",
            "write failures, deployments or all\n",
        ] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        assert_eq!((draft.receivers, draft.on), (vec![Builtin::Slack], Some(Changes::All)));
        assert!(what("kustomizations", &choices(), true).unwrap_err().starts_with("--env is for one application"));
        assert!(what("1", &Choices::default(), false).unwrap_err().starts_with("there is no list"));
    }

    #[test]
    fn a_missing_flag_that_no_question_asks_for_ends_the_questions() {
        let refused = |draft: &Draft| {
            let is_complete = !draft.receivers.contains(&Builtin::GithubIssueComment);
            let error = InitError::Incomplete { needs: "x".to_owned(), flags: "--set issue=42".to_owned() };
            Some(error).filter(|_| !is_complete)
        };
        let mut draft = Draft::default();
        let (result, shown) = asked(&mut draft, "1\nprod=web\ngithub-issue-comment\n", refused);
        let error = result.unwrap_err().downcast::<InitError>().unwrap();
        assert_eq!((error.flags(), draft.receivers.len()), (Some("--set issue=42"), 1));
        assert!(draft.on.is_none() && shown.matches("\n> ").count() == 3, "{shown}");
        // The same if a flag chose the receiver.
        let mut draft = Draft { receivers: vec![Builtin::GithubIssueComment], ..Draft::default() };
        let (result, shown) = asked(&mut draft, "1\nprod=web\n", refused);
        result.unwrap_err().downcast::<InitError>().unwrap();
        assert_eq!((draft.spots.len(), shown.matches("\n> ").count()), (1, 2), "{shown}");
    }

    #[test]
    fn the_end_of_the_input_at_any_question_ends_the_command() {
        let lines = ["1", "prod=web", "slack", "all"];
        for end in 0..=lines.len() {
            let input: String = lines[..end].iter().flat_map(|line| [*line, "\n"]).collect();
            let (result, _) = asked(&mut Draft::default(), &input, |_| None);
            assert_eq!(result.unwrap_err().to_string(), "there is no answer; nothing was written", "{end}");
        }
    }

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..32).map(|n| format!("n{n}")).collect();
        assert!(some(&names).ends_with(", n29 and 2 more"), "{}", some(&names));
        let apps = names.iter().map(|name| (App::parse(&format!("deploy/{name}")).unwrap(), vec![name.clone()])).collect();
        let question = what_question(&Choices { apps, namespaces: Vec::new() });
        assert!(question.contains("\n  and 2 more\n") && !question.contains("deployment/n30"), "{question}");
    }
}
