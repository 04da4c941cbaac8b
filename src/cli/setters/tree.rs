//! Finds and replaces the YAML files below a path, as a Git repository contains them.
//!
//! In: paths. Out: the text of each regular `*.yaml` and `*.yml` file. Symlinks, other repositories and the folders of Git and of forges are
//! not followed, because an edit there would have another effect than an edit of the file. A path that is named is always followed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use relaybook_settings::setters::MAX_FILE;
use relaybook_text::escaped;

/// A file and its content.
#[derive(Debug)]
pub(super) struct YamlFile {
    path: PathBuf,
    /// The path for messages, without control characters.
    pub(super) name: String,
    pub(super) text: String,
}

/// The files below the named paths.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// The files, sorted by path within each named path.
    pub(super) files: Vec<YamlFile>,
    /// What was not read, and why.
    pub(super) notes: Vec<String>,
}

/// Reads all files below these paths. A named file must be readable. Files and folders that cannot be used are noted if they were only found.
pub(super) fn read(paths: &[PathBuf]) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    for path in paths {
        let what = || format!("{} cannot be read", path.display());
        let metadata = fs::metadata(path).with_context(what)?;
        if metadata.is_dir() {
            for file in tree.list(path)? {
                match text(&file).with_context(|| format!("{} cannot be read", file.display()))? {
                    Ok(text) => tree.files.push(YamlFile::new(file, text)),
                    Err(why) => tree.notes.push(format!("{}: {why}: skipped", file.display())),
                }
            }
            continue;
        }
        anyhow::ensure!(metadata.is_file() && is_yaml(path), "{} is not a *.yaml or *.yml file", path.display());
        match text(path).with_context(what)? {
            Ok(text) => tree.files.push(YamlFile::new(path.clone(), text)),
            Err(why) => anyhow::bail!("{}: {why}", path.display()),
        }
    }
    Ok(tree)
}

impl YamlFile {
    fn new(path: PathBuf, text: String) -> Self {
        Self { name: escaped(&path.display().to_string()), path, text }
    }
}

impl Tree {
    /// Lists the regular YAML files below a folder, sorted by path.
    fn list(&mut self, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let (mut files, mut left) = (Vec::new(), vec![folder.to_owned()]);
        while let Some(folder) = left.pop() {
            let what = || format!("{} cannot be read", folder.display());
            for entry in fs::read_dir(&folder).with_context(what)? {
                let entry = entry.with_context(what)?;
                // The type of a symlink is that of the link.
                let (kind, path) = (entry.file_type().with_context(what)?, entry.path());
                if kind.is_file() && is_yaml(&path) {
                    files.push(path);
                } else if kind.is_dir() && !is_left_out(&entry.file_name()) {
                    if fs::symlink_metadata(path.join(".git")).is_ok() {
                        self.notes.push(format!("{}: another repository: skipped", path.display()));
                    } else {
                        left.push(path);
                    }
                }
            }
        }
        files.sort();
        Ok(files)
    }
}

fn is_yaml(file: &Path) -> bool {
    file.extension().and_then(OsStr::to_str).is_some_and(|extension| ["yaml", "yml"].contains(&extension))
}

/// Whether a folder belongs to Git or a forge: an edit there would change workflows, not manifests.
fn is_left_out(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_lowercase();
    name.starts_with(".git") || name == ".forgejo"
}

/// Reads a file. The inner error says why its content cannot be used.
fn text(file: &Path) -> io::Result<Result<String, &'static str>> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Ok(Err("larger than 1 MiB"));
    }
    Ok(String::from_utf8(bytes).map_err(|_| "not UTF-8"))
}

/// Replaces the content of a file at once: readers see the old content or the new one. The permissions stay.
pub(super) fn replace(file: &YamlFile, text: &str) -> anyhow::Result<()> {
    let what = || format!("{} cannot be written", file.name);
    // A named path can be a symlink. Its target is replaced, not the link.
    let path = file.path.canonicalize().with_context(what)?;
    let is_same = fs::read(&path).with_context(what)? == file.text.as_bytes();
    anyhow::ensure!(is_same, "{} has changed since it was read; run the command again", file.name);
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let new = OpenOptions::new().write(true).create_new(true).open(&temporary).with_context(what)?;
    let written = write(new, text, &path).and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        // The error of the write is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written.with_context(what)
}

fn write(mut new: fs::File, text: &str, like: &Path) -> io::Result<()> {
    new.write_all(text.as_bytes())?;
    new.set_permissions(fs::metadata(like)?.permissions())?;
    new.sync_all()
}
