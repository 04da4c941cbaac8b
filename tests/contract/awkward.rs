//! Transitions with the most extreme data that a cluster can produce.
//!
//! Messages and reasons can be any text of a controller, and revisions any version of a source. Names follow the rules of
//! Kubernetes, so they can only be long: 63 characters, or 253 for clusters and application objects.

use std::collections::BTreeMap;

use relaybook_api::TransitionType;
use relaybook_api::delivery::SubjectKind;
use relaybook_settings::render::Data;

/// The commit hash in the revisions of all rows.
pub const COMMIT: &str = "5f3d2c1b0a9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c";

/// Text that receivers could interpret as a mention, a link, a command, or formatting.
pub const MARKUP: &str = "<!channel> <!here|here> <@U1> <#C1> @here @everyone @all @user <users/all> <at>x</at> \
    [x](http://evil.example) <http://evil.example|x> ![i](http://evil.example/i.png) *b* _i_ ~s~ **b** `c` ```p``` \
    <b>b</b> <a href=\"http://evil.example\">x</a> &lt;!channel&gt; #1 /command %%% ${{ github.token }} $CI_JOB_TOKEN \
    |t| ||s|| > q";

type Change = fn(&mut Data);

/// The changes to a sample, by name.
const ROWS: &[(&str, Change)] = &[
    ("as the sample is", |_| {}),
    ("nothing known", |data| {
        data.reason.clear();
        data.message.clear();
        data.running_revision.clear();
        data.promotion.previous.clear();
    }),
    ("quotes and backslashes", |data| text(data, r#"""\"'`\\ C:\new\table \u0041 {{message}} {{"#)),
    ("line breaks", |data| text(data, "\nfirst\r\nsecond\n\n\n\tthird\r")),
    ("control characters", |data| text(data, "a\0b\u{1}c\u{8}d\u{b}e\u{1b}[31mred\u{7f}\u{85}\u{9f}f")),
    ("separators of lines and words", |data| text(data, "a\u{2028}b\u{2029}c\u{a0}d\u{200b}e\u{feff}f")),
    ("right to left, and joined", |data| text(data, "\u{202e}abc\u{202c} שלום مرحبا 🏴‍☠️👩‍👩‍👧‍👦 é e\u{301} 𝔘𝔫𝔦 \u{fffd}")),
    ("spaces only", |data| text(data, "   ")),
    ("long", |data| data.message = "a word, \"quoted\" & <b>bold</b>\n".repeat(340)),
    ("long, of wide characters", |data| data.message = "🏴‍☠️é𝔘".repeat(1000)),
    ("long, of what is escaped", |data| {
        data.message = "<>&\"'*_`@".repeat(1200);
        data.reason = "<>&\"'*_`@".repeat(50);
        branch(data, &"<&*_".repeat(100));
    }),
    ("markup", |data| text(data, MARKUP)),
    ("markup in the branch", |data| branch(data, "<@U1>/*b*/[x](e)&\"'")),
    ("a branch with everything", |data| branch(data, "feature/ä+b c%20#1?x=1&y=2")),
    ("long names", long_names),
    ("labels", |data| {
        let label = |name: &str| (name.to_owned(), "\"<!channel>\n".to_owned());
        data.pipeline.labels = BTreeMap::from([label("team"), label("app.kubernetes.io/name")]).into();
        data.pipeline.annotations = BTreeMap::from([label("example.com/\"owner\"")]).into();
    }),
    ("drifted and coalesced", |data| (data.drifted, data.coalesced) = (true, true)),
    ("long ago", |data| data.time = relaybook_api::Time::UNIX_EPOCH),
];

/// Returns a transition of this type for each row, with the type and the name of the row.
pub fn rows(type_: TransitionType) -> impl Iterator<Item = (TransitionType, &'static str, Data)> {
    ROWS.iter().map(move |(name, change)| {
        let mut data = Data::sample(type_);
        change(&mut data);
        (type_, *name, data)
    })
}

fn text(data: &mut Data, text: &str) {
    text.clone_into(&mut data.reason);
    text.clone_into(&mut data.message);
    if !data.promotion.name.is_empty() {
        text.clone_into(&mut data.promotion.reason);
    }
}

/// Sets the branch of all revisions that are not empty.
fn branch(data: &mut Data, branch: &str) {
    let promotion = &mut data.promotion;
    let revisions = [
        &mut data.revision,
        &mut data.running_revision,
        &mut data.previous_revision,
        &mut promotion.revision,
        &mut promotion.previous,
    ];
    for revision in revisions {
        if let Some((_, hash)) = revision.rsplit_once(':') {
            *revision = format!("{branch}@sha1:{hash}");
        }
    }
}

fn long_names(data: &mut Data) {
    let name = |length: usize| "n".repeat(length);
    data.pipeline.name = name(63);
    data.pipeline.namespace = name(63);
    data.notification.name = name(63);
    data.subject.name = match data.subject.kind {
        SubjectKind::Target => [63, 253, 63, 253].map(name).join("/"),
        SubjectKind::Cluster => [63, 253].map(name).join("."),
        SubjectKind::Environment | SubjectKind::Pipeline => name(63),
    };
    data.context = [63, 63, 63, 63, 253, 63, 63, 253].map(name).join("/");
    // Empty fields stay empty.
    let texts = [
        (63, &mut data.environment),
        (63, &mut data.target.namespace),
        (253, &mut data.target.cluster.name),
        (63, &mut data.target.cluster.namespace),
        (253, &mut data.target.app.name),
        (253, &mut data.promotion.name),
        (63, &mut data.promotion.from),
    ];
    for (length, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        *text = name(length);
    }
    if data.subject.kind == SubjectKind::Target {
        data.target.name.clone_from(&data.subject.name);
        data.subject.app = name(253);
    }
}
