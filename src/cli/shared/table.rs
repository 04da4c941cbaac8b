//! Tables for people: cells that cannot control the terminal, in aligned columns.
//!
//! In: columns, and the cells of rows. Out: lines. On a terminal, the widest cells are cut, so that a line fits. Names are never cut.

use std::io::{self, IsTerminal as _, Write};

use relaybook_text::{cut_chars, escaped};

/// Maximum number of characters of a cell. A name is not cut, because users copy it.
const LONGEST: usize = 80;
/// Maximum number of characters of a line on a terminal.
const LINE: usize = 120;
/// The space between columns.
const GAP: &str = "   ";

/// A table whose columns become wider if a cell needs it.
#[derive(Debug)]
pub(crate) struct Table {
    /// The columns that are shown, in this order.
    columns: Vec<Column>,
    /// Whether the header line must still be written.
    has_header: bool,
    /// Maximum number of characters of a line. `None`: nothing is cut.
    max: Option<usize>,
}

/// One column.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    /// The place of its cell in a row.
    at: usize,
    /// The width of its widest cell so far.
    width: usize,
    /// The width below which its cells are not cut.
    least: usize,
}

impl Table {
    /// Creates a table with these columns of all. Each has a name and a minimum width. Nothing is cut.
    pub(crate) fn new(all: &[(&str, usize)], shown: impl IntoIterator<Item = usize>) -> Self {
        let column = |at: usize| {
            let (name, width) = all[at];
            Column { name: name.to_owned(), at, width, least: width.max(name.chars().count()) }
        };
        Self { columns: shown.into_iter().map(column).collect(), has_header: true, max: None }
    }

    /// Limits lines to this number of characters. Cells in the columns with these names are never cut, because users copy them.
    pub(crate) fn within(mut self, max: Option<usize>, never_cut: &[&str]) -> Self {
        for column in self.columns.iter_mut().filter(|column| never_cut.contains(&column.name.as_str())) {
            column.least = usize::MAX;
        }
        Self { max, ..self }
    }

    /// Writes rows with a cell for each of all columns. The header line is before the first row.
    pub(crate) fn write(&mut self, out: &mut impl Write, rows: impl Iterator<Item = Vec<String>>) -> io::Result<()> {
        let mut lines: Vec<Vec<String>> = Vec::new();
        if std::mem::take(&mut self.has_header) {
            lines.push(self.columns.iter().map(|column| column.name.clone()).collect());
        }
        lines.extend(rows.map(|row| self.columns.iter().map(|column| row[column.at].clone()).collect()));
        for cells in &lines {
            for (column, cell) in self.columns.iter_mut().zip(cells) {
                column.width = column.width.max(cell.chars().count());
            }
        }
        let widths = fit(&self.columns, self.max.unwrap_or(usize::MAX));
        lines.iter().try_for_each(|cells| writeln!(out, "{}", line(cells, &widths)))
    }
}

/// Returns the maximum width of a table on stdout. `None`: stdout is not a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    io::stdout().is_terminal().then_some(LINE)
}

/// Returns widths for lines with at most this number of characters. The widest column becomes narrower until the lines fit, or no column may
/// become narrower.
fn fit(columns: &[Column], max: usize) -> Vec<usize> {
    let mut widths: Vec<_> = columns.iter().map(|column| column.width).collect();
    let gaps = GAP.len() * columns.len().saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > max {
        let can_shrink = widths.iter_mut().zip(columns).filter(|(width, column)| **width > column.least);
        let Some((widest, _)) = can_shrink.max_by_key(|(width, _)| **width) else { break };
        *widest -= 1;
    }
    widths
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
    let padded = cells.iter().zip(widths).map(|(cell, &width)| format!("{:width$}", cut_chars(cell, width)));
    padded.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
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
    fn columns_are_shown_in_the_given_order() {
        let (mut out, mut table) = (Vec::new(), Table::new(&[("A", 0), ("B", 0), ("C", 0)], [2, 0]));
        table.write(&mut out, [cells(&["1", "2", "3"])].into_iter()).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "C   A\n3   1\n");
    }

    #[test]
    fn lines_fit_and_names_are_whole() {
        let name = "n".repeat(20);
        let row = cells(&[&name, "shop", &"é".repeat(30), "2026"]);
        let all = [("NAME", 0), ("PIPELINE", 0), ("ANSWER", 0), ("TIME", 4)];
        for (max, never_cut, expected) in [
            (None, &[][..], format!("{name}   shop       {}   2026", "é".repeat(30))),
            (Some(71), &[], format!("{name}   shop       {}   2026", "é".repeat(30))),
            // The widest column is cut first.
            (Some(61), &[], format!("{name}   shop       {}…   2026", "é".repeat(19))),
            (Some(51), &["NAME"], format!("{name}   shop       {}…   2026", "é".repeat(9))),
            // Without names to keep, the widest columns become equally wide.
            (Some(51), &[], format!("{}…   shop       {}…   2026", "n".repeat(14), "é".repeat(14))),
            // No column is narrower than its header or its minimum width, and no name is cut.
            (Some(10), &["NAME"], format!("{name}   shop       {}…   2026", "é".repeat(5))),
        ] {
            let mut out = Vec::new();
            let mut table = Table::new(&all, 0..4).within(max, never_cut);
            table.write(&mut out, [row.clone()].into_iter()).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert_eq!(text.lines().nth(1), Some(expected.as_str()), "{max:?}");
        }
    }

    #[test]
    fn a_cut_table_shows_later_rows_in_the_same_columns() {
        let mut table = Table::new(&[("A", 0), ("B", 0)], 0..2).within(Some(12), &[]);
        let mut written = |row: &[&str]| {
            let mut out = Vec::new();
            table.write(&mut out, [cells(row)].into_iter()).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(&["1234567890", "12"]), "A         B\n123456…   12\n");
        assert_eq!(written(&["1", "2"]), "1         2\n");
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
