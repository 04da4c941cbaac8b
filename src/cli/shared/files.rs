//! Reads the files that the command line names.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Maximum size of a file, in bytes.
const MOST: u64 = 16 * 1024 * 1024;

/// Reads a file. `-` is stdin.
pub(in crate::cli) fn read(file: &Path) -> anyhow::Result<String> {
    let what = || format!("{} cannot be read", file.display());
    let all = if file.as_os_str() == "-" { bounded(std::io::stdin()) } else { std::fs::File::open(file).and_then(bounded) };
    all.with_context(what)
}

/// Reads everything. A part of a file could be valid, so a file that is too large is an error.
fn bounded(source: impl Read) -> std::io::Result<String> {
    let mut text = String::new();
    source.take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST {
        return Err(std::io::Error::other("the input is larger than 16 MiB; split it"));
    }
    Ok(text)
}

/// The content of a folder.
#[derive(Debug, Default)]
pub(in crate::cli) struct FolderContent {
    /// Files with the extension of a manifest, sorted by path.
    pub(in crate::cli) manifests: Vec<PathBuf>,
    /// Folders with templates of Helm charts. Their files are not manifests.
    pub(in crate::cli) templates: Vec<PathBuf>,
}

/// Lists the content of a folder, without hidden files and folders. Each folder is read once, even if several links point to it.
pub(in crate::cli) fn list_folder(folder: &Path) -> anyhow::Result<FolderContent> {
    let (mut found, mut seen, mut left) = (FolderContent::default(), HashSet::new(), vec![folder.to_owned()]);
    while let Some(folder) = left.pop() {
        let what = || format!("{} cannot be read", folder.display());
        if !seen.insert(folder.canonicalize().with_context(what)?) {
            continue;
        }
        let is_chart = folder.join("Chart.yaml").is_file();
        let entries = std::fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).with_context(what)?;
        for path in entries.iter().filter(|entry| !is_hidden(&entry.file_name())).map(std::fs::DirEntry::path) {
            // A broken link is neither a folder nor a file. It is skipped.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_that_is_too_large_is_an_error() {
        assert_eq!(bounded(std::io::repeat(b'a').take(MOST)).unwrap().len() as u64, MOST);
        let error = bounded(std::io::repeat(b'a')).unwrap_err().to_string();
        assert!(error.contains("larger than 16 MiB"), "{error}");
    }
}
