//! Pure: which files and folders of a repository are read.

use super::limits::{MAX_PATH, MAX_PATHS};

/// Files and folders in a repository. Without any, everything is read except folders that begin with a dot.
///
/// A folder includes the folders in it, except the folders of Git and of forges: `.git…` and thus `.github`, `.gitea`, `.forgejo`. They are
/// read only if a path names them, or a part of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths(Vec<String>);

/// Why a path cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAPath {
    /// There are too many paths.
    #[error("there are more than {MAX_PATHS} paths")]
    TooMany,
    /// The path is empty, too long, or has a part that is no name.
    #[error("{0:?} is not a path in a repository: write the names of folders with / between them")]
    Malformed(String),
}

impl Paths {
    /// Checks paths. A path can end with a slash.
    pub fn new<P: AsRef<str>>(paths: &[P]) -> Result<Self, NotAPath> {
        if paths.len() > MAX_PATHS {
            return Err(NotAPath::TooMany);
        }
        let checked = paths.iter().map(|path| {
            let path = path.as_ref();
            let trimmed = path.strip_suffix('/').unwrap_or(path);
            let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains(char::is_control);
            let is_path = trimmed.len() <= MAX_PATH && trimmed.split('/').all(is_name);
            if is_path { Ok(trimmed.to_owned()) } else { Err(NotAPath::Malformed(super::words::clean(path.as_bytes()))) }
        });
        checked.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the paths.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Whether a folder can contain files that are read.
    pub(super) fn enter(&self, folder: &str) -> bool {
        let is_above =
            |path: &String| path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.0.iter().any(is_above) || self.include(folder, true)
    }

    /// Whether a file is read.
    pub(super) fn read(&self, file: &str) -> bool {
        self.include(file, false)
    }

    /// Whether a path is one of the paths, or is below one of them.
    fn include(&self, path: &str, is_folder: bool) -> bool {
        let are_open = |rest: &str, is_closed: fn(&str) -> bool| {
            let folders = if is_folder { rest } else { rest.rsplit_once('/').map_or("", |(folders, _)| folders) };
            !folders.split('/').any(is_closed)
        };
        if self.0.is_empty() {
            return are_open(path, |name| name.starts_with('.'));
        }
        self.0.iter().any(|of| match path.strip_prefix(of.as_str()) {
            Some("") => true,
            Some(rest) => rest.starts_with('/') && are_open(rest, is_of_forge),
            None => false,
        })
    }
}

/// Whether a folder belongs to Git or to a forge.
fn is_of_forge(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with(".git") || name == ".forgejo"
}
