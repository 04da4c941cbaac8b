//! Tests that the manifests of the documentation have no problem: those of promotions, and the files below `examples`.

use std::path::{Path, PathBuf};

use super::*;

fn files(folder: &str, ends: &str) -> Vec<PathBuf> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.to_string_lossy().ends_with(ends));
    files.sort();
    files
}

/// Returns the YAML blocks of a page that contain objects of Relaybook.
fn blocks(page: &str) -> Vec<String> {
    let blocks =
        page.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("```").map(|(block, _)| block.to_owned()));
    blocks.filter(|block| block.contains("apiVersion: relaybook.dev/")).collect()
}

#[test]
fn the_manifests_of_the_pages_about_promotions_have_no_problem() {
    let mut pages = files("docs", ".md");
    pages.retain(|page| page.file_name().unwrap().to_string_lossy().starts_with("promotions"));
    pages.extend(files("docs/promotions", ".md"));
    let mut checked = 0;
    for page in pages {
        for block in blocks(&std::fs::read_to_string(&page).unwrap()) {
            let report = report(&block);
            let found: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
            assert!(found.is_empty() && report.objects > 0, "{}: {found:?}\n{block}", page.display());
            checked += 1;
        }
    }
    assert!(checked > 7, "{checked}");
}

#[test]
fn the_examples_have_no_problem() {
    let options = Options { allow_http: true, ..options() };
    for file in files("examples", ".yaml") {
        let text = std::fs::read_to_string(&file).unwrap();
        let found = lint(&[File::named(&file.to_string_lossy(), text)], &options).unwrap().findings;
        assert!(found.is_empty(), "{found:?}");
    }
}
