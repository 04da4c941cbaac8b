//! What a pull request changes: exactly the marked values, in one commit, with the texts, labels and author of the strategy.

use kube::ResourceExt as _;
use relaybook_api::Promotion;
use relaybook_api::promotion::Phase;
use relaybook_forge::text::{self, Promoted};
use serde_json::{Value, json};

use super::exact::Opened;
use super::{FILE, Stage, release};
use crate::support::world::promotions::is_for;

/// Two commits and two digests.
const COMMITS: [&str; 2] = ["0123456789abcdef0123456789abcdef01234567", "9c1e1fd3a0b1c2d3e4f5061728394a5b6c7d8e9f"];
const DIGESTS: [&str; 2] = [
    "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210",
];

/// Returns what the texts of a pull request say of a promotion.
pub(super) fn promoted(promotion: &Promotion) -> Promoted<'_> {
    let spec = &promotion.spec;
    Promoted {
        namespace: promotion.metadata.namespace.as_deref().unwrap(),
        name: promotion.metadata.name.as_deref().unwrap(),
        pipeline: &spec.pipeline_ref.name,
        pipeline_uid: &spec.pipeline_ref.uid,
        environment: &spec.environment,
        from: &spec.from,
        revision: &spec.revision,
        previous: spec.previous.as_deref(),
    }
}

impl Stage {
    /// Asserts that a branch has one commit more than `main`, by this author, with our message. It changes exactly these files, each in one
    /// line.
    pub(super) async fn one_commit(&self, promotion: &Promotion, branch: &str, author: (&str, &str), files: &[&str]) {
        let (repository, spec) = (&self.repository, &promotion.spec);
        let commits = repository.commits(branch).await;
        assert_eq!(commits[1]["sha"].as_str(), repository.head("main").await.as_deref());
        let id = commits[0]["sha"].as_str().unwrap();
        let commit = repository.person.get(&repository.path(&format!("/git/commits/{id}?stat=true&files=true"))).await;
        let mut names: Vec<_> =
            commit["files"].as_array().unwrap().iter().map(|f| f["filename"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, files);
        let lines = files.len();
        assert_eq!(commit["stats"], json!({"total": 2 * lines, "additions": lines, "deletions": lines}));
        for who in ["author", "committer"] {
            let found = &commit["commit"][who];
            assert_eq!((found["name"].as_str(), found["email"].as_str()), (Some(author.0), Some(author.1)), "{who}");
        }
        let (pipeline, uid) = (&spec.pipeline_ref.name, &spec.pipeline_ref.uid);
        // A long revision is cut in the subject.
        let revision =
            if spec.revision.len() > 128 { format!("{}…", &spec.revision[..125]) } else { spec.revision.clone() };
        let subject = format!("Promote {pipeline} to {}: {revision}", spec.environment);
        let trailer = format!("Relaybook-Promotion: {}/{} {uid}", self.world.ns, promotion.name_any());
        assert_eq!(
            commit["commit"]["message"].as_str().map(str::trim_end),
            Some(format!("{subject}\n\n{trailer}").as_str())
        );
    }
}

#[tokio::test]
async fn one_commit_changes_exactly_the_marked_values_of_four_files() {
    let stage = Stage::new("pulls-edits").await;
    let Stage { world, repository, bot, .. } = &stage;
    let (ns, [old, new]) = (&world.ns, COMMITS);
    let files = [
        (
            "apps/prod/deployment.yaml",
            format!(
                "# The web server.\nspec:\n  containers:\n    - name: web\n      image: registry.example.com:5000/acme/web:1.22.0 \
                 # {{\"$promotion\": \"{ns}:web:prod:tag\"}}\n    - name: other\n      image:   registry.example.com/other:1.22.0\n"
            ),
            ("web:1.22.0", format!("web:{new}")),
        ),
        (
            "apps/prod/deep/kustomization.yml",
            format!(
                "images:\r\n- name: web\r\n  newTag: \"1.22.0\"   # {{\"$promotion\": \"{ns}:web:prod:tag\"}} # by Relaybook\r\n\
                 - name: staging\r\n  newTag: \"1.22.0\" # {{\"$promotion\": \"{ns}:web:staging:tag\"}}\r\n  # the end"
            ),
            ("newTag: \"1.22.0\"   #", format!("newTag: \"{new}\"   #")),
        ),
        (
            "source.yaml",
            format!(
                "---\nref:\n  commit: '{old}' # {{\"$promotion\": \"{ns}:web:prod:commit\"}}\n---\nref: {{commit: '{old}'}}\n"
            ),
            ("  commit: '0123456789abcdef0123456789abcdef01234567' #", format!("  commit: '{new}' #")),
        ),
        (FILE, release(ns, "web"), ("\"1\"", format!("\"{new}\""))),
    ];
    let before: Vec<_> = files.iter().map(|(path, text, _)| (*path, Some(text.as_str()))).collect();
    repository.commit("main", "all files", &before[..3]).await;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", new).await;
    let Opened { promotion, number, branch } = stage.opened(&format!("web/prod {new}")).await;

    for (path, text, (from, to)) in &files {
        assert_eq!(text.matches(from).count(), 1, "{path}");
        assert_eq!(repository.file(&branch, path).await, Some(text.replace(from, to)), "{path}");
        assert_eq!(repository.file("main", path).await.as_ref(), Some(text), "{path}");
    }
    assert_eq!(repository.file(&branch, "README.md").await.unwrap(), "# deploy\n");
    let names = ["apps/prod/deep/kustomization.yml", "apps/prod/deployment.yaml", FILE, "source.yaml"];
    stage.one_commit(&promotion, &branch, ("Relaybook", "relaybook@example.invalid"), &names).await;
    let pull = repository.pull(number).await;
    let promoted = promoted(&promotion);
    assert_eq!(pull["title"].as_str(), Some(text::title(&promoted).as_str()));
    assert_eq!(pull["body"].as_str(), Some(text::body(&promoted).as_str()));
    assert_eq!((pull["user"]["login"].as_str(), pull["base"]["ref"].as_str()), (Some(bot.name.as_str()), Some("main")));
    assert_eq!(pull["labels"], json!([]));
    stage.fence("web").await;
    stage.exactly(&[(&branch, "open")], &[("main", 2), (&branch, 3)]).await;
    let line = format!("prod {new}: Requested/Opening, Open");
    stage.oracle().promotions("web", &["hook"], &[&line]).check().await;
}

#[tokio::test]
async fn title_body_labels_author_and_paths_are_those_of_the_strategy() {
    let stage = Stage::new("pulls-texts").await;
    let Stage { world, repository, .. } = &stage;
    let ns = &world.ns;
    let ([old, new], tag) = (DIGESTS, "1.3");
    let image = format!("image: registry.example.com/web@{old} # {{\"$promotion\": \"{ns}:web:prod:digest\"}}\n");
    let files =
        ["apps/prod/image.yaml", "apps/produce/image.yaml", "other/image.yaml"].map(|path| (path, Some(image.as_str())));
    repository.commit("main", "images", &files).await;
    repository.branch("release", "main").await;
    let label = json!({"name": "promotion", "color": "#00aabb"});
    repository.person.post(&repository.path("/labels"), label).await;
    let over = json!({
        "paths": ["apps/prod"],
        "title": "{{pipeline.name}}: {{promotion.from}} to {{environment}}",
        "body": "# {{revision}}\n\nWas {{promotion.previous}}.\n/merge",
        "labels": ["promotion"],
        "author": {"name": "Release Bot", "email": "bot@example.com"},
        "baseBranch": "release",
    });
    stage.pipeline("web", stage.by_pull_request(over)).await;
    let _relaybook = stage.relaybook().await;
    // A digest decides what runs, so it is the revision.
    world.ship("web-dev", &format!("{tag}@{new}")).await;
    let Opened { promotion, number, branch } = stage.opened(&format!("web/prod {new}")).await;

    stage.one_commit(&promotion, &branch, ("Release Bot", "bot@example.com"), &["apps/prod/image.yaml", FILE]).await;
    assert_eq!(repository.file(&branch, "apps/prod/image.yaml").await, Some(image.replace(old, new)));
    for path in ["apps/produce/image.yaml", "other/image.yaml"] {
        assert_eq!(repository.file(&branch, path).await.as_ref(), Some(&image), "{path}");
    }
    let pull = repository.pull(number).await;
    assert_eq!((&pull["title"], &pull["base"]["ref"]), (&json!("web: dev to prod"), &json!("release")));
    let body = text::described(&format!("# {new}\n\nWas 1.\n/merge"), &promoted(&promotion));
    assert!(body.contains("\\/merge"), "{body}");
    assert_eq!(pull["body"].as_str(), Some(body.as_str()));
    let labels: Vec<_> = pull["labels"].as_array().unwrap().iter().map(|label| &label["name"]).collect();
    assert_eq!(labels, ["promotion"]);
    stage.fence("web").await;
    stage.exactly(&[(&branch, "open")], &[("main", 2), ("release", 2), (&branch, 3)]).await;
    let line = format!("prod {new}: Requested/Opening, Open");
    stage.oracle().promotions("web", &["hook"], &[&line]).check().await;
}

#[tokio::test]
async fn a_value_that_is_already_set_needs_no_pull_request() {
    let stage = Stage::new("pulls-declared").await;
    let Stage { world, repository, .. } = &stage;
    let declared = release(&world.ns, "web").replace("\"1\"", "\"2\"");
    let head = repository.commit("main", "by a person", &[(FILE, Some(&declared))]).await;
    stage.pipeline("web", stage.by_pull_request(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let merged = world.promotion("web/prod 2", is_for(Phase::Merged, "AlreadyDeclared")).await;
    let status = merged.status.unwrap();
    assert_eq!((status.succeeded, status.pull_request), (true, None));
    assert!(status.location.is_some_and(|url| url.ends_with(&format!("/deploy/commit/{head}"))));
    world.runs("web/prod", "2").await;
    stage.phase("web/prod 2", Phase::Finished).await;
    stage.fence("web").await;
    stage.exactly(&[], &[("main", 2)]).await;
    let line = "prod 2: Requested/Opening, Merged/AlreadyDeclared, Finished";
    stage.oracle().promotions("web", &["hook"], &[line]).check().await;
}

#[tokio::test]
async fn a_value_that_cannot_be_set_fails_the_promotion_with_file_and_line() {
    let stage = Stage::new("pulls-invalid").await;
    let Stage { world, receiver, repository, .. } = &stage;
    let ns = &world.ns;
    let marker = format!("# {{\"$promotion\": \"{ns}:bad:prod\"}}");
    let bad = format!("spec:\n  version: 1 {marker}\n  ref: {{commit: a, tag: b}} {marker}\n");
    repository.commit("main", "a bad file", &[("apps/bad.yaml", Some(&bad))]).await;
    stage.pipeline("none", stage.by_pull_request(json!({"paths": ["apps", "clusters"]}))).await;
    stage.pipeline("bad", stage.by_pull_request(json!({}))).await;
    let _relaybook = stage.relaybook().await;
    for name in ["none", "bad"] {
        world.runs(&format!("{name}/dev"), "2").await;
    }
    let failed = async |what: &str, reason: &str| -> String {
        let status = world.promotion(what, is_for(Phase::Failed, reason)).await.status.unwrap();
        assert_eq!((status.attempts, status.succeeded), (1, false), "{what}");
        status.message
    };
    let message = failed("none/prod 2", "NoSetters").await;
    assert_eq!(message, format!("no line under apps, clusters ends with # {{\"$promotion\": \"{ns}:none:prod\"}}"));
    let message = failed("bad/prod 2", "SetterInvalid").await;
    assert!(message.starts_with("apps/bad.yaml:3: the line is in flow style"), "{message}");
    let told = receiver.wait("/hook/prod/PromotionFailed", 2).await;
    let mut reasons: Vec<Value> = told.iter().map(|request| request.json()["why"].clone()).collect();
    reasons.sort_by_key(Value::to_string);
    assert_eq!(reasons, ["NoSetters", "SetterInvalid"]);
    for name in ["none", "bad"] {
        stage.fence(name).await;
    }
    stage.exactly(&[], &[("main", 2)]).await;

    // Somebody repairs the file.
    let good = bad.replace(&format!("{{commit: a, tag: b}} {marker}"), "main");
    repository.commit("main", "repaired", &[("apps/bad.yaml", Some(&good))]).await;
    let Opened { branch, .. } = Opened::of(stage.retry("bad/prod 2", "1", Phase::Open).await);
    let expected = good.replace("version: 1", "version: \"2\"");
    assert_eq!(repository.file(&branch, "apps/bad.yaml").await, Some(expected));
    stage.fence("bad").await;
    stage.exactly(&[(&branch, "open")], &[("main", 3), (&branch, 4)]).await;
    stage
        .oracle()
        .promotions("none", &["hook"], &["prod 2: Requested/Opening, Failed/NoSetters"])
        .promotions("bad", &["hook"], &["prod 2: Requested/Opening, Failed/SetterInvalid, Requested/Opening, Open"])
        .check()
        .await;
}

#[tokio::test]
async fn labels_that_cannot_be_set_do_not_stop_a_promotion() {
    let stage = Stage::new("pulls-labels").await;
    let Stage { world, repository, bot, .. } = &stage;
    let file = release(&world.ns, "narrow");
    repository.commit("main", "more", &[("apps/narrow.yaml", Some(&file))]).await;
    let label = json!({"name": "promotion", "color": "#00aabb"});
    repository.person.post(&repository.path("/labels"), label).await;
    // This token can open pull requests, and cannot set labels.
    world.secret("narrow-bot", json!({"token": bot.token(&["write:repository"]).await})).await;
    let labels = json!({"labels": ["promotion", "absent"]});
    stage.pipeline("web", stage.by_pull_request(labels.clone())).await;
    let mut narrow = stage.by_pull_request(labels);
    narrow["strategy"]["pullRequest"]["secretRef"]["name"] = json!("narrow-bot");
    stage.pipeline("narrow", narrow).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let web = stage.opened("web/prod 2").await;
    let pull = repository.pull(web.number).await;
    let labels: Vec<_> = pull["labels"].as_array().unwrap().iter().map(|label| &label["name"]).collect();
    assert_eq!(labels, ["promotion"]);
    world.runs("narrow/dev", "2").await;
    let narrow = stage.opened("narrow/prod 2").await;
    assert_eq!(repository.pull(narrow.number).await["labels"], json!([]));
    for name in ["web", "narrow"] {
        stage.fence(name).await;
    }
    let pulls = [(web.branch.as_str(), "open"), (&narrow.branch, "open")];
    stage.exactly(&pulls, &[("main", 2), (&web.branch, 3), (&narrow.branch, 3)]).await;
    let line = ["prod 2: Requested/Opening, Open"];
    stage.oracle().promotions("web", &["hook"], &line).promotions("narrow", &["hook"], &line).check().await;
}
