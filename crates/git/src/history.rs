//! The newest commits of a branch.

use std::collections::{BinaryHeap, HashSet};

use bytes::Bytes;
use gix_hash::ObjectId;
use gix_object::Kind;

use super::GitError;
use super::id::Id;
use super::limits::MAX_COMMITS;
use super::objects::found::Found;
use super::objects::pack::Pack;
use super::wire::fetch::Wanted;
use super::wire::remote::Remote;
use super::wire::transport::Transport;

impl<T: Transport> Remote<'_, T> {
    /// Returns the newest commits that a commit includes, at most `depth` of them: the commit itself, then its ancestors by their time.
    /// There are at most 500.
    pub async fn history(&self, tip: Id, depth: usize) -> Result<Vec<Found>, GitError> {
        let depth = depth.clamp(1, MAX_COMMITS);
        let wanted = Wanted { ids: &[tip.0], depth: Some(depth), filter: Some("tree:0") };
        let pack = self.fetch(wanted).await?;
        self.transport.calculate(move || newest(pack, tip, depth)).await?
    }
}

/// Reads commits from a pack.
fn newest(pack: Bytes, tip: Id, depth: usize) -> Result<Vec<Found>, GitError> {
    let mut pack = Pack::read(pack)?;
    let first = Found::read(&mut pack, tip)?;
    let mut seen = HashSet::from([tip.0]);
    let (mut waiting, mut commits) = (BinaryHeap::from([(first.seconds, tip)]), Vec::new());
    let mut found = std::collections::HashMap::from([(tip, first)]);
    while let Some((_, id)) = waiting.pop() {
        let Some(commit) = found.remove(&id) else { continue };
        let parents: Vec<ObjectId> = commit.parents.iter().map(|Id(id)| *id).filter(|id| seen.insert(*id)).collect();
        commits.push(commit);
        if commits.len() == depth {
            break;
        }
        for parent in parents {
            // The history ends where the depth ends.
            if let Some((Kind::Commit, content)) = pack.find(&parent)? {
                let parent = Found::parse(&content, Id(parent))?;
                waiting.push((parent.seconds, parent.id));
                found.insert(parent.id, parent);
            }
        }
    }
    Ok(commits)
}
