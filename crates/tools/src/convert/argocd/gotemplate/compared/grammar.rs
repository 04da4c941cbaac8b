//! Sources of Go's templates with all that is converted, and some that is not.

/// What is between tags.
const TEXTS: [&str; 20] = [
    "a ",
    "\n",
    "first\n",
    "  ",
    " \n\t",
    "it's \"quoted\" ",
    "Zürich – ✓ 🚩\n",
    "{ json: } ",
    "<b>&amp;</b>",
    "C:\\ ",
    "C:\\",
    "[x] ",
    "}} ",
    "\\n",
    "{{/* a }} */}}",
    "{{- /* b\n*/ -}}",
    "{{\"{{raw}} \"}}",
    "{{`back \"quotes\"`}}",
    "* *bold* _x_ ",
    "100% $x ",
];

/// Fields without a difference.
const EXACT: [&str; 14] = [
    ".app.metadata.name",
    "$.app.metadata.name",
    ".app.metadata.namespace",
    ".app.kind",
    ".app.apiVersion",
    ".app.status.operationState.syncResult.revision",
    ".app.status.operationState.operation.sync.revision",
    ".app.spec.project",
    ".serviceType",
    ".recipient",
    ".context.argocdUrl",
    ".context.team",
    "(index .context \"note\")",
    "(index .app.metadata \"name\")",
];

/// Fields with a difference, or that are refused.
const OTHERS: [&str; 23] = [
    ".app.status.sync.revision",
    ".app.status.operationState.message",
    ".app.status.health.message",
    ".app.status.sync.status",
    ".app.status.health.status",
    ".app.status.operationState.phase",
    ".app.status.operationState.startedAt",
    ".app.status.operationState.finishedAt",
    ".app.status.reconciledAt",
    ".app.status.health.lastTransitionTime",
    ".app.spec.source.repoURL",
    ".app.spec.source.path",
    ".app.spec.source.chart",
    ".app.metadata.labels.team",
    "(index .app.metadata.labels \"app.kubernetes.io/part-of\")",
    "(index .app.metadata.annotations \"notifications.argoproj.io/subscribe.on-sync-failed.slack\")",
    "(index .app.metadata.annotations \"example.com/owner\")",
    "(call .repo.FullNameByRepoURL .app.spec.source.repoURL)",
    "(call .repo.RepoURLToHTTPS .app.spec.source.repoURL)",
    ".app.metadata.annotations.none",
    ".context.missing",
    ".secrets.token",
    "7",
];

/// Fields that are only conditions.
const PRESENT: [&str; 9] = [
    ".app.status",
    ".app.status.sync",
    ".app.status.health",
    ".app.status.operationState",
    ".app.status.operationState.syncResult",
    ".app.spec.source",
    ".app.spec.sources",
    ".context.empty",
    "true",
];

/// Texts in tags.
const WORDS: [&str; 10] = [
    "\"shop-api\"",
    "\"shop\"",
    "\"slack\"",
    "\"default\"",
    "\"Application\"",
    "\"Grüße\"",
    "\"it's\"",
    "`raw \"text\"`",
    "\"a\\tb\\n\\\"c\\\"\"",
    "\"\"",
];

/// Functions after a bar.
const PIPED: [&str; 17] = [
    "upper",
    "lower",
    "trim",
    "trunc 7",
    "trunc 63",
    "replace \"-\" \"_\"",
    "replace \"a\" \"\"",
    "default \"none\"",
    "default .app.metadata.name",
    "coalesce .context.empty",
    "toString",
    "quote",
    "toJson",
    "toRawJson",
    "toPrettyJson",
    "urlquery",
    "sha256sum",
];

const FORMATS: [&str; 5] = ["\"%s/%v\"", "\"%s: \\\"%s\\\"\\n\"", "`(%v, %v)`", "\"é%sß%s\"", "\"%s {%s} \""];

/// What the grammar would seldom find.
const ODD: [&str; 30] = [
    "{{ternary \"a\" \"b\" .app.status.health}}",
    "{{ternary \"a\" \"b\" (or (eq .app.kind \"x\") .app.metadata.name)}}",
    "{{.app.operation.sync.revision}}",
    "{{.app.metadata.name | toUpper}}",
    "{{toLower .app.metadata.name}}",
    "{{7 | upper}}",
    "{{contains 7 .app.metadata.name | ternary \"a\" \"b\"}}",
    "{{trunc 0 .app.metadata.name}}",
    "{{replace \"\" \"x\" .app.metadata.name}}",
    "{{coalesce .context.empty .context.empty}}",
    "{{coalesce .app.metadata.name | upper}}",
    "{{toRawJson .context.line}}",
    "\\{{\"{{status}}\"}}",
    "{{\"{\"}}{{.context.brace}}",
    "\\{{.context.tag}}",
    "{{printf \"{%s\" \"{status}}\"}}",
    "{{printf \"a\\\\%s\" .app.metadata.name}}",
    "{{printf \"%s}\" .app.metadata.name}}",
    "{{ternary \"a\\\\\" \"b\" (eq .app.kind \"Application\")}}",
    "a\n{{if .app.metadata.name}}\nb\n{{else}}\nc\n{{end}}\nd",
    "a\n  {{ternary \"b\" \"c\" (eq .app.kind \"Application\")}}  \nd",
    "{{default \"x\" (index .app.metadata.labels \"team\")}}",
    "{{.app.metadata.labels.team | toJson | default \"x\"}}",
    "{{.app.metadata.labels.team | toString | default \"x\"}}",
    "{{.app.metadata.labels.team | urlquery | default \"x\"}}",
    "{{.app.metadata.labels.team | upper | default \"x\"}}",
    "{{if eq (default \"x\" .app.metadata.labels.team) \"x\"}}none{{end}}",
    "{{quote 7}}{{-7}}",
    "{{range .app.status.conditions}}x{{end}}y",
    "{{if .context.empty}}{{.app.unknown}}{{else}}y{{end}}",
];

/// Generates sources.
pub(super) struct Grammar(pub(super) fastrand::Rng);

impl Grammar {
    fn one(&mut self, of: &[&'static str]) -> &'static str {
        of[self.0.usize(..of.len())]
    }

    /// Returns a source. One of ten has something odd, each in its turn.
    pub(super) fn source(&mut self, at: usize) -> String {
        let odd = if at.is_multiple_of(10) { ODD[at / 10 % ODD.len()] } else { "" };
        odd.to_owned() + &self.parts(4, 2)
    }

    fn parts(&mut self, most: usize, depth: usize) -> String {
        (0..self.0.usize(1..=most)).map(|_| self.part(depth)).collect()
    }

    fn part(&mut self, depth: usize) -> String {
        match self.0.usize(..10) {
            0..=4 => self.one(&TEXTS).to_owned(),
            5..=7 => {
                let value = self.value(depth);
                self.tag(&value)
            }
            _ if depth > 0 => self.choice(depth - 1),
            _ => "x".to_owned(),
        }
    }

    fn tag(&mut self, text: &str) -> String {
        match self.0.usize(..10) {
            0..=5 => format!("{{{{{text}}}}}"),
            6..=7 => format!("{{{{ {text} }}}}"),
            8 => format!("{{{{- {text} }}}}"),
            _ => format!("{{{{ {text} -}}}}"),
        }
    }

    fn choice(&mut self, depth: usize) -> String {
        let condition = self.condition(depth);
        let mut text = self.tag(&format!("if {condition}")) + &self.parts(2, depth);
        if self.0.bool() {
            let condition = self.condition(depth);
            text += &(self.tag(&format!("else if {condition}")) + &self.parts(2, depth));
        }
        if self.0.bool() {
            text += &(self.tag("else") + &self.parts(2, depth));
        }
        text + &self.tag("end")
    }

    fn field(&mut self) -> &'static str {
        if self.0.usize(..5) == 0 { self.one(&OTHERS) } else { self.one(&EXACT) }
    }

    fn operand(&mut self, depth: usize) -> String {
        match self.0.usize(..4) {
            0 => self.one(&WORDS).to_owned(),
            1 if depth > 0 => format!("({})", self.value(depth - 1)),
            _ => self.field().to_owned(),
        }
    }

    fn value(&mut self, depth: usize) -> String {
        let kind = self.0.usize(..12);
        if depth == 0 || kind < 5 {
            return self.field().to_owned();
        }
        let (first, second) = (self.operand(depth - 1), self.operand(depth - 1));
        match kind {
            5..=8 => format!("{first} | {}", self.one(&PIPED)),
            9 => format!("coalesce {first} {second} {}", self.one(&WORDS)),
            10 => format!("ternary {first} {second} ({})", self.condition(depth - 1)),
            _ => format!("printf {} {first} {second}", self.one(&FORMATS)),
        }
    }

    fn condition(&mut self, depth: usize) -> String {
        let (field, word) = (self.field(), self.one(&WORDS));
        let kinds = if depth == 0 { 7 } else { 10 };
        match self.0.usize(..kinds) {
            0 => format!("eq {field} {word}"),
            1 => format!("ne {field} {word}"),
            2 => format!("contains {word} {field}"),
            3 => format!("hasPrefix {word} {field}"),
            4 => format!("{field} | hasSuffix {word}"),
            5 => self.one(&PRESENT).to_owned(),
            6 => format!("eq {field} {word} {}", self.one(&WORDS)),
            7 => format!("not ({})", self.condition(depth - 1)),
            8 => format!("and ({}) ({})", self.condition(depth - 1), self.condition(depth - 1)),
            _ => format!("or ({}) {field}", self.condition(depth - 1)),
        }
    }
}
