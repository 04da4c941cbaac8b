//! The globs of overrides: which generated targets an override is about. Pure.

use std::collections::HashMap;

use globset::{Glob, GlobSet, GlobSetBuilder};

use relaybook_api::pipeline::target::TargetInfo;

/// The globs of overrides. Each list is compiled once, because a pipeline can have many targets.
#[derive(Default)]
pub struct ClusterGlobs<'a>(HashMap<&'a [String], GlobSet>);

impl<'a> ClusterGlobs<'a> {
    /// Whether one of the globs matches the name of the cluster that a target is about, with or without its namespace.
    pub(super) fn match_cluster_of(&mut self, target: &TargetInfo, globs: &'a [String]) -> bool {
        let set = self.0.entry(globs).or_insert_with(|| {
            let mut set = GlobSetBuilder::new();
            for glob in globs.iter().filter_map(|glob| Glob::new(glob).ok()) {
                set.add(glob);
            }
            set.build().unwrap_or_default()
        });
        let short = target.cluster_ref.as_ref().map_or(target.cluster.as_str(), |cluster| &cluster.name);
        set.is_match(short) || set.is_match(&target.cluster)
    }
}
