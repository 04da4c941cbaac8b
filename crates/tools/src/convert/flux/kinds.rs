//! The kinds of Flux that an Alert can name. Pure.

/// A kind of Flux, as Relaybook follows it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    /// The kind.
    pub(super) name: &'static str,
    /// The resource.
    pub(super) plural: &'static str,
    /// The version of the API that Relaybook watches.
    pub(super) api_version: &'static str,
    /// What its revision is.
    pub(super) revision: Revision,
    /// Whether the chart of Relaybook has the permission to watch it.
    pub(super) is_permitted: bool,
}

/// What the revision of a kind is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Revision {
    /// It has a commit, if its source is a Git repository.
    Commit,
    /// Another version: of a chart, an artifact or an image.
    Version,
    /// The status has none, so nothing is ever deployed.
    None,
}

const SOURCE: &str = "source.toolkit.fluxcd.io/v1";
const IMAGE: &str = "image.toolkit.fluxcd.io/v1";

/// All kinds that `eventSources` accepts.
pub(super) static KINDS: [Kind; 12] = [
    Kind {
        is_permitted: true,
        ..kind("Kustomization", "kustomizations", "kustomize.toolkit.fluxcd.io/v1", Revision::Commit)
    },
    Kind { is_permitted: true, ..kind("HelmRelease", "helmreleases", "helm.toolkit.fluxcd.io/v2", Revision::Version) },
    kind("GitRepository", "gitrepositories", SOURCE, Revision::Commit),
    kind("OCIRepository", "ocirepositories", SOURCE, Revision::Version),
    kind("Bucket", "buckets", SOURCE, Revision::Version),
    kind("HelmRepository", "helmrepositories", SOURCE, Revision::Version),
    kind("HelmChart", "helmcharts", SOURCE, Revision::Version),
    kind("ExternalArtifact", "externalartifacts", SOURCE, Revision::Version),
    kind("ArtifactGenerator", "artifactgenerators", "source.extensions.fluxcd.io/v1beta1", Revision::None),
    kind("ImageRepository", "imagerepositories", IMAGE, Revision::None),
    kind("ImagePolicy", "imagepolicies", IMAGE, Revision::Version),
    kind("ImageUpdateAutomation", "imageupdateautomations", IMAGE, Revision::Version),
];

const fn kind(name: &'static str, plural: &'static str, api_version: &'static str, revision: Revision) -> Kind {
    Kind { name, plural, api_version, revision, is_permitted: false }
}

impl Kind {
    /// Returns the kind with this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// Returns the group of its API.
    pub(super) fn group(&self) -> &'static str {
        self.api_version.split('/').next().unwrap_or_default()
    }
}
