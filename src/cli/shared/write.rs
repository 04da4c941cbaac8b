//! Writes all files, or none.
//!
//! In: manifests, and a folder. Out: files with their whole content. A file that exists is replaced only on request. What is not a regular file
//! is never replaced. Each file is first written under another name, so a failure leaves nothing behind.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::cli::shared::exit::{Code, Ended};
use relaybook_text::escaped;
use relaybook_tools::init::Manifest;

/// Files that must not stay if something fails.
struct Unfinished(Vec<PathBuf>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// Writes the manifests into a folder, and returns the paths of the files. Without `force`, no file may exist. `flags`: those that choose other
/// files.
pub(crate) fn write(dir: &Path, manifests: &[Manifest], force: bool, flags: &str) -> anyhow::Result<Vec<String>> {
    let paths: Vec<PathBuf> = manifests.iter().map(|manifest| dir.join(&manifest.file)).collect();
    // A link to nothing exists, too.
    let exists = |path: &&PathBuf| path.symlink_metadata().is_ok();
    let existing: Vec<String> = paths.iter().filter(exists).map(|path| escaped(&path.display().to_string())).collect();
    if !existing.is_empty() && !force {
        let verb = if existing.len() == 1 { "exists" } else { "exist" };
        let text = format!("{} {verb}. Nothing was written. Use another {flags}, or --force", existing.join(" and "));
        return Err(Ended::new(Code::No, text).into());
    }
    let is_other = |path: &&PathBuf| path.symlink_metadata().is_ok_and(|found| !found.is_file());
    if let Some(other) = paths.iter().find(is_other) {
        let path = escaped(&other.display().to_string());
        let text = format!("{path} is not a regular file. Nothing was written. Use another {flags}");
        return Err(Ended::new(Code::No, text).into());
    }
    let has_created = !dir.exists();
    let written = create(dir, manifests, &paths, force);
    if written.is_err() && has_created {
        // It is empty again.
        let _ = fs::remove_dir(dir);
    }
    written?;
    Ok(paths.iter().map(|path| path.display().to_string()).collect())
}

fn create(dir: &Path, manifests: &[Manifest], paths: &[PathBuf], force: bool) -> anyhow::Result<()> {
    let failed = |path: &Path| format!("{} cannot be written; nothing was written", path.display());
    fs::create_dir_all(dir).with_context(|| failed(dir))?;
    let (mut temporaries, mut made) = (Unfinished(Vec::new()), Unfinished(Vec::new()));
    for (manifest, path) in manifests.iter().zip(paths) {
        let temporary = dir.join(format!(".{}.{}.tmp", manifest.file, std::process::id()));
        let filled = fill(&temporary, &manifest.text);
        temporaries.0.push(temporary);
        filled.with_context(|| failed(path))?;
    }
    for (temporary, path) in temporaries.0.iter().zip(paths) {
        let is_new = path.symlink_metadata().is_err();
        // A rename would replace a file that somebody has created meanwhile.
        let done = if force { fs::rename(temporary, path) } else { fs::hard_link(temporary, path) };
        done.with_context(|| failed(path))?;
        if is_new {
            made.0.push(path.clone());
        }
    }
    made.0.clear();
    Ok(())
}

fn fill(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: &str = "--dir or --name";

    /// An empty folder for one test.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("relaybook-write-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn manifest(file: &str) -> Manifest {
        Manifest { file: file.to_owned(), about: String::new(), text: format!("name: {file}\n") }
    }

    fn names(folder: &Path) -> Vec<String> {
        let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut all: Vec<_> = all.collect();
        all.sort();
        all
    }

    #[test]
    fn all_files_are_written_and_none_is_replaced_without_force() {
        let root = folder("all");
        let dir = root.join("new/deploy");
        let paths = write(&dir, &[manifest("a.yaml"), manifest("b.yaml")], false, FLAGS).unwrap();
        assert_eq!(paths, ["a.yaml", "b.yaml"].map(|name| dir.join(name).display().to_string()));
        assert_eq!(names(&dir), ["a.yaml", "b.yaml"]);
        assert_eq!(fs::read_to_string(&paths[1]).unwrap(), "name: b.yaml\n");
        fs::write(&paths[1], "edited").unwrap();
        let error = write(&dir, &[manifest("c.yaml"), manifest("b.yaml")], false, FLAGS).unwrap_err().to_string();
        assert_eq!(error, format!("{} exists. Nothing was written. Use another --dir or --name, or --force", paths[1]));
        assert_eq!((names(&dir).len(), fs::read_to_string(&paths[1]).unwrap().as_str()), (2, "edited"));
        write(&dir, &[manifest("c.yaml"), manifest("b.yaml")], true, FLAGS).unwrap();
        assert_eq!((names(&dir).len(), fs::read_to_string(&paths[1]).unwrap().as_str()), (3, "name: b.yaml\n"));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_file_that_somebody_creates_meanwhile_stays() {
        let root = folder("meanwhile");
        let paths = ["a.yaml", "b.yaml"].map(|name| root.join(name));
        fs::write(&paths[1], "theirs").unwrap();
        // The check of what exists was before.
        let error = create(&root, &[manifest("a.yaml"), manifest("b.yaml")], &paths, false).unwrap_err().to_string();
        assert_eq!(error, format!("{} cannot be written; nothing was written", paths[1].display()));
        assert_eq!((names(&root), fs::read_to_string(&paths[1]).unwrap().as_str()), (vec!["b.yaml".to_owned()], "theirs"));
        // A link could lead anywhere.
        std::os::unix::fs::symlink(root.join("nothing"), &paths[0]).unwrap();
        let error = write(&root, &[manifest("a.yaml")], true, FLAGS).unwrap_err().to_string();
        assert!(error.contains("a.yaml is not a regular file"), "{error}");
        assert_eq!(names(&root), ["a.yaml", "b.yaml"]);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_failure_leaves_no_file() {
        let root = folder("failure");
        // A folder cannot be replaced by a file.
        fs::create_dir_all(root.join("b.yaml/x")).unwrap();
        let error = write(&root, &[manifest("a.yaml"), manifest("b.yaml")], true, FLAGS).unwrap_err().to_string();
        assert!(error.contains("b.yaml is not a regular file. Nothing was written."), "{error}");
        assert_eq!(names(&root), ["b.yaml"]);
        // A file is not a folder.
        fs::write(root.join("file"), "").unwrap();
        write(&root.join("file"), &[manifest("a.yaml")], true, FLAGS).unwrap_err();
        assert_eq!(names(&root), ["b.yaml", "file"]);
        fs::remove_dir_all(root).unwrap();
    }
}
