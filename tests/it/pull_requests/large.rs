//! Repositories and answers that are larger than usual, or have no end.

use relaybook_api::promotion::Phase;
use serde_json::json;

use super::commits::Git;
use super::{FILE, Stage, release};
use crate::support::forge_proxy::{Asked, Trouble};

/// Size of a file that does not compress well. The pack needs a permit for large packs.
const LARGE: usize = 9 * 1024 * 1024;
/// Selects the requests that are answered without an end.
type Matches = fn(&Asked) -> bool;
/// How much more memory a hostile server may cost, in KiB.
const MEMORY: u64 = 128 * 1024;

#[tokio::test]
async fn a_repository_with_a_large_pack_is_read() {
    let stage = Stage::new("commits-large").await;
    let (world, git) = (&stage.world, Git::start(&stage));
    // The server does not let clients leave out files, so the whole pack comes.
    let noise: String = std::iter::repeat_with(fastrand::alphanumeric).take(LARGE).collect();
    git.repository.commit("large", &[("noise.txt", &noise)]);
    stage.pipeline("web", git.policy()).await;
    let _relaybook = stage.relaybook().await;
    world.runs("web/dev", "2").await;
    let (_, status) = stage.phase("web/prod 2", Phase::Merged).await;
    assert_eq!((status.attempts, status.reason.as_str()), (1, "Pushed"));
    assert_eq!(git.repository.file(FILE), release(&world.ns, "web").replace("\"1\"", "\"2\""));
    assert_eq!(git.repository.file("noise.txt").len(), LARGE);
    stage.roll_out("web/prod 2").await;
    stage.fence("web").await;
    stage.oracle().promotions("web", &["hook"], &["prod 2: Requested/Pushing, Merged/Pushed, Finished"]).check().await;
}

#[tokio::test]
async fn answers_without_an_end_cost_little_memory_and_end_the_promotion_with_the_bound() {
    let kinds: [(&str, Matches); 3] = [
        ("capabilities", |asked| asked.query.contains("git-upload-pack")),
        ("pack", |asked| asked.path.ends_with("/git-upload-pack")),
        ("refs", Asked::is_before_push),
    ];
    let stage = Stage::new("commits-endless").await;
    let (world, git) = (&stage.world, Git::start(&stage));
    stage.pipeline("web", git.policy()).await;
    let relaybook = stage.relaybook().await;
    let before = relaybook.peak_memory();
    let mut lines = Vec::new();
    for ((what, matches), revision) in kinds.into_iter().zip(2..) {
        let rule = git.proxy.rule(matches, Trouble::Endless);
        world.runs("web/dev", &revision.to_string()).await;
        let (_, status) = stage.phase(&format!("web/prod {revision}"), Phase::Failed).await;
        assert_eq!(status.reason, "RepositoryTooLarge", "{what}");
        assert!(status.message.contains("exceeds its bound"), "{what}: {}", status.message);
        git.proxy.remove(rule);
        lines.push(format!("prod {revision}: Requested/Pushing, Failed/RepositoryTooLarge"));
    }
    let more = relaybook.peak_memory() - before;
    assert!(more < MEMORY, "{more} KiB more");
    stage.fence("web").await;
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    stage.oracle().promotions("web", &["hook"], &lines).check().await;
    assert_eq!(git.repository.subjects(), ["initial"], "{}", json!(lines));
}
