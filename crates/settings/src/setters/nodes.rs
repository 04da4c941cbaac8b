//! The nodes of all documents of a file, in their order, with their positions.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, NonFiniteFloatPolicy, Spanned};

use crate::manifests::yaml_problem;

/// One node. A list of nodes determines documents: each list and map ends with [`Content::End`].
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) content: Content,
    /// Where the file defines the node, in bytes. For an alias and a merged field, this is where the anchor is. Empty for a value that is
    /// not written.
    pub(super) span: Range<usize>,
}

/// The content of a node. Two equal lists of contents are equal documents.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    Map,
    List,
    /// The end of a list, a map or a document.
    End,
    Key(String),
    Value(Scalar),
}

/// A value as the parser reads it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Integer(i128),
    /// The bits of a floating-point number, so that NaN equals itself.
    Float(u64),
    Text(String),
}

/// A file that the parser rejects.
#[derive(Debug)]
pub(super) struct NotYaml {
    /// The line, from 1.
    pub(super) line: u64,
    /// One line of text.
    pub(super) problem: String,
}

/// Reads the nodes of all documents.
pub(super) fn read(text: &str) -> Result<Vec<Node>, NotYaml> {
    let options = serde_saphyr::options! { non_finite_float_policy: NonFiniteFloatPolicy::PassThrough, with_snippet: false };
    let documents: Vec<Spanned<Tree>> = serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let problem = yaml_problem(&error);
        NotYaml { line: error.location().map_or(1, |location| location.line()), problem }
    })?;
    let mut nodes = Vec::new();
    for document in documents {
        flatten(document, &mut nodes);
        nodes.push(end());
    }
    Ok(nodes)
}

fn end() -> Node {
    Node { content: Content::End, span: 0..0 }
}

/// Returns the position in bytes. It is empty if the parser does not know it.
fn range(location: &Location) -> Range<usize> {
    let span = location.span();
    let part = |number: Option<u64>| number.and_then(|number| usize::try_from(number).ok());
    match (part(span.byte_offset()), part(span.byte_len())) {
        (Some(start), Some(length)) => start..start + length,
        _ => 0..0,
    }
}

enum Tree {
    Value(Scalar),
    List(Vec<Spanned<Tree>>),
    Map(Vec<(Spanned<String>, Spanned<Tree>)>),
}

/// Adds a node and all nodes in it. The parser limits their depth.
fn flatten(tree: Spanned<Tree>, nodes: &mut Vec<Node>) {
    let span = range(&tree.defined);
    let node = |content| Node { content, span };
    match tree.value {
        Tree::Value(value) => nodes.push(node(Content::Value(value))),
        Tree::List(items) => {
            nodes.push(node(Content::List));
            for item in items {
                flatten(item, nodes);
            }
            nodes.push(end());
        }
        Tree::Map(fields) => {
            nodes.push(node(Content::Map));
            for (key, value) in fields {
                let span = range(&key.defined);
                nodes.push(Node { content: Content::Key(key.value), span });
                flatten(value, nodes);
            }
            nodes.push(end());
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, a list or a map")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Value(Scalar::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Value(Scalar::Integer(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Value(Scalar::Integer(value.into())))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Tree, E> {
        Ok(Tree::Value(Scalar::Integer(value)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Value(Scalar::Float(value.to_bits())))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Value(Scalar::Text(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<Tree, E> {
        Ok(Tree::Value(Scalar::Text(value)))
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Value(Scalar::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Value(Scalar::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(Tree::List(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Tree, A::Error> {
        let mut all = Vec::new();
        while let Some(field) = fields.next_entry()? {
            all.push(field);
        }
        Ok(Tree::Map(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_positions_of_nodes_are_those_in_the_source() {
        let text = "\u{feff}é: 'it''s' # x\r\nb: &a 1.10\r\nc: *a\r\n---\r\n- x\r- |\r\n  y # z\r\n- {k: .nan}\r\n";
        let nodes = read(text).unwrap();
        let shown: Vec<_> = nodes.iter().map(|node| (&node.content, &text[node.span.clone()])).collect();
        let of = |text: &str| Content::Value(Scalar::Text(text.to_owned()));
        let key = |text: &str| Content::Key(text.to_owned());
        let number = Content::Value(Scalar::Float(1.1_f64.to_bits()));
        for (content, span) in
            [(&key("é"), "é"), (&of("it's"), "'it''s'"), (&number, "1.10"), (&of("x"), "x"), (&key("k"), "k")]
        {
            assert!(shown.contains(&(content, span)), "{content:?}: {shown:?}");
        }
        assert_eq!(
            shown.iter().filter(|one| **one == (&number, "1.10")).count(),
            2,
            "the alias has the position of the anchor"
        );
        assert!(shown.iter().any(|(content, span)| **content == of("y # z\n") && span.contains("y # z")), "{shown:?}");
        assert_eq!(nodes.iter().filter(|node| node.content == Content::End).count(), 5);
    }

    #[test]
    fn an_error_of_invalid_yaml_has_its_line() {
        for (text, line) in [("a: 1\nb: [\n", 2), ("a:\n\tb: c\n", 2), ("a: 1\na: 2\n", 2), ("{{ x }}\n", 1)] {
            let error = read(text).unwrap_err();
            assert!(error.line == line && !error.problem.contains('\n') && !error.problem.is_empty(), "{text:?}: {error:?}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(read(&deep).is_err());
    }
}
