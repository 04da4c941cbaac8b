//! The metrics that `/metrics` returns, and their recording in a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

type Labels = BTreeMap<String, String>;

/// One scrape.
#[derive(Clone, Debug, Default)]
pub struct Scrape {
    /// Name and type of each metric family.
    kinds: Vec<(String, String)>,
    /// Series by metric name.
    pub series: BTreeMap<String, Vec<(Labels, f64)>>,
}

impl Scrape {
    /// Parses `OpenMetrics` text.
    pub fn parse(text: &str) -> Self {
        let mut scrape = Self::default();
        for line in text.lines() {
            if let Some((family, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                scrape.kinds.push((family.to_owned(), kind.to_owned()));
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').expect("SERIES VALUE");
                let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
                let pairs = labels.trim_end_matches('}').split_terminator("\",").map(|pair| pair.trim_end_matches('"'));
                let pairs = pairs.filter_map(|pair| pair.split_once("=\"")).map(|(k, v)| (k.to_owned(), v.to_owned()));
                let entry = (pairs.collect(), value.parse().expect("a number"));
                scrape.series.entry(name.to_owned()).or_default().push(entry);
            }
        }
        scrape
    }

    /// Returns each metric as it is queried: name, type, labels.
    pub fn families(&self) -> BTreeSet<(String, String, BTreeSet<String>)> {
        let of = |(family, kind): &(String, String)| {
            let (name, sample) = match kind.as_str() {
                "counter" => (format!("{family}_total"), format!("{family}_total")),
                "info" => (format!("{family}_info"), format!("{family}_info")),
                "histogram" => (family.clone(), format!("{family}_count")),
                _ => (family.clone(), family.clone()),
            };
            let series = self.series.get(&sample).unwrap_or_else(|| panic!("{sample} has series in this run"));
            (name, kind.clone(), values(series).into_keys().map(str::to_owned).collect())
        };
        self.kinds.iter().map(of).collect()
    }
}

/// Returns the labels of these series, with their values.
pub fn values(series: &[(Labels, f64)]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut found = BTreeMap::<_, BTreeSet<_>>::new();
    for (label, value) in series.iter().flat_map(|(labels, _)| labels) {
        found.entry(label.as_str()).or_default().insert(value.as_str());
    }
    found
}

/// Compares the scrapes of one run with the recorded file, which has one line for each series: `SERIES VALUE…`. Both must have the same
/// series. With `RELAYBOOK_RECORD` it writes the file, which `make rules` uses to evaluate queries.
pub fn recorded(at: &Path, scrapes: &[Scrape]) {
    let mut lines = BTreeMap::<String, Vec<f64>>::new();
    for (name, series) in scrapes.iter().flat_map(|scrape| &scrape.series) {
        for (labels, value) in series {
            let labels: Vec<_> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
            lines.entry(format!("{name}{{{}}}", labels.join(","))).or_default().push(*value);
        }
    }
    if std::env::var_os("RELAYBOOK_RECORD").is_some() {
        let mut text = String::new();
        for (series, values) in &lines {
            let values: Vec<_> = values.iter().map(f64::to_string).collect();
            writeln!(text, "{series} {}", values.join(" ")).expect("a string takes all");
        }
        return std::fs::write(at, text).expect("written");
    }
    let text = std::fs::read_to_string(at).expect("a recording, made with RELAYBOOK_RECORD=1 cargo test --test it watched");
    let known: BTreeSet<_> = text.lines().filter_map(|line| Some(line.rsplit_once("} ")?.0)).filter(|s| stays(s)).collect();
    let now: BTreeSet<_> = lines.keys().map(|series| series.trim_end_matches('}')).filter(|s| stays(s)).collect();
    assert_eq!(known, now, "record it again: RELAYBOOK_RECORD=1 cargo test --test it watched");
}

/// Whether a series is the same in each release. All are, except the version.
fn stays(series: &str) -> bool {
    !series.starts_with("relaybook_build_info")
}
