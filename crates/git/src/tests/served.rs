//! Tests against the real `git http-backend`.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::backend::{Backend, Loopback, git};
use super::http_backend::Behaviour;
use crate::*;

const MAIN: &str = "refs/heads/main";

/// A bare repository with a working copy.
struct Repository {
    backend: Backend,
    bare: PathBuf,
    work: PathBuf,
}

impl Repository {
    fn empty(behaviour: Behaviour, has_filter: bool) -> Self {
        let backend = Backend::start(behaviour);
        let (bare, work) = (backend.root.join("repo.git"), backend.root.join("work"));
        git(&backend.root, &["init", "-q", "--bare", "-b", "main", "repo.git"]);
        git(&backend.root, &["init", "-q", "-b", "main", "work"]);
        git(&bare, &["config", "uploadpack.allowFilter", if has_filter { "true" } else { "false" }]);
        git(&work, &["remote", "add", "origin", bare.to_str().unwrap()]);
        Self { backend, bare, work }
    }

    /// A repository with a commit.
    fn with(files: &[(&str, &str)], has_filter: bool) -> Self {
        let repository = Self::empty(Behaviour::default(), has_filter);
        repository.commit(files, "first");
        repository
    }

    /// Commits files as another person, and pushes the commit.
    fn commit(&self, files: &[(&str, &str)], message: &str) -> Id {
        write(&self.work, files);
        git(&self.work, &["add", "-A"]);
        git(&self.work, &["commit", "-q", "--allow-empty", "-m", message]);
        git(&self.work, &["push", "-q", "origin", "HEAD:main"]);
        git(&self.work, &["rev-parse", "HEAD"]).parse().unwrap()
    }

    fn transport(&self) -> Loopback {
        self.backend.transport("repo.git")
    }

    async fn main(&self) -> Id {
        let transport = self.transport();
        Remote::connect(&transport).await.unwrap().refs(&[MAIN]).await.unwrap().id(MAIN).unwrap()
    }

    async fn snapshot(&self, paths: &[&str]) -> Result<Snapshot, GitError> {
        let transport = self.transport();
        let remote = Remote::connect(&transport).await?;
        let id = remote.refs(&[MAIN]).await?.id(MAIN)?;
        remote.snapshot(id, &Paths::new(paths).unwrap()).await
    }

    fn hook(&self, name: &str, script: &str) {
        let path = self.bare.join("hooks").join(name);
        std::fs::create_dir_all(self.bare.join("hooks")).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// Makes a commit that sets one file.
fn edited(base: &Snapshot, path: &str, content: &str) -> Commit {
    let edits = BTreeMap::from([(path.to_owned(), Bytes::from(content.to_owned()))]);
    let message = Message::new("Promote podinfo to 6.5.1").unwrap().trailer("Relaybook-Promotion", "team-a/p 1-2").unwrap();
    let author = Author::new("Relaybook", "relaybook@example.com").unwrap();
    commit(base, &edits, &message, &author, 1_700_000_500).unwrap().unwrap()
}

fn update(base: &Snapshot, commit: &Commit) -> Push {
    Push::Update { old: base.commit.id, new: commit.id, pack: commit.pack.clone() }
}

#[tokio::test]
async fn one_commit_changes_one_line() {
    for has_filter in [true, false] {
        let repository = Repository::with(
            &[("apps/prod/deep/er/app.yaml", "a: 1\r\nb: 2 # x\r\n"), ("z.yml", "c: 1"), ("README.md", "text")],
            has_filter,
        );
        write(&repository.work, &[("apps/prod/run.yaml", "x: 1\n"), ("apps/other.txt", "1"), (".github/w.yaml", "a: 1")]);
        std::fs::set_permissions(repository.work.join("apps/prod/run.yaml"), PermissionsExt::from_mode(0o755)).unwrap();
        symlink("run.yaml", repository.work.join("apps/prod/link.yaml")).unwrap();
        let module = format!("160000,{},apps/prod/module.yaml", git(&repository.work, &["rev-parse", "HEAD"]));
        git(&repository.work, &["update-index", "--add", "--cacheinfo", &module]);
        std::fs::create_dir_all(repository.work.join("apps/prod/module.yaml")).unwrap();
        repository.commit(&[], "second\n\nSigned-off-by: A <a@example.com>");

        let base = repository.snapshot(&[]).await.unwrap();
        let files: Vec<&str> = base.files.keys().map(String::as_str).collect();
        assert_eq!(files, ["apps/prod/deep/er/app.yaml", "apps/prod/run.yaml", "z.yml"], "filter: {has_filter}");
        assert_eq!(base.files["apps/prod/deep/er/app.yaml"].bytes, "a: 1\r\nb: 2 # x\r\n");
        assert!(base.commit.has_trailer("signed-off-by", "A <a@example.com>"));
        assert_eq!(base.commit.parents.len(), 1);
        assert_eq!(repository.snapshot(&["apps/prod/run.yaml", ".github"]).await.unwrap().files.len(), 2);

        let first = edited(&base, "apps/prod/deep/er/app.yaml", "a: 1\r\nb: 3 # x\r\n");
        assert_eq!(
            first,
            edited(&base, "apps/prod/deep/er/app.yaml", "a: 1\r\nb: 3 # x\r\n"),
            "the same input gives the same commit"
        );
        assert_eq!(push(&repository.transport(), MAIN, update(&base, &first)).await.unwrap(), Pushed::Done);
        let base = repository.snapshot(&["apps"]).await.unwrap();
        let second = edited(&base, "apps/prod/run.yaml", "x: 2\n");
        assert_eq!(push(&repository.transport(), MAIN, update(&base, &second)).await.unwrap(), Pushed::Done);

        git(&repository.bare, &["fsck", "--strict", "--no-dangling"]);
        assert_eq!(repository.main().await, second.id);
        let stat = git(&repository.bare, &["diff", "--stat", "--summary", "main~2", "main"]);
        assert!(stat.contains("2 files changed, 2 insertions(+), 2 deletions(-)") && !stat.contains("mode"), "{stat}");
        let shown = git(&repository.bare, &["log", "-1", "--format=%an|%ae|%cn|%at|%s|%(trailers:only,unfold)", "main"]);
        assert_eq!(
            shown,
            "Relaybook|relaybook@example.com|Relaybook|1700000500|Promote podinfo to 6.5.1|Relaybook-Promotion: team-a/p 1-2"
        );
        assert!(git(&repository.bare, &["ls-tree", "main", "apps/prod/"]).contains("100755 blob"));
    }
}

/// A transport that does something before the pack is sent, or loses the answer to it.
struct Disturbed<F> {
    inner: Loopback,
    before_post: Mutex<Option<F>>,
    is_lost: bool,
}

impl<F: FnOnce() + Send> Transport for Disturbed<F> {
    async fn send(&self, request: Request) -> Result<Response, TransportError> {
        let is_post = request.method == Method::Post;
        if is_post && let Some(before) = self.before_post.lock().take() {
            before();
        }
        let response = self.inner.send(request).await;
        if is_post && self.is_lost { Err(TransportError::Failed("lost".into())) } else { response }
    }
}

#[tokio::test]
async fn a_branch_that_moves_is_never_overwritten() {
    let repository = Repository::with(&[("a.yaml", "a: 1\n")], true);
    let base = repository.snapshot(&[]).await.unwrap();
    let ours = edited(&base, "a.yaml", "a: 2\n");
    let before = || {
        repository.commit(&[("b.yaml", "b: 1\n")], "during the push");
    };
    let transport = Disturbed { inner: repository.transport(), before_post: Mutex::new(Some(before)), is_lost: false };
    let during = push(&transport, MAIN, update(&base, &ours)).await.unwrap();
    let now = repository.main().await;
    assert_eq!(during, Pushed::Moved { now: Some(now) });
    assert_eq!(push(&repository.transport(), MAIN, update(&base, &ours)).await.unwrap(), Pushed::Moved { now: Some(now) });
    let create = Push::Create { new: ours.id, pack: ours.pack.clone() };
    assert_eq!(push(&repository.transport(), MAIN, create).await.unwrap(), Pushed::Moved { now: Some(now) });
    let delete = Push::Delete { old: base.commit.id };
    assert_eq!(push(&repository.transport(), MAIN, delete).await.unwrap(), Pushed::Moved { now: Some(now) });
    assert_eq!(git(&repository.bare, &["log", "--format=%s", "main"]), "during the push\nfirst");
    let again = repository.snapshot(&[]).await.unwrap();
    let ours = edited(&again, "a.yaml", "a: 2\n");
    assert_eq!(push(&repository.transport(), MAIN, update(&again, &ours)).await.unwrap(), Pushed::Done);
    assert_eq!(git(&repository.bare, &["show", "main:b.yaml"]), "b: 1");
    git(&repository.bare, &["fsck", "--strict"]);
}

#[tokio::test]
async fn a_push_whose_answer_was_lost_is_recognized_by_the_next_push() {
    let repository = Repository::with(&[("a.yaml", "a: 1\n")], true);
    let base = repository.snapshot(&[]).await.unwrap();
    let ours = edited(&base, "a.yaml", "a: 2\n");
    let transport = Disturbed { inner: repository.transport(), before_post: Mutex::new(None::<fn()>), is_lost: true };
    let lost = push(&transport, MAIN, update(&base, &ours)).await;
    assert!(matches!(lost, Err(GitError::Transport(_))), "{lost:?}");
    assert_eq!(push(&repository.transport(), MAIN, update(&base, &ours)).await.unwrap(), Pushed::Done);
    assert_eq!(git(&repository.bare, &["rev-list", "--count", "main"]), "2");
}

#[tokio::test]
async fn branches_are_created_and_deleted() {
    let repository = Repository::with(&[("a.yaml", "a: 1\n")], true);
    let (transport, branch) = (repository.transport(), "refs/heads/relaybook/prod/6.5.1-0123");
    let base = repository.snapshot(&[]).await.unwrap();
    let ours = edited(&base, "a.yaml", "a: 2\n");
    let create = Push::Create { new: ours.id, pack: ours.pack.clone() };
    for _ in 0..2 {
        assert_eq!(push(&transport, branch, create.clone()).await.unwrap(), Pushed::Done);
    }
    let remote = Remote::connect(&transport).await.unwrap();
    let refs = remote.refs(&[MAIN, branch, "refs/heads/mai", "refs/heads/no"]).await.unwrap();
    assert_eq!(refs.ids, BTreeMap::from([(MAIN.to_owned(), base.commit.id), (branch.to_owned(), ours.id)]));
    let below = push(&transport, "refs/heads/main/below", create).await.unwrap();
    assert!(matches!(&below, Pushed::Refused { words } if words.contains("main")), "{below:?}");
    for _ in 0..2 {
        assert_eq!(push(&transport, branch, Push::Delete { old: ours.id }).await.unwrap(), Pushed::Done);
    }
    assert_eq!(git(&repository.bare, &["branch", "--format=%(refname)"]), MAIN);
    for name in ["main", "refs/heads/", "refs/heads/a..b", "refs/heads/a b", "refs/heads/a\nb", "refs/heads/x.lock"] {
        let refused = push(&transport, name, Push::Delete { old: ours.id }).await;
        assert!(matches!(refused, Err(GitError::NotARef(_))), "{name}: {refused:?}");
    }
}

#[tokio::test]
async fn a_refusal_has_the_words_of_the_server() {
    let repository = Repository::with(&[("a.yaml", "a: 1\n")], true);
    let base = repository.snapshot(&[]).await.unwrap();
    let ours = edited(&base, "a.yaml", "a: 2\n");
    for (hook, script, expected) in [
        (
            "pre-receive",
            "printf '\\033[31mGitLab: protected\\033[0m\\nbranch\\007\\n' >&2; exit 1",
            "pre-receive hook declined: GitLab: protected branch",
        ),
        ("update", "echo no >&2; exit 1", "hook declined: no error: hook declined to update refs/heads/main"),
    ] {
        repository.hook(hook, script);
        let refused = push(&repository.transport(), MAIN, update(&base, &ours)).await.unwrap();
        assert_eq!(refused, Pushed::Refused { words: expected.to_owned() });
        std::fs::remove_file(repository.bare.join("hooks").join(hook)).unwrap();
    }
    git(&repository.bare, &["config", "receive.maxInputSize", "10"]);
    let full = push(&repository.transport(), MAIN, update(&base, &ours)).await;
    assert!(matches!(&full, Ok(Pushed::Refused { words }) if words.contains("unpack")), "{full:?}");
    git(&repository.bare, &["config", "--unset", "receive.maxInputSize"]);
    let broken = Push::Update { old: base.commit.id, new: ours.id, pack: Bytes::from_static(b"PACK") };
    let broken = push(&repository.transport(), MAIN, broken).await;
    assert!(matches!(broken, Ok(Pushed::Refused { .. })), "{broken:?}");
    git(&repository.bare, &["config", "receive.denyDeletes", "true"]);
    let kept = push(&repository.transport(), MAIN, Push::Delete { old: base.commit.id }).await.unwrap();
    assert!(matches!(&kept, Pushed::Refused { .. }), "{kept:?}");
    assert_eq!(repository.main().await, base.commit.id);
}

#[tokio::test]
async fn an_unsupported_server_or_repository_has_a_clear_error() {
    let old = Repository::empty(Behaviour { only_v0: true, ..Behaviour::default() }, true);
    old.commit(&[("a.yaml", "a: 1\n")], "first");
    let error = old.snapshot(&[]).await.unwrap_err().to_string();
    assert_eq!(error, "the server does not support version 2 of the Git protocol");
    git(&old.backend.root, &["init", "-q", "--bare", "--object-format=sha256", "new.git"]);
    let new = Backend::start(Behaviour::default());
    git(&new.root, &["init", "-q", "--bare", "--object-format=sha256", "new.git"]);
    let transport = new.transport("new.git");
    let error = Remote::connect(&transport).await.unwrap_err().to_string();
    assert_eq!(error, "repositories with SHA-256 ids are not supported");
    let delete = Push::Delete { old: "0123456789012345678901234567890123456789".parse().unwrap() };
    let error = push(&transport, MAIN, delete).await.unwrap_err().to_string();
    assert_eq!(error, "repositories with SHA-256 ids are not supported");
    let missing = new.transport("missing.git");
    assert!(matches!(Remote::connect(&missing).await, Err(GitError::RepositoryNotFound)));
}

#[tokio::test]
async fn rejected_credentials_have_their_own_error() {
    let behaviour = Behaviour { authorization: Some("Basic eDp5"), ..Behaviour::default() };
    let repository = Repository::empty(behaviour, true);
    repository.commit(&[("a.yaml", "a: 1\n")], "first");
    let mut transport = repository.transport();
    let error = Remote::connect(&transport).await.unwrap_err();
    assert_eq!(error.to_string(), "the server rejects the credentials (status 401): who are you?");
    transport.authorization = Some("Basic eDp5");
    assert!(Remote::connect(&transport).await.unwrap().refs(&[MAIN]).await.unwrap().id(MAIN).is_ok());
    git(&repository.bare, &["config", "http.receivepack", "false"]);
    let delete = Push::Delete { old: "0123456789012345678901234567890123456789".parse().unwrap() };
    let error = push(&transport, MAIN, delete).await.unwrap_err();
    assert!(matches!(error, GitError::CredentialsRejected { status: 403, .. }), "{error:?}");
}

#[tokio::test]
async fn an_empty_repository_is_unborn() {
    let repository = Repository::empty(Behaviour::default(), true);
    let transport = repository.transport();
    let refs = Remote::connect(&transport).await.unwrap().refs(&[MAIN]).await.unwrap();
    assert!(refs.is_unborn && refs.ids.is_empty());
    assert!(matches!(refs.id(MAIN), Err(GitError::BranchNotFound(name)) if name == MAIN));
    repository.commit(&[("a.txt", "1")], "first");
    let refs = Remote::connect(&transport).await.unwrap().refs(&["refs/heads/no"]).await.unwrap();
    assert!(!refs.is_unborn && refs.ids.is_empty());
    assert!(repository.snapshot(&[]).await.unwrap().files.is_empty());
    let remote = Remote::connect(&transport).await.unwrap();
    let id = "0123456789012345678901234567890123456789".parse().unwrap();
    let error = remote.snapshot(id, &Paths::default()).await.unwrap_err();
    assert!(matches!(&error, GitError::Server(words) if words.contains("not our ref")), "{error:?}");
}

#[tokio::test]
async fn large_repositories_are_read_up_to_the_bounds() {
    for has_filter in [true, false] {
        let repository = Repository::empty(Behaviour::default(), has_filter);
        let names: Vec<String> =
            (0..3_000).map(|at| format!("apps/{}/{at}.{}", at % 20, if at < 1_900 { "yaml" } else { "txt" })).collect();
        let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
        repository.commit(&files, "many");
        let base = repository.snapshot(&[]).await.unwrap();
        assert_eq!(base.files.len(), 1_900);
        let ours = edited(&base, "apps/7/1007.yaml", "changed");
        assert_eq!(push(&repository.transport(), MAIN, update(&base, &ours)).await.unwrap(), Pushed::Done);
        git(&repository.bare, &["fsck", "--strict"]);
        let more: Vec<String> = (0..200).map(|at| format!("more/{at}.yml")).collect();
        let more: Vec<(&str, &str)> = more.iter().map(|name| (name.as_str(), "x")).collect();
        git(&repository.work, &["pull", "-q", "origin", "main"]);
        repository.commit(&more, "more");
        assert!(matches!(repository.snapshot(&[]).await, Err(GitError::TooLarge(Bound::Files))));
        assert_eq!(repository.snapshot(&["more"]).await.unwrap().files.len(), 200);
    }
}

#[tokio::test]
async fn files_that_are_too_large_are_left_out() {
    for has_filter in [true, false] {
        let (fits, above) = ("#".repeat(MAX_FILE), "#".repeat(MAX_FILE + 1));
        // Random digits do not become a delta or a small stream.
        let huge = (0..6 * MAX_FILE / 8).fold(String::new(), |text, _| text + &format!("{:08x}", number()));
        let files =
            [("a.yaml", fits.as_str()), ("b.yaml", &above), ("c.yaml", &huge), ("d.bin", &huge[1..]), ("e.yaml", "e: 1")];
        let repository = Repository::with(&files, has_filter);
        let base = repository.snapshot(&[]).await.unwrap();
        assert_eq!(base.files.keys().collect::<Vec<_>>(), ["a.yaml", "e.yaml"]);
        let left_out: Vec<_> = base.left_out.iter().map(|it| (it.path.as_str(), it.why)).collect();
        assert_eq!(left_out, [("b.yaml", WhyLeftOut::TooLarge), ("c.yaml", WhyLeftOut::TooLarge)]);
    }
}

/// Returns a number of a simple sequence.
fn number() -> u32 {
    static STATE: Mutex<u64> = Mutex::new(42);
    let mut state = STATE.lock();
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    u32::try_from(*state >> 33).unwrap()
}

#[tokio::test]
async fn the_history_is_found_by_id_and_trailer() {
    for has_filter in [true, false] {
        let repository = Repository::with(&[("a.yaml", "0"), ("large.bin", &"x".repeat(5 * MAX_FILE))], has_filter);
        let mut ids = Vec::new();
        for at in 1..6 {
            let message = format!("commit {at}\n\nbody\n\nRelaybook-Promotion: team-a/p-{at} uid");
            ids.push(repository.commit(&[("a.yaml", &at.to_string())], &message));
        }
        git(&repository.work, &["checkout", "-q", "-b", "side", "HEAD~2"]);
        git(&repository.work, &["commit", "-q", "--allow-empty", "-m", "side"]);
        git(&repository.work, &["checkout", "-q", "main"]);
        git(&repository.work, &["merge", "-q", "--no-ff", "-m", "merged", "side"]);
        let tip = repository.commit(&[], "tip");
        let transport = repository.transport();
        let remote = Remote::connect(&transport).await.unwrap();
        let all = remote.history(tip, 50).await.unwrap();
        assert_eq!((all.len(), all[0].id, all[1].parents.len()), (9, tip, 2), "filter: {has_filter}");
        assert!(ids.iter().all(|id| all.iter().any(|it| it.id == *id)));
        let of = |value: &str| all.iter().find(|it| it.has_trailer("Relaybook-Promotion", value)).map(|it| it.id);
        assert_eq!((of("team-a/p-3 uid"), of("team-a/p-9 uid")), (Some(ids[2]), None));
        assert_eq!(remote.history(tip, 3).await.unwrap().len(), 3);
        assert_eq!(remote.history(tip, 0).await.unwrap().len(), 1);
    }
}
