//! The output formats of commands that list objects.
//!
//! In: rows of one kind, and the format. Out: a table, one `List`, or one name on each line. During a watch, each row is printed as soon as it
//! arrives.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

use super::table::{Table, terminal_width};
use relaybook_api::Time;

/// The output format of a command that lists objects, as for kubectl.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One line for each object. On a terminal, long cells are cut, so that a line has at most 120 characters.
    #[default]
    Table,
    /// One line for each object, with more columns. Lines have any length.
    Wide,
    /// One `List` with all objects, in JSON.
    Json,
    /// One `List` with all objects, in YAML.
    Yaml,
    /// One name on each line, as `TYPE.GROUP/NAME`.
    Name,
}

impl Format {
    /// Returns the maximum number of characters of a line on stdout. `None`: no maximum.
    pub(crate) fn width(self) -> Option<usize> {
        if self == Self::Table { terminal_width() } else { None }
    }
}

/// One object of a list.
pub(crate) trait Listed: Serialize {
    /// The kind in messages, in the plural.
    const PLURAL: &'static str;

    /// Returns the name as `kubectl get -o name` prints it.
    fn name(&self) -> String;

    /// Returns a cell for each column of the table.
    fn cells(&self, now: Time) -> Vec<String>;
}

/// All rows, as kubectl prints several objects.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a, T> {
    api_version: &'static str,
    kind: &'static str,
    items: &'a [T],
}

/// Prints rows in one format.
#[derive(Debug)]
pub(crate) struct Printer {
    format: Format,
    table: Table,
}

impl Printer {
    /// Creates a printer. Only the formats `table` and `wide` use the table.
    pub(crate) fn new(format: Format, table: Table) -> Self {
        Self { format, table }
    }

    /// Prints all rows. Without rows, a list for programs is empty. In the other formats, `err` gets a message.
    pub(crate) fn list<T: Listed>(
        &mut self,
        rows: &[T],
        now: Time,
        out: &mut impl Write,
        err: &mut impl Write,
    ) -> io::Result<()> {
        let list = List { api_version: "v1", kind: "List", items: rows };
        match self.format {
            Format::Json => {
                serde_json::to_writer_pretty(&mut *out, &list)?;
                writeln!(out)
            }
            Format::Yaml => write!(out, "{}", yaml(&list)?),
            _ if rows.is_empty() => writeln!(err, "no {} found", T::PLURAL),
            Format::Name => names(rows, out),
            Format::Table | Format::Wide => self.table.write(out, rows.iter().map(|row| row.cells(now))),
        }
    }

    /// Prints the rows that have arrived during a watch.
    pub(crate) fn arrived<T: Listed>(&mut self, rows: &[T], now: Time, out: &mut impl Write) -> io::Result<()> {
        match self.format {
            Format::Json => rows.iter().try_for_each(|row| {
                serde_json::to_writer(&mut *out, row)?;
                writeln!(out)
            }),
            Format::Yaml => rows.iter().try_for_each(|row| write!(out, "---\n{}", yaml(row)?)),
            Format::Name => names(rows, out),
            Format::Table | Format::Wide => self.table.write(out, rows.iter().map(|row| row.cells(now))),
        }
    }
}

fn names<T: Listed>(rows: &[T], out: &mut impl Write) -> io::Result<()> {
    rows.iter().try_for_each(|row| writeln!(out, "{}", row.name()))
}

/// Returns a document that ends with a newline.
fn yaml(value: &impl Serialize) -> io::Result<String> {
    serde_saphyr::to_string(value).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[derive(Serialize)]
    struct Flag {
        name: &'static str,
        color: &'static str,
    }

    impl Listed for Flag {
        const PLURAL: &'static str = "flags";

        fn name(&self) -> String {
            format!("flag.example.com/{}", self.name)
        }

        fn cells(&self, _: Time) -> Vec<String> {
            vec![self.name.to_owned(), self.color.to_owned()]
        }
    }

    const FLAGS: [Flag; 2] = [Flag { name: "a", color: "no" }, Flag { name: "b", color: "1e3\n\u{1b}[2J" }];

    fn printer(format: Format) -> Printer {
        Printer::new(format, Table::new(&[("NAME", 0), ("COLOR", 0)], 0..2))
    }

    /// Returns stdout and stderr.
    fn listed(format: Format, rows: &[Flag]) -> (String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        printer(format).list(rows, Time::UNIX_EPOCH, &mut out, &mut err).unwrap();
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    fn arrived(format: Format, rows: &[Flag]) -> String {
        let mut out = Vec::new();
        printer(format).arrived(rows, Time::UNIX_EPOCH, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn programs_get_one_list() {
        let list = |items: Value| json!({"apiVersion": "v1", "kind": "List", "items": items});
        let all = json!([{"name": "a", "color": "no"}, {"name": "b", "color": "1e3\n\u{1b}[2J"}]);
        for (rows, items) in [(&FLAGS[..], all), (&[], json!([]))] {
            let (text, err) = listed(Format::Json, rows);
            assert_eq!((serde_json::from_str::<Value>(&text).unwrap(), err.as_str()), (list(items.clone()), ""));
            let (text, err) = listed(Format::Yaml, rows);
            assert_eq!((serde_saphyr::from_str::<Value>(&text).unwrap(), err.as_str()), (list(items), ""));
            assert!(!text.contains('\u{1b}') && text.ends_with('\n'), "{text:?}");
        }
    }

    #[test]
    fn people_get_lines_or_a_message() {
        for (format, expected) in [
            (Format::Table, "NAME   COLOR\na      no\n"),
            (Format::Wide, "NAME   COLOR\na      no\n"),
            (Format::Name, "flag.example.com/a\n"),
        ] {
            assert_eq!(listed(format, &FLAGS[..1]), (expected.to_owned(), String::new()), "{format:?}");
            assert_eq!(listed(format, &[]), (String::new(), "no flags found\n".to_owned()), "{format:?}");
            assert_eq!(arrived(format, &FLAGS[..1]), expected, "{format:?}");
        }
    }

    #[test]
    fn a_watch_prints_each_object_separately() {
        let lines = arrived(Format::Json, &FLAGS);
        let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((rows.len(), &rows[1]["color"]), (2, &json!("1e3\n\u{1b}[2J")));
        let text = arrived(Format::Yaml, &FLAGS);
        let documents: Vec<_> = text.split("---\n").skip(1).collect();
        let rows: Vec<Value> = documents.iter().map(|text| serde_saphyr::from_str(text).unwrap()).collect();
        assert_eq!((rows.len(), &rows[0]["color"]), (2, &json!("no")));
        assert_eq!(arrived(Format::Json, &[]), "");
    }
}
