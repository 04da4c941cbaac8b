//! Files that are named on the command line.

use std::io::Read as _;
use std::path::Path;

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
