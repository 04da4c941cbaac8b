//! Packs of a hostile server.

use std::io::Write;

use bytes::Bytes;
use gix_hash::ObjectId;
use gix_object::Kind;
use gix_pack::data::entry::Header;
use gix_pack::data::{Version, header};
use gix_zlib::Compression;
use gix_zlib::stream::deflate;
use proptest::prelude::*;

use crate::id::KIND;
use crate::limits::*;
use crate::objects::pack::Pack;
use crate::snapshot::Partial;
use crate::*;

/// Writes a pack entry by entry.
struct Writer {
    bytes: Vec<u8>,
    count: u32,
}

impl Writer {
    fn new() -> Self {
        Self { bytes: vec![0; header::SIZE], count: 0 }
    }

    /// Adds an entry, and returns its offset.
    fn add(&mut self, of: Header, content: &[u8]) -> u64 {
        self.add_sized(of, content.len() as u64, content)
    }

    /// Adds an entry that says another size.
    fn add_sized(&mut self, of: Header, size: u64, content: &[u8]) -> u64 {
        let offset = self.bytes.len() as u64;
        of.write_to(size, &mut self.bytes).unwrap();
        let mut stream = deflate::Write::new(&mut self.bytes, Compression::BEST_SPEED);
        stream.write_all(content).unwrap();
        stream.flush().unwrap();
        self.count += 1;
        offset
    }

    /// Adds a delta of an entry at an offset.
    fn delta(&mut self, base: u64, delta: &[u8]) -> u64 {
        self.add(Header::OfsDelta { base_distance: self.bytes.len() as u64 - base }, delta)
    }

    fn finish(self) -> Bytes {
        let count = self.count;
        self.finish_as(count)
    }

    fn finish_as(mut self, count: u32) -> Bytes {
        self.bytes[..header::SIZE].copy_from_slice(&header::encode(Version::V2, count));
        let mut hasher = gix_hash::hasher(KIND);
        hasher.update(&self.bytes);
        self.bytes.extend_from_slice(hasher.try_finalize().unwrap().as_slice());
        Bytes::from(self.bytes)
    }
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap());
    bytes
}

/// A delta that copies the whole base `times` times, and adds a text. The base has less than 64 KiB.
fn delta(base: usize, times: usize, added: &[u8]) -> Vec<u8> {
    let size = u16::try_from(base).unwrap().to_le_bytes();
    let copies = [0b1011_0000, size[0], size[1]].repeat(times);
    let mut delta = [varint(base), varint(base * times + added.len()), copies].concat();
    if !added.is_empty() {
        delta.push(u8::try_from(added.len()).unwrap());
        delta.extend_from_slice(added);
    }
    delta
}

fn id(kind: Kind, content: &[u8]) -> ObjectId {
    gix_object::compute_hash(KIND, kind, content).unwrap()
}

fn read(pack: Bytes) -> Result<Pack, GitError> {
    Pack::read(pack)
}

fn message(pack: Bytes) -> String {
    read(pack).map(|_| ()).unwrap_err().to_string()
}

const DAMAGED: &str = "the answer of the server is invalid: the pack is damaged";

#[test]
fn deltas_of_all_kinds_are_resolved() {
    let mut pack = Writer::new();
    let (first, second, third) = (b"first ".as_slice(), b"first first 2".as_slice(), b"first first 23".as_slice());
    // The base of the first entry follows it.
    pack.add(Header::RefDelta { base_id: id(Kind::Blob, second) }, &delta(second.len(), 1, b"3"));
    let base = pack.add(Header::Blob, first);
    let twice = pack.add(Header::Blob, first);
    pack.delta(base, &delta(first.len(), 2, b"2"));
    let last = pack.delta(twice, &delta(first.len(), 1, b"4"));
    pack.delta(last, &delta(7, 1, b"5"));
    let mut pack = read(pack.finish()).unwrap();
    for content in [first, second, third, b"first 4", b"first 45"] {
        assert_eq!(pack.object(&id(Kind::Blob, content), Kind::Blob).unwrap(), content);
    }
    assert!(pack.object(&id(Kind::Blob, first), Kind::Tree).is_err(), "another kind");
    assert!(pack.object(&id(Kind::Blob, b"no"), Kind::Blob).is_err());
}

#[test]
fn packs_with_wrong_sizes_or_bases_are_refused() {
    let with = |change: fn(&mut Writer) -> u64| {
        let mut pack = Writer::new();
        pack.add(Header::Blob, b"first");
        change(&mut pack);
        message(pack.finish())
    };
    let cycle = |pack: &mut Writer| {
        let (a, b) = (id(Kind::Blob, b"a"), id(Kind::Blob, b"b"));
        pack.add(Header::RefDelta { base_id: a }, &delta(1, 1, b""));
        pack.add(Header::RefDelta { base_id: b }, &delta(1, 1, b""))
    };
    for (what, found, expected) in [
        ("smaller than it says", with(|pack| pack.add_sized(Header::Blob, 9, b"12")), DAMAGED),
        ("larger than it says", with(|pack| pack.add_sized(Header::Blob, 1, b"12")), DAMAGED),
        ("much larger than it says", with(|pack| pack.add_sized(Header::Blob, 5 << 20, &vec![0; 6 << 20])), DAMAGED),
        ("much smaller than it says", with(|pack| pack.add_sized(Header::Blob, 1 << 62, &vec![0; 6 << 20])), DAMAGED),
        (
            "a base before the pack",
            with(|pack| pack.add(Header::OfsDelta { base_distance: 1 << 40 }, &delta(5, 1, b""))),
            DAMAGED,
        ),
        ("a base within an entry", with(|pack| pack.delta(13, &delta(5, 1, b""))), DAMAGED),
        ("a base of another size", with(|pack| pack.delta(12, &delta(4, 1, b""))), DAMAGED),
        ("a delta with an empty command", with(|pack| pack.delta(12, &[5, 1, 0])), DAMAGED),
        ("a delta without commands", with(|pack| pack.delta(12, &[5, 9])), DAMAGED),
        ("a delta without sizes", with(|pack| pack.delta(12, &[0x80])), DAMAGED),
        ("an empty delta", with(|pack| pack.delta(12, &[])), DAMAGED),
        ("a size of too many digits", with(|pack| pack.delta(12, &[0xff; 30])), DAMAGED),
        ("no such base", with(cycle), "the answer of the server is invalid: the pack has a delta without its base"),
    ] {
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn counts_and_trailers_are_checked() {
    let one = || {
        let mut pack = Writer::new();
        pack.add(Header::Blob, b"first");
        pack
    };
    let whole = one().finish();
    assert!(read(whole.clone()).is_ok());
    assert_eq!(message(one().finish_as(u32::MAX)), "the repository is too large: more than 150000 objects");
    assert_eq!(message(one().finish_as(2)), DAMAGED);
    assert_eq!(message(one().finish_as(0)), "the answer of the server is invalid: the pack has more objects than it says");
    for length in 0..whole.len() {
        assert!(read(whole.slice(..length)).is_err(), "{length}");
    }
    let mut changed = whole.to_vec();
    *changed.last_mut().unwrap() ^= 1;
    assert_eq!(message(changed.into()), DAMAGED);
    assert!(read(Bytes::from(vec![0; MAX_PACK + 1])).is_err());
}

#[test]
fn packs_that_expand_enormously_end_at_a_bound() {
    let bound = |pack: Writer| match read(pack.finish()) {
        Err(GitError::TooLarge(bound)) => bound,
        other => panic!("{:?}", other.map(|_| ())),
    };
    let mut zeros = Writer::new();
    zeros.add(Header::Blob, &vec![0; 1 << 29]);
    assert_eq!(bound(zeros), Bound::Work, "one large object");
    let mut many = Writer::new();
    for _ in 0..100 {
        many.add(Header::Blob, &vec![0; MAX_OBJECT]);
    }
    assert_eq!(bound(many), Bound::Work, "many objects");
    let mut copies = Writer::new();
    let base = copies.add(Header::Blob, &vec![0; 65_000]);
    let base = copies.delta(base, &delta(65_000, 64, b""));
    for added in 0..250_u8 {
        copies.delta(base, &[varint(65_000 * 64), varint(1), vec![1, added]].concat());
    }
    assert_eq!(bound(copies), Bound::Work, "small results of a large base");
    let mut deep = Writer::new();
    let mut base = deep.add(Header::Blob, b"x");
    for length in 1..=MAX_DELTAS + 1 {
        base = deep.delta(base, &delta(length, 1, b"x"));
    }
    assert_eq!(bound(deep), Bound::Deltas, "a chain");
    let mut wide = Writer::new();
    let base = wide.add(Header::Blob, &vec![0; 65_000]);
    for added in 0..100_u8 {
        wide.delta(base, &delta(65_000, 64, &[added]));
    }
    assert_eq!(bound(wide), Bound::Work, "large results of small deltas");
    let mut held = Writer::new();
    let mut base = held.add(Header::Blob, &vec![0; 65_000]);
    base = held.delta(base, &delta(65_000, 62, b""));
    for added in 0..5_u8 {
        let size = 65_000 * 62 + usize::from(added);
        let mut next = [varint(size), varint(size + 1)].concat();
        let mut at = 0;
        while at < size {
            let length = (size - at).min(0xff_ffff);
            let (from, count) = (u32::try_from(at).unwrap().to_le_bytes(), u32::try_from(length).unwrap().to_le_bytes());
            next.extend_from_slice(&[0xff, from[0], from[1], from[2], from[3], count[0], count[1], count[2]]);
            at += length;
        }
        next.extend_from_slice(&[1, added]);
        held.delta(base, &[varint(size), varint(1), vec![1, added]].concat());
        base = held.delta(base, &next);
    }
    assert_eq!(bound(held), Bound::Work, "bases that must be kept");
}

/// Adds an entry whose stream has many empty blocks before its content.
fn add_padded(pack: &mut Writer, size: usize, blocks: usize) {
    Header::Blob.write_to(size as u64, &mut pack.bytes).unwrap();
    let mut stream = deflate::Write::new(Vec::new(), Compression::BEST_SPEED);
    stream.write_all(&vec![0; size]).unwrap();
    stream.flush().unwrap();
    let stream = stream.into_inner();
    pack.bytes.extend_from_slice(&stream[..2]);
    pack.bytes.extend_from_slice(&[0, 0, 0, 0xff, 0xff].repeat(blocks));
    pack.bytes.extend_from_slice(&stream[2..]);
    pack.count += 1;
}

#[test]
fn padded_streams_are_refused() {
    for (size, blocks, is_valid) in
        [(1_000, 5, true), (1_000, 1_000, false), (MAX_OBJECT + 1, 100, true), (MAX_OBJECT + 1, 1 << 20, false)]
    {
        let mut pack = Writer::new();
        add_padded(&mut pack, size, blocks);
        assert_eq!(read(pack.finish()).is_ok(), is_valid, "{size} {blocks}");
    }
}

#[test]
fn a_delta_that_derives_its_own_base_ends() {
    let mut pack = Writer::new();
    let content = b"x".repeat(20);
    for _ in 0..3 {
        pack.add(Header::Blob, &content);
    }
    for _ in 0..500 {
        pack.add(Header::RefDelta { base_id: id(Kind::Blob, &content) }, &delta(20, 1, b""));
    }
    assert!(read(pack.finish()).unwrap().object(&id(Kind::Blob, &content), Kind::Blob).is_ok());
}

#[test]
fn large_objects_are_skipped_until_they_are_needed() {
    let mut pack = Writer::new();
    let large = vec![1; MAX_OBJECT + 1];
    let base = pack.add(Header::Blob, &large);
    pack.delta(base, &[varint(large.len()), varint(1), vec![1, 7]].concat());
    let small = pack.add(Header::Blob, &vec![0; 65_000]);
    pack.delta(small, &delta(65_000, 65, b""));
    let mut pack = read(pack.finish()).unwrap();
    assert!(pack.object(&id(Kind::Blob, &vec![0; 65_000]), Kind::Blob).is_ok());
    for content in [&large[..], &[7], &vec![0; 65_000 * 65]] {
        assert!(matches!(pack.object(&id(Kind::Blob, content), Kind::Blob), Err(GitError::TooLarge(Bound::Object))));
    }
}

/// Adds a tree with entries of a mode and a name, and returns its id.
fn add_tree(pack: &mut Writer, entries: &[(&str, &str, ObjectId)]) -> ObjectId {
    let entry = |(mode, name, id): &(&str, &str, ObjectId)| [format!("{mode} {name}\0").as_bytes(), id.as_slice()].concat();
    let content: Vec<u8> = entries.iter().flat_map(entry).collect();
    pack.add(Header::Tree, &content);
    id(Kind::Tree, &content)
}

fn snapshot_of(mut pack: Writer, tree: ObjectId) -> Result<Snapshot, GitError> {
    let content = format!("tree {tree}\nauthor A <a> 1 +0000\ncommitter A <a> 1 +0000\n\nx\n");
    pack.add(Header::Commit, content.as_bytes());
    let commit = Id(id(Kind::Commit, content.as_bytes()));
    Partial::of_trees(pack.finish(), commit, &Paths::default(), false).map(Partial::finish)
}

#[test]
fn hostile_trees_end_at_a_bound() {
    let bound = |pack, tree| match snapshot_of(pack, tree) {
        Err(GitError::TooLarge(bound)) => bound,
        other => panic!("{other:?}"),
    };
    let mut pack = Writer::new();
    let mut tree = add_tree(&mut pack, &[]);
    for _ in 0..10 {
        let names: Vec<String> = (0..10).map(|at| format!("f{at}")).collect();
        let entries: Vec<_> = names.iter().map(|name| ("40000", name.as_str(), tree)).collect();
        tree = add_tree(&mut pack, &entries);
    }
    assert_eq!(bound(pack, tree), Bound::Entries, "ten billion folders");
    let mut pack = Writer::new();
    let mut tree = add_tree(&mut pack, &[]);
    for _ in 0..=MAX_DEPTH {
        tree = add_tree(&mut pack, &[("40000", "a", tree)]);
    }
    assert_eq!(bound(pack, tree), Bound::Depth, "deep folders");
    let mut pack = Writer::new();
    let mut tree = add_tree(&mut pack, &[]);
    for _ in 0..10 {
        tree = add_tree(&mut pack, &[("40000", &"a".repeat(200), tree)]);
    }
    assert_eq!(bound(pack, tree), Bound::Depth, "long paths");
    let mut pack = Writer::new();
    let blobs: Vec<(String, ObjectId)> = (0..20_u8)
        .map(|at| {
            let content = vec![at; MAX_FILE];
            pack.add(Header::Blob, &content);
            (format!("f{at:02}.yaml"), id(Kind::Blob, &content))
        })
        .collect();
    let entries: Vec<_> = blobs.iter().map(|(name, id)| ("100644", name.as_str(), *id)).collect();
    let tree = add_tree(&mut pack, &entries);
    assert_eq!(bound(pack, tree), Bound::AllFiles, "large files");
}

#[test]
fn trees_that_name_missing_or_wrong_objects_are_refused() {
    let mut pack = Writer::new();
    pack.add(Header::Blob, b"a: 2\n");
    let tree = add_tree(&mut pack, &[("100644", "a.yaml", id(Kind::Blob, b"a: 1\n"))]);
    assert!(matches!(snapshot_of(pack, tree), Err(GitError::InvalidAnswer(_))), "another blob than its tree names");
    let mut pack = Writer::new();
    let folder = add_tree(&mut pack, &[]);
    let tree = add_tree(&mut pack, &[("100644", "a.yaml", folder)]);
    assert!(matches!(snapshot_of(pack, tree), Err(GitError::InvalidAnswer(_))), "a tree as a file");
    let mut pack = Writer::new();
    pack.add(Header::Blob, b"x");
    let tree = add_tree(&mut pack, &[("40000", "a", id(Kind::Blob, b"x"))]);
    assert!(matches!(snapshot_of(pack, tree), Err(GitError::InvalidAnswer(_))), "a file as a tree");
    let mut pack = Writer::new();
    pack.add(Header::Blob, b"a: 1\n");
    let file = id(Kind::Blob, b"a: 1\n");
    let tree =
        add_tree(&mut pack, &[("120000", "link.yaml", file), ("160000", "module.yaml", file), ("100644", "na.yml", file)]);
    assert_eq!(snapshot_of(pack, tree).unwrap().files.keys().collect::<Vec<_>>(), ["na.yml"]);
    let pack = Writer::new();
    assert!(snapshot_of(pack, ObjectId::empty_tree(KIND)).unwrap().files.is_empty(), "an empty tree need not be sent");
}

proptest! {
    #[test]
    fn a_changed_pack_is_an_error_or_has_its_objects(at in 0_usize..400, byte: u8) {
        let mut pack = Writer::new();
        let base = pack.add(Header::Blob, &b"some text ".repeat(10));
        pack.delta(base, &delta(100, 3, b"more"));
        pack.add(Header::RefDelta { base_id: id(Kind::Blob, b"blob") }, &delta(4, 2, b""));
        pack.add(Header::Blob, b"blob");
        pack.add(Header::Tree, b"100644 a\0aaaaaaaaaaaaaaaaaaaa");
        let mut bytes = pack.finish().to_vec();
        let end = bytes.len() - 20;
        bytes[at % end] = byte;
        let mut hasher = gix_hash::hasher(KIND);
        hasher.update(&bytes[..end]);
        bytes[end..].copy_from_slice(hasher.try_finalize().unwrap().as_slice());
        if let Ok(mut pack) = read(bytes.into()) {
            let blob = pack.find(&id(Kind::Blob, b"blob"));
            prop_assert!(matches!(blob, Ok(None)) || matches!(blob, Ok(Some((Kind::Blob, content))) if content == b"blob"));
        }
    }
}
