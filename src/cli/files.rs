//! Reads the files that the command line names.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Maximum number of bytes that are read from a file.
const MOST: u64 = 16 * 1024 * 1024;

/// The content of a file; `-` is stdin.
pub(super) fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let what = || format!("{} cannot be read", file.display());
    if file.as_os_str() == "-" {
        std::io::stdin().take(MOST).read_to_string(&mut text).with_context(what)?;
    } else {
        std::fs::File::open(file).and_then(|f| f.take(MOST).read_to_string(&mut text)).with_context(what)?;
    }
    Ok(text)
}

/// The content of a folder.
#[derive(Debug, Default)]
pub(super) struct Beneath {
    /// Files with the extension of a manifest, sorted by path.
    pub(super) manifests: Vec<PathBuf>,
    /// Folders with templates of Helm charts. Their files are not manifests.
    pub(super) templates: Vec<PathBuf>,
}

/// The content of a folder, without hidden files and folders. Each folder is read once, even if several links point to it.
pub(super) fn beneath(folder: &Path) -> anyhow::Result<Beneath> {
    let (mut found, mut seen, mut left) = (Beneath::default(), HashSet::new(), vec![folder.to_owned()]);
    while let Some(folder) = left.pop() {
        let what = || format!("{} cannot be read", folder.display());
        if !seen.insert(folder.canonicalize().with_context(what)?) {
            continue;
        }
        let is_chart = folder.join("Chart.yaml").is_file();
        let entries = std::fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).with_context(what)?;
        for path in entries.iter().filter(|entry| !is_hidden(&entry.file_name())).map(std::fs::DirEntry::path) {
            // A broken link is neither.
            if path.is_dir() {
                let is_template = is_chart && path.file_name().is_some_and(|name| name == "templates");
                if is_template { found.templates.push(path) } else { left.push(path) }
            } else if path.is_file() && is_manifest(&path) {
                found.manifests.push(path);
            }
        }
    }
    found.manifests.sort();
    found.templates.sort();
    Ok(found)
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

fn is_manifest(file: &Path) -> bool {
    file.extension().and_then(OsStr::to_str).is_some_and(|extension| ["yaml", "yml", "json"].contains(&extension))
}
