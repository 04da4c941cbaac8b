//! Tests `relaybook status --watch` while many pipelines change: each output is whole, the last one shows the last state, and the memory is
//! bounded.
//!
//! No controller runs. The test writes the status of the pipelines itself, so it knows each state.

use std::time::Instant;

use futures::future::join_all;
use kube::api::{Patch, PatchParams};
use relaybook_api::Pipeline;
use serde_json::{Value, json};

use crate::support::World;
use crate::support::running::Running;
use crate::support::wait::heavy;

/// Number of pipelines. Each has the environments `prod` and `fence`, so all rows are on the screen.
const PIPELINES: usize = 20;
/// Number of changes of each pipeline.
const CHANGES: usize = 20;
/// What erases a terminal before each screen.
const ERASE: &str = "\x1b[H\x1b[2J";
/// The header of the table.
const COLUMNS: [&str; 7] = ["PIPELINE", "ENVIRONMENT", "READY", "STATE", "REVISION", "SINCE", "LAST SENT"];
/// Maximum memory of the command, in KiB.
const MEMORY: u64 = 200 * 1024;
/// Maximum growth of its memory from the first output to the last one, in KiB.
const MORE: u64 = 50 * 1024;

/// Returns the revision that `prod` runs after this number of changes.
fn revision(changes: usize) -> String {
    format!("6.7.{changes}")
}

/// Writes the status of all pipelines, as the controller would.
async fn change(world: &World, names: &[String], revision: &str) {
    let app = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "namespace": world.ns});
    let target = json!({"clusterAppRef": app, "status": "Current", "ready": true, "revision": revision,
        "attemptedRevision": revision});
    let patch = Patch::Merge(json!({"status": {"environments": [{"name": "prod", "targets": [target]}]}}));
    let (api, params) = (world.api::<Pipeline>(), PatchParams::default());
    for patched in join_all(names.iter().map(|name| api.patch_status(name, &params, &patch))).await {
        patched.expect("status patched");
    }
}

/// Returns the cells of a line. Columns have three spaces between them.
fn cells(line: &str) -> Vec<&str> {
    line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// Returns the rows of the table of a screen.
fn rows(screen: &str) -> Vec<Vec<&str>> {
    screen.lines().map(cells).skip_while(|line| *line != COLUMNS).skip(1).collect()
}

/// Whether the last screen is complete, and shows this revision everywhere.
fn is_on_screen(text: &str, revision: &str) -> bool {
    let (_, screen) = text.rsplit_once(ERASE).unwrap_or_default();
    let rows = rows(screen);
    let is = |row: &Vec<&str>| row.get(1) == Some(&"prod") && row.get(4) == Some(&revision);
    screen.ends_with('\n') && rows.len() == 2 * PIPELINES && rows.iter().filter(|row| is(row)).count() == PIPELINES
}

/// Whether the last line is complete, and shows this revision everywhere.
fn is_in_line(text: &str, revision: &str) -> bool {
    text.ends_with('\n') && text.lines().last().is_some_and(|line| object(line).iter().all(|shown| shown == revision))
}

/// Returns the revisions of `prod` in a line, which must be one whole object.
fn object(line: &str) -> Vec<String> {
    let object: Value = serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    let rows = object["environments"].as_array().expect("environments");
    assert_eq!((&object["pipelines"], rows.len()), (&json!(PIPELINES), 2 * PIPELINES), "{line}");
    let prod = rows.iter().filter(|row| row["environment"] == "prod");
    let revisions: Vec<_> = prod.map(|row| row["revision"].as_str().expect("a revision").to_owned()).collect();
    assert_eq!(revisions.len(), PIPELINES, "{line}");
    revisions
}

/// Checks that a screen has all lines, and each row all its cells.
fn check(screen: &str, names: &[String], known: &[String]) {
    assert!(screen.starts_with("20 pipelines, 0 notifications in status-burst. "), "{screen}");
    let rows = rows(screen);
    assert_eq!(rows.len(), 2 * PIPELINES, "{screen}");
    for (rows, name) in rows.chunks(2).zip(names) {
        let prod = &rows[0];
        let revision = prod.get(4).copied().unwrap_or_default();
        assert!(known.iter().any(|one| one == revision), "{prod:?} in {screen}");
        assert_eq!(*prod, [name.as_str(), "prod", "1/1", "Current", revision, "-", "never"], "{screen}");
        assert_eq!(rows[1], [name.as_str(), "fence", "0/0", "not observed", "-", "-", "never"], "{screen}");
    }
}

#[tokio::test]
async fn each_output_is_whole_while_many_pipelines_change() {
    let _alone = heavy().await;
    let world = World::new("status-burst").await;
    let names: Vec<String> = (0..PIPELINES).map(|number| format!("shop-{number:02}")).collect();
    join_all(names.iter().map(|name| world.pipeline(name, &["prod/web"]))).await;
    let known: Vec<String> = (0..=CHANGES).map(revision).collect();
    change(&world, &names, &known[0]).await;
    let began = Instant::now();
    let args = ["status", "-n", "status-burst", "--watch", "--controller-namespace", "status-burst"];
    let mut terminal = Running::on_terminal(&world.kubeconfig, &args);
    let mut pipe = Running::piped(&world.kubeconfig, &args);
    terminal.prints("the first screen", |text| is_on_screen(text, &known[0]));
    pipe.prints("the first object", |text| is_in_line(text, &known[0]));
    let before = [terminal.peak_memory(), pipe.peak_memory()];

    for revision in &known[1..] {
        change(&world, &names, revision).await;
    }
    let screens = terminal.prints("the last screen", |text| is_on_screen(text, &known[CHANGES]));
    let lines = pipe.prints("the last object", |text| is_in_line(text, &known[CHANGES]));
    let after = [terminal.peak_memory(), pipe.peak_memory()];
    // There is at most one output in a second, so a slow machine has fewer of them.
    let most = began.elapsed().as_secs() + 2;

    let mut screens = screens.split(ERASE);
    assert_eq!(screens.next(), Some(""), "nothing is before the first screen");
    let screens: Vec<_> = screens.collect();
    for screen in &screens {
        check(screen, &names, &known);
    }
    let objects: Vec<_> = lines.lines().map(object).collect();
    assert!(objects.iter().flatten().all(|revision| known.contains(revision)), "{objects:?}");
    for count in [screens.len(), objects.len()] {
        assert!(u64::try_from(count).unwrap() <= most, "{count} outputs, at most {most} expected");
    }
    for (before, after) in before.into_iter().zip(after) {
        assert!(after < MEMORY && after < before + MORE, "{before} KiB before, {after} KiB at most since");
    }
}
