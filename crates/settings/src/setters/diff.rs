//! The edit of a file as a unified diff, which `patch -p0` and `git apply -p0` can read.

use std::fmt::Write as _;
use std::ops::Range;

/// Number of lines around a change.
const CONTEXT: usize = 3;

/// Compares two texts with the same number of lines, line by line. The result is empty if they are equal.
/// (<https://www.gnu.org/software/diffutils/manual/html_node/Detailed-Unified.html>)
#[must_use]
pub fn unified(file: &str, before: &str, after: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (before.split_inclusive('\n').collect(), after.split_inclusive('\n').collect());
    let changed: Vec<usize> = (0..old.len().min(new.len())).filter(|line| old[*line] != new[*line]).collect();
    let mut diff = String::new();
    if !changed.is_empty() {
        // Writing to a String cannot fail.
        let _ = write!(diff, "--- {file}\n+++ {file}\n");
    }
    for hunk in hunks(&changed, old.len()) {
        let (start, length) = (hunk.start + 1, hunk.len());
        let _ = writeln!(diff, "@@ -{start},{length} +{start},{length} @@");
        let mut added = Vec::new();
        for line in hunk {
            if old[line] == new[line] {
                added.drain(..).for_each(|text| push(&mut diff, '+', text));
                push(&mut diff, ' ', old[line]);
            } else {
                push(&mut diff, '-', old[line]);
                added.push(new[line]);
            }
        }
        for text in added {
            push(&mut diff, '+', text);
        }
    }
    diff
}

/// Returns the changed lines with the lines around them. Neighbours that touch are one hunk.
fn hunks(changed: &[usize], lines: usize) -> Vec<Range<usize>> {
    let mut hunks: Vec<Range<usize>> = Vec::new();
    for line in changed {
        let around = line.saturating_sub(CONTEXT)..(line + CONTEXT + 1).min(lines);
        match hunks.last_mut() {
            Some(last) if around.start <= last.end => last.end = around.end,
            _ => hunks.push(around),
        }
    }
    hunks
}

fn push(diff: &mut String, sign: char, line: &str) {
    diff.push(sign);
    diff.push_str(line);
    if !line.ends_with('\n') {
        diff.push_str("\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_have_three_lines_around_a_change() {
        let text = (1..=20).map(|n| format!("{n}\n")).collect::<Vec<_>>().concat();
        assert_eq!(unified("a", &text, &text), "");
        let edited = text.replace("\n9\n10\n", "\n9x\n10x\n").replace("20\n", "20x\n").replace("\n1\n", "\n1x\n");
        let expected = "--- a.yaml\n+++ a.yaml\n@@ -6,8 +6,8 @@\n 6\n 7\n 8\n-9\n-10\n+9x\n+10x\n 11\n 12\n 13\n@@ -17,4 +17,4 @@\n 17\n 18\n \
                        19\n-20\n+20x\n";
        assert_eq!(unified("a.yaml", &text, &edited), expected);
    }

    #[test]
    fn close_changes_are_one_hunk_and_line_breaks_are_kept() {
        let diff = unified("a", "1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7\r\n8", "1x\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7\r\n8x");
        let expected = "--- a\n+++ a\n@@ -1,8 +1,8 @@\n-1\r\n+1x\r\n 2\r\n 3\r\n 4\r\n 5\r\n 6\r\n 7\r\n-8\n\\ No newline at end of file\n+8x\n\\ No \
                        newline at end of file\n";
        assert_eq!(diff, expected);
    }
}
