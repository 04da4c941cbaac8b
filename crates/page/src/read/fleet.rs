//! The overview and the clusters, from the rows that are followed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::recent::Recorded;
use super::{Nothing, Reader, unfinished};
use crate::follow::rows::PipelineRow;
use crate::query::Query;
use crate::read::uncounted::Unsent;
use crate::screens::approvals::Approval;
use crate::screens::overview::{Overview, Unwell, choose};
use crate::screens::recent::Recent;
use crate::screens::simple::Cluster;
use crate::trouble::Trouble;
use relaybook_api::values::refs::ClusterRef;
use relaybook_tools::diagnosis::of_pending;

impl Reader<'_> {
    /// Reads the overview.
    pub(crate) async fn overview(&self, query: &Query) -> Result<Overview, Nothing> {
        let namespace = query.namespace.as_deref();
        let rows = async {
            let followed = self.rows(namespace).await?;
            let recorded = followed.pipelines(|rows| Recorded::of(rows, self.now));
            let messages = self.messages(namespace, &recorded).await;
            Ok::<_, Trouble>((followed, messages))
        };
        let (rows, unsent) = tokio::join!(rows, self.uncounted(namespace));
        let (followed, messages) = rows?;
        let mut troubles = Vec::new();
        let (chosen, findings, clusters, approvals, recent) = followed.pipelines(|rows| {
            troubles.extend(rows.trouble.clone());
            let all = || rows.all.values();
            let is_complete = rows.is_listed && rows.trouble.is_none() && rows.unreadable.is_empty();
            let recent = Recent::of(all(), is_complete, messages.as_deref(), self.now);
            let findings = all().flat_map(|row| row.findings(self.now)).count();
            (choose(query, all(), self.now), findings, clusters(all()), Approval::of_all(all()), recent)
        });
        troubles.extend(followed.unreadable());
        let mut overview = Overview {
            chosen,
            findings,
            approvals,
            recent,
            form_token: self.form_token.clone(),
            unwell: Vec::new(),
            notifications: 0,
            pending: None,
            parked: None,
            home: namespace.unwrap_or(&self.settings.config_map.namespace).to_owned(),
            without_object: unsent.is_some().then(BTreeMap::new),
            is_complete: followed.is_complete(),
            offline: clusters.into_iter().filter(|cluster| !cluster.is_reachable).map(|cluster| cluster.name).collect(),
            troubles,
        };
        followed.notifications(|rows| {
            overview.notifications = rows.all.len();
            // During an outage, the numbers that were known are shown.
            if rows.is_listed && rows.trouble.as_ref().is_none_or(Trouble::is_passing) {
                overview.pending = Some(rows.all.values().map(|row| row.pending).sum());
                overview.parked = Some(rows.all.values().map(|row| row.parked).sum());
            }
            overview.unwell = Unwell::of_all(rows.all.values(), self.now);
            if let Some(trouble) = &rows.trouble
                && !overview.troubles.contains(trouble)
            {
                overview.troubles.push(trouble.clone());
            }
        });
        let mut waiting = Vec::new();
        followed.notifications(|rows| {
            // Those that are counted by an object are in the sums already.
            let is_counted = |one: &Unsent| rows.all.contains_key(&(one.namespace.clone(), one.notification.clone()));
            for one in unsent.iter().flat_map(|all| all.iter()).filter(|one| !is_counted(one)) {
                overview.add(one);
                waiting.extend(one.waits.clone());
            }
        });
        for finding in of_pending(&waiting, self.now) {
            overview.explain(finding);
        }
        Ok(overview)
    }

    /// Reads the clusters.
    pub(crate) async fn clusters(&self, query: &Query) -> Result<(Vec<Cluster>, Vec<Trouble>), Nothing> {
        let followed = self.rows(query.namespace.as_deref()).await?;
        let (all, trouble) = followed.pipelines(|rows| (clusters(rows.all.values()), rows.trouble.clone()));
        Ok((all, trouble.into_iter().chain(unfinished(&followed)).collect()))
    }
}

/// Returns the clusters of these pipelines, those that do not answer first.
fn clusters<'a>(rows: impl Iterator<Item = &'a Arc<PipelineRow>>) -> Vec<Cluster> {
    let mut states: BTreeMap<(String, &'static str), Cluster> = BTreeMap::new();
    for row in rows {
        for cluster in &row.clusters {
            let reference: ClusterRef = cluster.cluster_ref.seen_from(&row.namespace);
            let (name, kind) = (reference.full_name(), reference.kind.as_str());
            let state = states.entry((name.clone(), kind)).or_insert_with(|| Cluster {
                kind,
                name,
                is_reachable: true,
                since: None,
                pipelines: Vec::new(),
            });
            // The most pessimistic pipeline decides, and the time is that of its state.
            if state.is_reachable == cluster.reachable {
                state.since = state.since.max(cluster.since);
            } else if state.is_reachable {
                (state.is_reachable, state.since) = (false, cluster.since);
            }
            state.pipelines.push((row.namespace.clone(), row.name.clone()));
        }
    }
    let mut all: Vec<_> = states.into_values().collect();
    // The names are sorted already.
    all.sort_by_key(|cluster| cluster.is_reachable);
    all
}
