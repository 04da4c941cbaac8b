//! The files of the page: a stylesheet, a script and an icon. They are part of the program.
//!
//! The name of each contains a hash of its content, so a browser keeps it for good, and a new version of Relaybook has new names.

use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

/// The stylesheet.
pub(crate) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("page", "css", "text/css; charset=utf-8", include_str!("assets/page.css")));
/// The script.
pub(crate) static SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("page", "js", "text/javascript; charset=utf-8", include_str!("assets/page.js")));
/// The icon.
pub(crate) static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon", "svg", "image/svg+xml", include_str!("assets/icon.svg")));

/// A file.
pub(crate) struct Asset {
    path: String,
    /// The media type.
    pub(crate) media_type: &'static str,
    /// The content.
    pub(crate) content: &'static str,
}

impl Asset {
    fn new(name: &str, extension: &str, media_type: &'static str, content: &'static str) -> Self {
        let hash = hex::encode(&Sha256::digest(content)[..6]);
        Self { path: format!("/assets/{name}-{hash}.{extension}"), media_type, content }
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

/// Returns the file with this path.
pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    [&*STYLE, &*SCRIPT, &*ICON].into_iter().find(|asset| asset.path == path)
}
