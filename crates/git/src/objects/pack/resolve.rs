//! Derives all objects of a pack from their bases, and computes their ids.
//!
//! Each object is derived exactly once, from a base that is in memory. So the work does not grow with the length of chains. The objects
//! between the first base and the current object are in memory, but only until the last object is derived from them.

use gix_hash::ObjectId;
use gix_object::Kind;

use super::scan::Deltas;
use super::{Base, Bound, DAMAGED, GitError, KIND, MAX_DELTAS, Pack};
use crate::limits::MAX_BASES;

/// An object from which others are derived.
struct Frame {
    position: u32,
    content: Vec<u8>,
    /// The deltas that are left.
    deltas: Vec<u32>,
}

impl Pack {
    /// Computes the ids of all deltas.
    pub(super) fn resolve(&mut self, deltas: &Deltas) -> Result<(), GitError> {
        for (position, id) in &deltas.whole {
            let (position, children) = (*position, deltas.of(*position, Some(id)));
            if !children.is_empty() {
                let (kind, content) = self.whole(position)?;
                self.descend(Frame { position, content, deltas: children }, kind, deltas)?;
            }
        }
        let is_unknown = self.entries.iter().any(|entry| entry.base == Base::Unknown);
        if is_unknown && !self.has_skipped {
            return Err(GitError::InvalidAnswer("the pack has a delta without its base"));
        }
        Ok(())
    }

    /// Derives all objects that depend on one.
    fn descend(&mut self, first: Frame, kind: Kind, deltas: &Deltas) -> Result<(), GitError> {
        let mut held = first.content.len();
        let mut stack = vec![first];
        while let Some(frame) = stack.last_mut() {
            let Some(position) = frame.deltas.pop() else {
                held -= frame.content.len();
                stack.pop();
                continue;
            };
            let base = frame.position;
            if !self.attach(position, base) {
                continue;
            }
            let derived = self.derived(position, kind, &frame.content)?;
            if frame.deltas.is_empty() {
                held -= frame.content.len();
                frame.content = Vec::new();
            }
            let Some(content) = derived else {
                self.has_skipped = true;
                continue;
            };
            let id = gix_object::compute_hash(KIND, kind, &content).map_err(|_| DAMAGED)?;
            let is_new = !self.ids.contains_key(&id);
            self.ids.entry(id).or_insert(position);
            let children = deltas.of(position, Some(&id).filter(|_| is_new));
            if children.is_empty() {
                continue;
            }
            held += content.len();
            if held > MAX_BASES {
                return Err(GitError::TooLarge(Bound::Work));
            }
            stack.push(Frame { position, content, deltas: children });
            if stack.len() > MAX_DELTAS {
                return Err(GitError::TooLarge(Bound::Deltas));
            }
        }
        Ok(())
    }

    /// Notes the base of a delta. Returns whether the delta has to be derived from it. A delta whose base is named by an id is derived only
    /// once, although a pack can contain the base several times. Otherwise a delta that derives its own base would never end.
    fn attach(&mut self, position: u32, base: u32) -> bool {
        let Some(entry) = self.entries.get_mut(position as usize) else { return false };
        if entry.base == Base::Unknown {
            entry.base = Base::At(base);
        }
        entry.base == Base::At(base)
    }
}

impl Deltas {
    /// Returns the deltas of the object at a position, and those that name their base by this id.
    fn of(&self, position: u32, id: Option<&ObjectId>) -> Vec<u32> {
        let first = self.by_position.partition_point(|(base, _)| *base < position);
        let by_position = self.by_position.iter().skip(first).take_while(|(base, _)| *base == position);
        let mut found: Vec<u32> = by_position.map(|(_, delta)| *delta).collect();
        if let Some(id) = id {
            let first = self.by_id.partition_point(|(base, _)| base < id);
            let by_id = self.by_id.iter().skip(first).take_while(|(base, _)| base == id);
            found.extend(by_id.map(|(_, delta)| *delta));
        }
        found
    }
}
