//! Finds the position of a text value in a file, so that an error within the text is reported with the line of the file.

/// Returns the line of a file that contains the first line of the value of a key. The value must be written as a literal block (`|`).
/// `None`: it is written in another form, so its lines are not those of the file.
#[must_use]
pub fn first_line(file: &str, key: &str, line_of_key: u64) -> Option<u64> {
    let index = usize::try_from(line_of_key.checked_sub(1)?).ok()?;
    let (_, after) = file.lines().nth(index)?.split_once(key)?;
    let value = after.trim_start_matches(['"', '\'']).trim_start().strip_prefix(':')?;
    let mut words = value.split_whitespace().skip_while(|word| word.starts_with(['&', '!']));
    let is_literal = |word: &str| {
        word.strip_prefix('|').is_some_and(|how| how.chars().all(|c| c.is_ascii_digit() || c == '-' || c == '+'))
    };
    let begins = words.next().is_some_and(is_literal) && words.next().is_none_or(|word| word.starts_with('#'));
    begins.then_some(line_of_key + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_literal_block_has_the_lines_of_its_file() {
        for (line, is) in [
            ("  k.yaml: |", true),
            ("  \"k.yaml\": |2-   # why", true),
            ("  'k.yaml' : &anchor !!str |+", true),
            ("  k.yaml: |\r", true),
            ("  k.yaml: >", false),
            ("  k.yaml: a |", false),
            ("  k.yaml: '|'", false),
            ("  k.yaml:", false),
            ("  k.yaml: \"defaults: {}\"", false),
            ("  other: |", false),
        ] {
            let file = format!("data:\n{line}\n    a: b\n");
            assert_eq!(first_line(&file, "k.yaml", 2), is.then_some(3), "{line}");
        }
        assert_eq!((first_line("k: |", "k", 0), first_line("k: |", "k", 9)), (None, None));
    }
}
