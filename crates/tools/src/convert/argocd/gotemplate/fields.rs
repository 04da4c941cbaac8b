//! The fields of an Application that a change has, under another name. Pure.

use std::fmt::Write as _;

/// What a field becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// A field, and what differs.
    Path(&'static str, Option<&'static str>),
    /// A helper with its arguments, and what differs.
    Call(&'static str, Option<&'static str>),
    /// Words of Argo CD.
    Words(&'static Words),
    /// Whether it exists, and what differs.
    Is(bool, Option<&'static str>),
    /// The recorded field, and what differs.
    Recorded(Option<&'static str>),
}

/// What differs if a label, an annotation or a field is absent.
pub(super) const ABSENT: &str = "an absent one shows nothing; Argo CD shows `<no value>`, or fails";
/// What differs at the address of the repository.
pub(super) const REPOSITORY: &str =
    "it is the Git repository of the change, without credentials, and shows nothing if a repository of Helm is the source";

impl Known {
    /// Returns what differs.
    pub(super) fn differs(&self) -> Option<&'static str> {
        match self {
            Self::Path(_, differs) | Self::Call(_, differs) | Self::Is(_, differs) | Self::Recorded(differs) => *differs,
            Self::Words(_) => Some("the word follows from the state that Relaybook observed"),
        }
    }
}

/// The words of Argo CD for a state. Each has a condition; the last word is shown if no condition is true.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Words {
    words: [(&'static str, &'static str); 4],
}

impl Words {
    /// Returns the condition for a word.
    pub(super) fn condition(&self, word: &str) -> Option<&'static str> {
        self.words.iter().find(|(known, _)| *known == word && !word.is_empty()).map(|(_, condition)| *condition)
    }

    /// Returns the part of a template that shows the word.
    pub(super) fn shown(&self) -> String {
        self.with(str::to_owned)
    }

    /// Returns the same in upper or lower case.
    pub(super) fn cased(&self, is_upper: bool) -> String {
        self.with(|word| if is_upper { word.to_uppercase() } else { word.to_lowercase() })
    }

    fn with(&self, change: impl Fn(&str) -> String) -> String {
        let used = self.words.iter().filter(|(word, _)| !word.is_empty()).count();
        let mut text = String::new();
        for (at, (word, condition)) in self.words.iter().take(used).enumerate() {
            let word = change(word);
            let _ = match at {
                _ if at + 1 == used => write!(text, "{{{{else}}}}{word}{{{{/if}}}}"),
                0 => write!(text, "{{{{#if {condition}}}}}{word}"),
                _ => write!(text, "{{{{else if {condition}}}}}{word}"),
            };
        }
        text
    }
}

static SYNC: Words = Words {
    words: [("OutOfSync", "drifted"), ("Unknown", "(eq reason \"ComparisonError\")"), ("Synced", "(not drifted)"), ("", "")],
};
static HEALTH: Words = Words {
    words: [
        ("Healthy", "(eq status \"Current\")"),
        ("Progressing", "(eq status \"InProgress\")"),
        ("Degraded", "(eq reason \"Degraded\")"),
        ("", ""),
    ],
};
static PHASE: Words = Words {
    words: [
        ("Error", "(eq reason \"SyncError\")"),
        ("Failed", "(eq reason \"SyncFailed\")"),
        ("Running", "(eq status \"InProgress\")"),
        ("Succeeded", "(eq status \"Current\")"),
    ],
};

const TIME: Known =
    Known::Call("date time \"%Y-%m-%dT%H:%M:%SZ\"", Some("it is the time at which Relaybook observed the change"));
const EXISTS: Option<&str> = Some("it counts as present, also before the first sync operation");
const COMPARED: Option<&str> = Some("it is the revision of the change, and not the one that Argo CD compared last");
const MESSAGE: Option<&str> =
    Some("it is the message that Relaybook observed with the change: of the operation, or else of the health");
const SEVERAL: Option<&str> = Some("an Application with several sources shows the first Git repository");

static FIELDS: [(&str, Known); 28] = [
    ("metadata.name", Known::Path("target.app.name", None)),
    ("metadata.namespace", Known::Path("target.namespace", None)),
    ("kind", Known::Path("target.app.kind", None)),
    ("apiVersion", Known::Path("target.app.apiVersion", None)),
    ("status.sync.revision", Known::Path("revision", COMPARED)),
    ("status.operationState.syncResult.revision", Known::Path("revision", None)),
    ("status.operationState.operation.sync.revision", Known::Path("revision", None)),
    (
        "operation.sync.revision",
        Known::Path("revision", Some("it is the revision of the change, also if no operation is requested")),
    ),
    ("status.operationState.message", Known::Path("message", MESSAGE)),
    ("status.health.message", Known::Path("message", MESSAGE)),
    ("status.sync.status", Known::Words(&SYNC)),
    ("status.health.status", Known::Words(&HEALTH)),
    ("status.operationState.phase", Known::Words(&PHASE)),
    ("status.operationState.startedAt", TIME),
    ("status.operationState.finishedAt", TIME),
    ("status.reconciledAt", TIME),
    ("status.health.lastTransitionTime", TIME),
    ("spec.source", Known::Is(true, SEVERAL)),
    ("spec.sources", Known::Is(false, SEVERAL)),
    ("spec.source.repoURL", Known::Path("target.source.repository", Some(REPOSITORY))),
    ("spec.project", Known::Recorded(None)),
    ("spec.source.path", Known::Recorded(Some(ABSENT))),
    ("spec.source.chart", Known::Recorded(Some(ABSENT))),
    ("status", Known::Is(true, None)),
    ("status.operationState", Known::Is(true, EXISTS)),
    ("status.operationState.syncResult", Known::Is(true, EXISTS)),
    ("status.sync", Known::Is(true, None)),
    ("status.health", Known::Is(true, None)),
];

/// Returns what a field of an Application becomes.
pub(super) fn known(path: &str) -> Option<&'static Known> {
    FIELDS.iter().find(|(name, _)| *name == path).map(|(_, known)| known)
}
