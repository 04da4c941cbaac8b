//! Pure: pages of a list.

use http::HeaderMap;

use super::intent::Cursor;

/// Returns the next page of a list of which this page has `count` entries.
///
/// The header `Link` (RFC 8288) says whether there is one; its URL is not used. Proxies can remove the header. Then the total number says
/// it. Without either, the list ends with an empty page, because a page can have fewer entries than it was asked for.
pub(super) fn next(headers: &HeaderMap, cursor: Cursor, count: usize) -> Option<Cursor> {
    let before = cursor.items().saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
    let total =
        ["x-total-count", "x-total"].iter().find_map(|name| headers.get(*name)?.to_str().ok()?.trim().parse::<u64>().ok());
    let links: Vec<&str> = headers.get_all("link").iter().filter_map(|value| value.to_str().ok()).collect();
    let is_more = if links.is_empty() {
        count > 0 && total.is_none_or(|total| before < total)
    } else {
        links.iter().any(|link| has_next(link))
    };
    if is_more { cursor.next(before) } else { None }
}

/// Whether one of the links has the relation `next`.
fn has_next(link: &str) -> bool {
    link.split(';').any(|parameter| {
        // A parameter ends where the next link begins.
        let parameter = parameter.split(',').next().unwrap_or_default();
        let Some((name, value)) = parameter.split_once('=') else { return false };
        name.trim().eq_ignore_ascii_case("rel")
            && value.trim().trim_matches('"').split(' ').any(|rel| rel.eq_ignore_ascii_case("next"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_PAGES;
    use http::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn the_last_page_is_recognized_by_link_or_count() {
        let linked = r#"<https://e.com/a?page=2>; rel="next", <https://e.com/a?page=5>; rel="last""#;
        let last = r#"<https://e.com/a?page=1>; rel="first",<https://e.com/a?page=1>; rel="prev""#;
        for (pairs, count, more) in [
            (&[("link", linked)][..], 30, true),
            (&[("link", linked)], 3, true),
            (&[("link", last)], 30, false),
            (&[("link", r#"<https://e.com/a?rel=next>; rel="last""#)], 30, false),
            (&[("link", "<a>; REL=next")], 30, true),
            (&[("link", last), ("x-total-count", "60")], 30, false),
            (&[("x-total-count", "60")], 30, true),
            (&[("x-total-count", "60")], 10, true),
            (&[("x-total-count", "30")], 30, false),
            (&[("x-total", "31")], 30, true),
            (&[], 30, true),
            (&[], 3, true),
            (&[], 0, false),
            (&[("x-total-count", "60")], 0, false),
        ] {
            assert_eq!(next(&headers(pairs), Cursor::FIRST, count).is_some(), more, "{pairs:?} {count}");
        }
    }

    #[test]
    fn the_number_of_pages_is_bounded() {
        let (mut cursor, mut pages) = (Some(Cursor::FIRST), 0);
        while let Some(at) = cursor {
            pages += 1;
            assert_eq!(at.page(), pages);
            cursor = next(&HeaderMap::new(), at, 30);
        }
        assert_eq!(pages, MAX_PAGES);
    }
}
