//! All bounds for what a server can send. Together they bound memory and processor time.

use std::fmt;

const MIB: usize = 1024 * 1024;

/// Maximum size of a pack, in bytes. Ordinary repositories of manifests need less than 1 MiB.
pub(super) const MAX_PACK: usize = 64 * MIB;
/// Maximum size of an answer with a pack, in bytes. Its packet lines need a few bytes more than the pack.
pub const MAX_ANSWER: usize = MAX_PACK + MIB;
/// Maximum size of the capabilities of a server, in bytes.
pub(super) const MAX_CAPABILITIES: usize = 64 * 1024;
/// Maximum size of an answer with the refs that begin with a name, in bytes.
pub(super) const MAX_REFS: usize = MIB;
/// Maximum size of the first answer of a server, in bytes. Of many servers at once, nothing else limits the sum.
pub(super) const MAX_FIRST: usize = MIB;
/// Maximum size of all refs before a push, in bytes. There the server always sends all of them.
pub(super) const MAX_ALL_REFS: usize = 16 * MIB;
/// Maximum size of the report of a push, in bytes. It includes all words of hooks.
pub(super) const MAX_REPORT: usize = MIB;
/// Maximum number of objects in a pack. The table of objects needs about 60 bytes for each.
pub(super) const MAX_OBJECTS: u32 = 150_000;
/// Maximum size of an object that is read, in bytes. Larger objects are skipped, because neither trees nor files are that large.
pub(super) const MAX_OBJECT: usize = 4 * MIB;
/// Maximum number of bytes that a pack can cause to be inflated, hashed or copied.
pub(super) const MAX_WORK: u64 = 384 * MIB as u64;
/// Maximum number of deltas between an object and its base. `git` packs have at most 50, unless they are configured otherwise.
pub(super) const MAX_DELTAS: usize = 250;
/// Maximum size of the objects that are kept while other objects are derived from them, in bytes.
pub(super) const MAX_BASES: usize = 16 * MIB;
/// Maximum number of entries in all trees that are read.
pub(super) const MAX_ENTRIES: usize = 20_000;
/// Maximum size of all trees that are read, in bytes.
pub(super) const MAX_TREES: usize = 8 * MIB;
/// Maximum number of folders in each other.
pub(super) const MAX_DEPTH: usize = 64;
/// Maximum length of the name of a file or folder, in bytes.
pub(super) const MAX_NAME: usize = 255;
/// Maximum length of the path of a file or folder, in bytes.
pub(super) const MAX_PATH: usize = 1024;
/// Maximum number of YAML files.
pub const MAX_FILES: usize = 2_000;
/// Maximum size of a YAML file, in bytes. Larger files are left out.
pub const MAX_FILE: usize = MIB;
/// Maximum size of all YAML files, in bytes.
pub(super) const MAX_ALL_FILES: usize = 16 * MIB;
/// Maximum number of paths of a snapshot.
pub const MAX_PATHS: usize = 32;
/// Maximum number of commits of a history.
pub(super) const MAX_COMMITS: usize = 500;
/// Maximum number of parents of a commit, and of its trailers that are kept.
pub(super) const MAX_PARENTS: usize = 64;
pub(super) const MAX_TRAILERS: usize = 16;

/// A bound that a repository exceeds. The text says what can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The size of a pack, or of another answer.
    Answer,
    /// The number of objects in a pack.
    Objects,
    /// The size of an object.
    Object,
    /// The number of bytes after decompression.
    Work,
    /// The number of deltas between an object and its base.
    Deltas,
    /// The number of entries in trees.
    Entries,
    /// The size of trees.
    Trees,
    /// The number of folders in each other, or the length of a path.
    Depth,
    /// The number of YAML files.
    Files,
    /// The size of all YAML files.
    AllFiles,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set_paths = "; set paths to the folders with setters";
        match self {
            Self::Answer => write!(f, "an answer exceeds its bound; a pack has at most {} MiB", MAX_PACK / MIB),
            Self::Objects => write!(f, "more than {MAX_OBJECTS} objects"),
            Self::Object => write!(f, "an object that is needed has more than {} MiB", MAX_OBJECT / MIB),
            Self::Work => write!(f, "more than {} MiB after decompression", MAX_WORK / MIB as u64),
            Self::Deltas => write!(f, "more than {MAX_DELTAS} deltas for one object; run git repack on the server"),
            Self::Entries => write!(f, "more than {MAX_ENTRIES} files and folders{set_paths}"),
            Self::Trees => write!(f, "the names of files and folders have more than {} MiB{set_paths}", MAX_TREES / MIB),
            Self::Depth => {
                write!(f, "more than {MAX_DEPTH} folders in each other, or {MAX_PATH} bytes in a path{set_paths}")
            }
            Self::Files => write!(f, "more than {MAX_FILES} YAML files{set_paths}"),
            Self::AllFiles => write!(f, "more than {} MiB of YAML files{set_paths}", MAX_ALL_FILES / MIB),
        }
    }
}
