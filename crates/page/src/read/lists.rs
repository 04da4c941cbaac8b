//! The receivers, and the deliveries that are pending or parked.

use std::collections::BTreeMap;

use super::{Nothing, Reader, unfinished};
use crate::follow::Rows;
use crate::follow::rows::{NotificationRow, OwnEndpoint, origin};
use crate::query::Query;
use crate::read::call::in_time;
use crate::screens::chart::Figures;
use crate::screens::receivers::{Receiver, Receivers};
use crate::screens::undelivered::{ROWS, Total, Undelivered, Which};
use crate::trouble::{Trouble, Wanted};
use relaybook_api::delivery::SubjectKind;
use relaybook_api::notification::Endpoint;
use relaybook_settings::config::Global;
use relaybook_settings::config::layers::{Layer, fold};
use relaybook_tools::audit;
use relaybook_tools::audit::{Entry, Filter, Row};

/// Number of pages of deliveries from which the screen of receivers takes durations.
const SAMPLED: usize = 4;
/// The origin of deliveries about targets of an environment in which single targets have endpoints.
const SINGLE: &str = "not known: some targets have endpoints of their own";
/// The origin of notifications whose endpoint is not known.
const UNKNOWN: &str =
    "not known: no Notification that you may read sets the endpoint. It can be in the global configuration";

impl Reader<'_> {
    /// Reads the receivers.
    pub(crate) async fn receivers(&self, query: &Query) -> Result<Receivers, Nothing> {
        let namespace = query.namespace.as_deref();
        let filter = Filter::default();
        let (followed, global, mut sample, elsewhere) = tokio::join!(
            self.rows(namespace),
            self.global(),
            self.deliveries(namespace, &filter, SAMPLED, None),
            self.elsewhere(namespace, &filter)
        );
        let followed = followed?;
        sample.add(elsewhere);
        let mut troubles: Vec<Trouble> = sample.trouble.into_iter().collect();
        let below = match global {
            Ok((global, unknown)) => {
                troubles.extend(unknown);
                origins_below(&global, &self.settings.config_map.namespace)
            }
            Err(trouble) => {
                troubles.push(trouble);
                BTreeMap::new()
            }
        };
        let of = |name: &str| below.get(name).or_else(|| below.get("")).cloned();
        let mut all: BTreeMap<String, Receiver> = BTreeMap::new();
        let mut origins: BTreeMap<(String, String), String> = BTreeMap::new();
        followed.notifications(|rows| {
            troubles.extend(rows.trouble.clone());
            for row in rows.all.values() {
                let origin = row.origin.clone().or_else(|| of(&row.name)).unwrap_or_else(|| UNKNOWN.to_owned());
                origins.insert((row.namespace.clone(), row.name.clone()), origin.clone());
                all.entry(origin).or_default().add(row);
            }
        });
        let mut own: BTreeMap<(String, String), Vec<OwnEndpoint>> = BTreeMap::new();
        followed.pipelines(|rows| {
            for row in rows.all.values().filter(|row| !row.endpoints.is_empty()) {
                own.insert((row.namespace.clone(), row.name.clone()), row.endpoints.clone());
                for endpoint in &row.endpoints {
                    let receiver = all.entry(endpoint.origin.clone()).or_default();
                    receiver.notifications.entry((row.namespace.clone(), endpoint.notification.clone())).or_insert(None);
                }
            }
        });
        for ((namespace, _), endpoint) in own.iter().flat_map(|(key, all)| all.iter().map(move |endpoint| (key, endpoint))) {
            let base = origins.get(&(namespace.clone(), endpoint.notification.clone()));
            if let Some(receiver) = base.and_then(|origin| all.get_mut(origin)) {
                receiver.is_shared = true;
            }
        }
        let mut samples: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
        for entry in &sample.all {
            let origin = origin_of(entry, &own, &origins).or_else(|| of(&entry.row.notification));
            samples.entry(origin.unwrap_or_else(|| UNKNOWN.to_owned())).or_default().push(&entry.row);
        }
        for (origin, rows) in samples {
            all.entry(origin).or_default().sample = Figures::of(rows.into_iter());
        }
        troubles.extend(unfinished(&followed));
        let has_more = sample.next.is_some();
        Ok(Receivers { all, read: sample.all.len(), has_more, troubles })
    }

    /// Reads one page of the deliveries that are pending, or that were parked.
    pub(crate) async fn undelivered(&self, which: Which, query: &Query) -> Result<Undelivered, Nothing> {
        let namespace = query.namespace.as_deref();
        let filter = Filter { state: Some(which.state()), ..Filter::default() };
        let wanted = Wanted::new("list", "deliveries", namespace);
        let token = query.after.clone().unwrap_or_default();
        let page = audit::page(&self.caller.client, namespace, &filter, ROWS, &token);
        let page = in_time(page, |e| Trouble::of_audit(&e, &wanted));
        // They are shown with the first page.
        let elsewhere = self.elsewhere(namespace.filter(|_| token.is_empty()), &filter);
        let (page, elsewhere, followed) = tokio::join!(page, elsewhere, self.rows(namespace));
        let (mut page, mut troubles) = match page {
            Ok(page) => (page, Vec::new()),
            Err(trouble @ (Trouble::SignedOut | Trouble::NotInstalled)) => return Err(trouble.into()),
            Err(trouble) => (audit::Page::default(), vec![trouble]),
        };
        let is_known = |rows: &Rows<NotificationRow>| rows.is_listed && rows.trouble.is_none();
        let sum = |rows: &Rows<NotificationRow>| is_known(rows).then(|| rows.all.values().map(|row| which.count(row)).sum());
        let total = followed.ok().and_then(|followed| followed.notifications(sum));
        page.entries = page.entries.into_iter().map(|entry| self.named(entry)).chain(elsewhere.all).collect();
        // The Notifications do not count the deliveries of deleted ones, nor those that are elsewhere.
        let listed = i64::try_from(page.entries.len()).unwrap_or(i64::MAX);
        let is_all_elsewhere = elsewhere.next.is_none() && elsewhere.trouble.is_none();
        let is_all = token.is_empty() && page.next.is_none() && troubles.is_empty() && is_all_elsewhere;
        let total = Total::of(listed, is_all, total);
        troubles.extend(elsewhere.trouble.filter(|trouble| !matches!(trouble, Trouble::Forbidden(_))));
        let form_token = self.form_token.clone();
        Ok(Undelivered { which, entries: page.entries, next: page.next, total, troubles, form_token, resent: None })
    }
}

/// Returns the origins of the global configuration: of its notifications by name, and of its defaults under an empty name.
pub(super) fn origins_below(global: &Global, namespace: &str) -> BTreeMap<String, String> {
    let of = |layers: &[Layer]| {
        let folded = fold(layers, |_| {}).ok()?;
        let endpoint: Endpoint = serde_json::from_value(folded.value.get("endpoint")?.clone()).ok()?;
        origin(&endpoint, namespace)
    };
    let named = global.notifications().map(|(name, wide)| (name.clone(), global.layers_below(Some(wide), None)));
    let all = named.chain([(String::new(), global.layers_below(None, None))]);
    all.filter_map(|(name, layers)| Some((name, of(&layers)?))).collect()
}

/// Returns the origin that a delivery was sent to: that of the most specific layer with an endpoint.
fn origin_of(
    entry: &Entry,
    own: &BTreeMap<(String, String), Vec<OwnEndpoint>>,
    origins: &BTreeMap<(String, String), String>,
) -> Option<String> {
    let (row, spec) = (&entry.row, &entry.spec);
    let pipeline = (spec.pipeline_ref.namespace.clone(), spec.pipeline_ref.name.clone());
    let layers = own.get(&pipeline).into_iter().flatten().filter(|layer| layer.notification == row.notification);
    let fitting = layers.filter(|layer| layer.environment.as_ref().is_none_or(|name| *name == spec.subject.environment));
    let layer = fitting.max_by_key(|layer| (layer.is_of_some, layer.environment.is_some()));
    if layer.is_some_and(|layer| layer.is_of_some && spec.subject.kind == SubjectKind::Target) {
        return Some(SINGLE.to_owned());
    }
    let layer = layer.filter(|layer| !layer.is_of_some);
    let base = || origins.get(&(spec.pipeline_ref.namespace.clone(), row.notification.clone()));
    layer.map(|layer| &layer.origin).or_else(base).cloned()
}
