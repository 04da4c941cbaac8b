//! The search by revision.

use super::{Nothing, Reader, newest_first, unfinished};
use crate::query::Query;
use crate::screens::search::{Found, PIPELINES};
use crate::trouble::Trouble;
use relaybook_tools::audit::{Entry, Filter};

/// Number of pages of deliveries that one search reads.
const PAGES: usize = 6;
/// Maximum number of deliveries in the result.
const SHOWN: usize = 500;
/// Number of pipelines with such a revision whose deliveries are read first.
const FIRST: usize = 3;

impl Reader<'_> {
    /// Searches a revision in the pipelines, and then in deliveries: first in those of the pipelines that run it, then in all, page by page.
    pub(crate) async fn search(&self, query: &Query) -> Result<Found, Nothing> {
        let namespace = query.namespace.as_deref();
        let mut found = Found {
            pipelines: Vec::new(),
            total: 0,
            entries: Vec::new(),
            cut: 0,
            read: 0,
            next: None,
            troubles: Vec::new(),
        };
        if query.text.is_empty() {
            return Ok(found);
        }
        let text = query.text.to_lowercase();
        let fits = |entry: &Entry| {
            let state = &entry.spec.to;
            let current = state.current.as_deref().unwrap_or_default();
            [state.revision.as_str(), current].iter().any(|revision| revision.to_lowercase().contains(&text))
        };
        match self.rows(namespace).await {
            Ok(followed) => {
                followed.pipelines(|rows| {
                    found.troubles.extend(rows.trouble.clone());
                    for row in rows.all.values().filter(|row| row.runs(&text)) {
                        found.total += 1;
                        if found.pipelines.len() < PIPELINES {
                            found.pipelines.push(row.clone());
                        }
                    }
                });
                found.troubles.extend(unfinished(&followed));
            }
            Err(trouble @ (Trouble::SignedOut | Trouble::NotInstalled)) => return Err(trouble.into()),
            Err(trouble) => found.troubles.push(trouble),
        }
        let mut pages = PAGES;
        if query.after.is_none() {
            let is_reachable = !found.troubles.iter().any(|trouble| matches!(trouble, Trouble::Away(_) | Trouble::Slow));
            for row in found.pipelines.iter().take(FIRST).filter(|_| is_reachable) {
                let filter = Filter { pipeline: Some(row.name.clone()), ..Filter::default() };
                let (own, _) = self.about(&row.namespace, &filter, 1).await;
                pages -= 1;
                found.entries.extend(own.all.into_iter().filter(fits));
            }
        }
        let filter = Filter::default();
        let (mut others, elsewhere) = tokio::join!(
            self.deliveries(namespace, &filter, pages, query.after.as_deref()),
            // They are read with the first part.
            self.elsewhere(namespace.filter(|_| query.after.is_none()), &filter)
        );
        let next = others.next.take();
        others.add(elsewhere);
        others.next = next;
        found.read = others.all.len();
        found.next = others.next;
        found.troubles.extend(others.trouble.filter(|trouble| !found.troubles.contains(trouble)));
        found.entries.extend(others.all.into_iter().filter(fits));
        newest_first(&mut found.entries);
        found.entries.dedup_by(|a, b| (&a.row.namespace, &a.row.name) == (&b.row.namespace, &b.row.name));
        found.cut = found.entries.len().saturating_sub(SHOWN);
        found.entries.truncate(SHOWN);
        Ok(found)
    }
}
