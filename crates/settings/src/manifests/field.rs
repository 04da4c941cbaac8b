//! Paths of fields: writes and splits them.

/// Returns the path of a field of an object.
#[must_use]
pub fn below(object: &str, name: &str) -> String {
    if object.is_empty() {
        return name.to_owned();
    }
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if plain { format!("{object}.{name}") } else { format!("{object}[{name}]") }
}

/// Returns the path of an entry of a list.
#[must_use]
pub fn entry(list: &str, index: usize) -> String {
    format!("{list}[{index}]")
}

/// Returns the names and indexes of a path, outermost first.
pub fn steps(field: &str) -> impl Iterator<Item = &str> {
    let mut rest = field;
    std::iter::from_fn(move || {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if let Some(inner) = rest.strip_prefix('[') {
            let (step, after) = inner.split_once(']').unwrap_or((inner, ""));
            rest = after;
            return Some(step);
        }
        let (step, after) = rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len()));
        rest = after;
        (!step.is_empty() || !after.is_empty()).then_some(step)
    })
}

/// Whether a field is the field `outer` or a part of it.
#[must_use]
pub fn is_within(field: &str, outer: &str) -> bool {
    let mut steps = steps(field);
    self::steps(outer).all(|step| steps.next() == Some(step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_path_is_built_and_split_at_dots_and_brackets() {
        for (field, parts) in [
            ("", &[][..]),
            ("spec", &["spec"]),
            ("spec.triggers[10].type", &["spec", "triggers", "10", "type"]),
            ("metadata.labels[example.com/team]", &["metadata", "labels", "example.com/team"]),
            ("spec.headers[X-Team", &["spec", "headers", "X-Team"]),
            ("a..b.", &["a", "", "b"]),
        ] {
            assert_eq!(steps(field).collect::<Vec<_>>(), parts, "{field}");
        }
        assert_eq!(below(&entry(&below("", "spec"), 3), "name"), "spec[3].name");
        assert_eq!(below("labels", "a.b/c"), "labels[a.b/c]");
    }

    #[test]
    fn a_field_is_within_its_parents_and_itself() {
        for (field, outer, is) in [
            ("spec.url", "spec.url", true),
            ("spec.url.x", "spec.url", true),
            ("spec.headers.X-A", "spec.headers[X-A]", true),
            ("spec", "", true),
            ("spec.urlFrom", "spec.url", false),
            ("spec", "spec.url", false),
        ] {
            assert_eq!(is_within(field, outer), is, "{field} in {outer}");
        }
    }
}
