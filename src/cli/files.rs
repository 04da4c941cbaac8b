//! Files that are named on the command line.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// So much of a file is read, in bytes.
const MOST: u64 = 16 * 1024 * 1024;

/// What stands in a file; `-` is stdin.
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

/// The manifests beneath a folder, by their extensions, in the order of their paths. Hidden files and folders are left out. Each
/// folder is read once, whatever links lead to it.
pub(super) fn beneath(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let (mut found, mut seen, mut left) = (Vec::new(), HashSet::new(), vec![folder.to_owned()]);
    while let Some(folder) = left.pop() {
        let what = || format!("{} cannot be read", folder.display());
        if !seen.insert(folder.canonicalize().with_context(what)?) {
            continue;
        }
        let entries = std::fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).with_context(what)?;
        for path in entries.iter().filter(|entry| !is_hidden(&entry.file_name())).map(std::fs::DirEntry::path) {
            // A link that leads nowhere is neither.
            if path.is_dir() {
                left.push(path);
            } else if path.is_file() && is_manifest(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

fn is_manifest(file: &Path) -> bool {
    file.extension().and_then(OsStr::to_str).is_some_and(|extension| ["yaml", "yml", "json"].contains(&extension))
}
