//! Which rules read which kind.

mod flux;
mod workloads;

use kube::core::DynamicObject;

use super::kstatus::{self, Verdict};
use super::revision;
use super::view::View;
use crate::api::Status;

/// A kind with rules of its own, or `Other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Deployment,
    StatefulSet,
    DaemonSet,
    Job,
    Kustomization,
    HelmRelease,
    /// Any other kind of Flux: its controllers share a library, and so their conditions.
    Flux,
    Other,
}

impl Kind {
    /// By group and kind; the version decides nothing.
    pub(super) fn of(api_version: &str, kind: &str) -> Self {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        match (group, kind) {
            ("apps", "Deployment") => Self::Deployment,
            ("apps", "StatefulSet") => Self::StatefulSet,
            ("apps", "DaemonSet") => Self::DaemonSet,
            ("batch", "Job") => Self::Job,
            ("kustomize.toolkit.fluxcd.io", "Kustomization") => Self::Kustomization,
            ("helm.toolkit.fluxcd.io", "HelmRelease") => Self::HelmRelease,
            _ if group.ends_with(".toolkit.fluxcd.io") => Self::Flux,
            _ => Self::Other,
        }
    }

    pub(super) fn of_object(object: &DynamicObject) -> Self {
        object.types.as_ref().map_or(Self::Other, |t| Self::of(&t.api_version, &t.kind))
    }

    /// The rules' name and edition. An edit of the rules that gives the same object another status or revision raises the number.
    pub(super) const fn reader(self) -> &'static str {
        match self {
            Self::Deployment => "deployment/1",
            Self::StatefulSet => "statefulset/1",
            Self::DaemonSet => "daemonset/1",
            Self::Job => "job/1",
            Self::Kustomization => "kustomization/1",
            Self::HelmRelease => "helmrelease/1",
            Self::Flux => "flux/1",
            Self::Other => "kstatus/1",
        }
    }
}

/// What the rules of a kind make of an object, deletion aside.
pub(super) struct Reading {
    pub(super) verdict: Verdict,
    /// The revision that runs; empty if unknown.
    pub(super) running: String,
    /// The revision that is tried; empty if unknown.
    pub(super) tried: String,
    pub(super) suspended: bool,
}

impl Reading {
    /// Of an object whose status names no revision: what its spec declares is tried, and runs once it is `Current`.
    fn declared(verdict: Verdict, tried: String, suspended: bool) -> Self {
        let running = if verdict.status == Status::Current { tried.clone() } else { String::new() };
        Self { verdict, running, tried, suspended }
    }
}

/// Reads an object by the rules of its kind.
pub(super) fn read(kind: Kind, view: &View<'_>) -> Reading {
    match kind {
        Kind::Deployment => {
            Reading::declared(workloads::deployment(view), revision::of_images(view), view.flag("/spec/paused"))
        }
        Kind::StatefulSet => Reading::declared(workloads::stateful_set(view), revision::of_images(view), false),
        Kind::DaemonSet => Reading::declared(workloads::daemon_set(view), revision::of_images(view), false),
        Kind::Job => Reading::declared(workloads::job(view), revision::of_images(view), view.flag("/spec/suspend")),
        Kind::Kustomization => flux::kustomization(view),
        Kind::HelmRelease => flux::helm_release(view),
        Kind::Flux => flux::other(view),
        Kind::Other => Reading::declared(kstatus::general(view), revision::of_label(view), false),
    }
}
