//! Tables for people: cells that cannot control the terminal, in aligned columns.

use std::io::{self, Write};
use std::ops::Range;

use relaybook_text::escaped;

/// Maximum number of characters of a cell. A name is not cut, because users copy it.
const LONGEST: usize = 80;

/// A table whose columns become wider if a cell needs it, and never narrower.
#[derive(Debug)]
pub(crate) struct Table {
    /// The header line, until it is written.
    head: Option<Vec<String>>,
    /// Which columns are shown.
    shown: Range<usize>,
    /// The widths of the columns that are shown.
    widths: Vec<usize>,
}

impl Table {
    /// Creates a table with these columns of all. Each has a name and a minimum width.
    pub(crate) fn new(all: &[(&str, usize)], shown: Range<usize>) -> Self {
        let head = all.iter().map(|(name, _)| (*name).to_owned()).collect();
        Self { head: Some(head), widths: all[shown.clone()].iter().map(|(_, width)| *width).collect(), shown }
    }

    /// Writes rows with a cell for each of all columns. The header line is before the first row.
    pub(crate) fn write(&mut self, out: &mut impl Write, rows: impl Iterator<Item = Vec<String>>) -> io::Result<()> {
        let lines: Vec<_> = self.head.take().into_iter().chain(rows).collect();
        let lines: Vec<_> = lines.iter().map(|cells| &cells[self.shown.clone()]).collect();
        for cells in &lines {
            for (width, cell) in self.widths.iter_mut().zip(*cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        lines.iter().try_for_each(|cells| writeln!(out, "{}", line(cells, &self.widths)))
    }
}

/// Returns the text of a cell: the beginning of a value, escaped. It is `-` for an absent value, so that no column is empty.
pub(crate) fn shown(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    let beginning: String = text.chars().take(LONGEST + 1).collect();
    let mut safe = escaped(&beginning);
    if let Some((end, _)) = safe.char_indices().nth(LONGEST) {
        let end = safe[..end].char_indices().next_back().map_or(end, |(last, _)| last);
        safe.truncate(end);
        safe.push('…');
    }
    safe
}

/// Returns one line of a table, with each cell as wide as its column.
fn line(cells: &[String], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect::<Vec<_>>();
    padded.join("   ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn columns_grow_with_later_rows_under_one_header() {
        let mut table = Table::new(&[("HIDDEN", 0), ("A", 0), ("B", 3), ("C", 0)], 1..4);
        let mut written = |rows: &[&[&str]]| {
            let mut out = Vec::new();
            table.write(&mut out, rows.iter().map(|row| cells(row))).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(&[&["x", "1", "2", "3"]]), "A   B     C\n1   2     3\n");
        assert_eq!(written(&[&["x", "long", "2", ""], &["x", "1", "2", "3"]]), "long   2\n1      2     3\n");
        assert_eq!(written(&[]), "");
    }

    #[test]
    fn cells_of_a_line_are_aligned() {
        assert_eq!(line(&cells(&["a", "é", ""]), &[3, 2, 4]), "a     é");
    }

    #[test]
    fn cells_are_bounded() {
        assert_eq!(shown(""), "-");
        assert_eq!(shown(&"é".repeat(LONGEST)), "é".repeat(LONGEST));
        assert_eq!(shown(&"é".repeat(300)), format!("{}…", "é".repeat(LONGEST - 1)));
    }
}
