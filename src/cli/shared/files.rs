//! Reads the files that the command line names.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{Error, ErrorKind, Read, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Maximum size of a file, in bytes.
const MOST: u64 = 16 * 1024 * 1024;

/// Reads a file. `-` is stdin.
pub(crate) fn read(file: &Path) -> anyhow::Result<String> {
    let what = || format!("{} cannot be read", file.display());
    let all = if file.as_os_str() == "-" { bounded(std::io::stdin()) } else { std::fs::File::open(file).and_then(bounded) };
    all.with_context(what)
}

/// Reads everything. A part of a file could be valid, so a file that is too large is an error.
fn bounded(source: impl Read) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    source.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(Error::other("the input is larger than 16 MiB; split it"));
    }
    decoded(bytes).map_err(|problem| Error::new(ErrorKind::InvalidData, problem))
}

/// Returns the text, or what is wrong with its encoding and how to change it.
fn decoded(bytes: Vec<u8>) -> Result<String, String> {
    let with = |encoding: &str| format!("convert it to UTF-8, for example with `iconv -f {encoding} -t UTF-8`");
    // Text of ASCII characters in UTF-16 has a zero in each second byte.
    let zeros = |first: usize| bytes.len() > 8 && bytes.iter().skip(first).step_by(2).take(4).all(|byte| *byte == 0);
    let is_utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) || zeros(0) || zeros(1);
    if is_utf16 {
        return Err(format!("line 1: it is UTF-16 text; {}", with("UTF-16")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let (before, byte) = (&error.as_bytes()[..at], error.as_bytes()[at]);
        let line = before.split(|byte| *byte == b'\n').count();
        format!("line {line}: the byte 0x{byte:02X} is not UTF-8; if the file is Latin-1, {}", with("LATIN1"))
    })
}

/// A file with manifests.
#[derive(Debug)]
pub(crate) struct ManifestFile {
    /// The path, for messages.
    pub(crate) name: String,
    pub(crate) text: String,
    /// Whether it was found in a folder. Otherwise the command line names it.
    pub(crate) is_found: bool,
}

/// Reads the file itself, or the manifests in a folder and its subfolders. `command`: the one that reads rendered templates of Helm charts.
pub(crate) fn read_manifests(named: &Path, command: &str) -> anyhow::Result<Vec<ManifestFile>> {
    if !named.is_dir() {
        let name = if named.as_os_str() == "-" { "<stdin>".to_owned() } else { named.display().to_string() };
        return Ok(vec![ManifestFile { name, text: read(named)?, is_found: false }]);
    }
    let (mut files, found, mut err) = (Vec::new(), list_folder(named)?, std::io::stderr());
    for templates in &found.templates {
        let remedy = format!("pipe the output of `helm template` into `{command} -`");
        writeln!(err, "relaybook: {}: templates of a Helm chart: skipped; {remedy}", templates.display())?;
    }
    for file in &found.manifests {
        match read(file) {
            Ok(text) => files.push(ManifestFile { name: file.display().to_string(), text, is_found: true }),
            Err(error) if is_binary(&error) => writeln!(err, "relaybook: skipped: {error:#}")?,
            Err(error) => return Err(error),
        }
    }
    Ok(files)
}

fn is_binary(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Error>().is_some_and(|error| error.kind() == ErrorKind::InvalidData)
}

/// The content of a folder.
#[derive(Debug, Default)]
pub(crate) struct FolderContent {
    /// Files with the extension of a manifest, sorted by path.
    pub(crate) manifests: Vec<PathBuf>,
    /// Folders with templates of Helm charts. Their files are not manifests.
    pub(crate) templates: Vec<PathBuf>,
}

/// Lists the content of a folder, without hidden files and folders. Each folder is read once, even if several links point to it.
pub(crate) fn list_folder(folder: &Path) -> anyhow::Result<FolderContent> {
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

    #[test]
    fn a_text_that_is_not_utf_8_has_the_line_and_the_remedy() {
        let utf16 = |text: &str, little: bool| -> Vec<u8> {
            text.encode_utf16().flat_map(|unit| if little { unit.to_le_bytes() } else { unit.to_be_bytes() }).collect()
        };
        let latin = "line 2: the byte 0xE9 is not UTF-8; if the file is Latin-1, convert it to UTF-8, for example with `iconv -f LATIN1 -t UTF-8`";
        let wide = "line 1: it is UTF-16 text; convert it to UTF-8, for example with `iconv -f UTF-16 -t UTF-8`";
        for (bytes, problem) in [
            ("a: é\n".as_bytes().to_vec(), None),
            ("\u{feff}a: 1\n".as_bytes().to_vec(), None),
            (Vec::new(), None),
            (b"a: 1\nb: caf\xe9\n".to_vec(), Some(latin)),
            (utf16("\u{feff}kind: A\n", true), Some(wide)),
            (utf16("\u{feff}kind: A\n", false), Some(wide)),
            (utf16("kind: A\n", true), Some(wide)),
            (utf16("kind: A\n", false), Some(wide)),
        ] {
            assert_eq!(decoded(bytes.clone()).err().as_deref(), problem, "{bytes:?}");
            let error = bounded(&*bytes).err();
            assert_eq!(error.map(|error| error.kind()), problem.map(|_| ErrorKind::InvalidData));
        }
    }
}
