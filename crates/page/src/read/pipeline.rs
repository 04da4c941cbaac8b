//! One pipeline.

use std::collections::BTreeMap;

use kube::{Api, ResourceExt as _};

use super::{Nothing, PAGES, Reader, list, newest_first};
use crate::follow::rows::{PipelineRow, revision};
use crate::query::Query;
use crate::read::call::call;
use crate::read::destination::Deployed;
use crate::screens::names;
use crate::screens::pipeline::PipelineView;
use crate::screens::timeline::{Present, timeline};
use crate::trouble::{Trouble, Wanted};
use relaybook_api::pipeline::target::targets_of;
use relaybook_api::{Pipeline, Promotion};
use relaybook_runtime::watch::Guarded;
use relaybook_tools::audit::Filter;
use relaybook_tools::preview::observed;

/// Number of pages of deliveries that are read.
const DELIVERIES: usize = 3;

impl Reader<'_> {
    /// Reads one pipeline.
    pub(crate) async fn pipeline(&self, namespace: &str, name: &str, query: &Query) -> Result<PipelineView, Nothing> {
        let filter = Filter { pipeline: Some(name.to_owned()), ..Filter::default() };
        let (pipeline, layers, (mut entries, elsewhere), promotions) = tokio::join!(
            self.one_pipeline(namespace, name),
            self.layers(namespace),
            self.about(namespace, &filter, DELIVERIES),
            self.promotions(namespace),
        );
        let pipeline = pipeline?;
        let mut troubles: Vec<Trouble> = entries.trouble.take().into_iter().collect();
        let (promotions, unread) = promotions.unwrap_or_else(|trouble| (Vec::new(), vec![trouble]));
        troubles.extend(unread);
        let explained = match layers {
            Ok(layers) => {
                let layers = self.with_layer_namespace(layers, &pipeline).await;
                troubles.extend(self.left_out(&layers, elsewhere));
                self.explained(&pipeline, &layers, None).await
            }
            Err(trouble) => Err(trouble),
        };
        let explained = explained.unwrap_or_else(|trouble| {
            troubles.push(trouble);
            Vec::new()
        });
        let deployed = self.destinations(&targets_of(&pipeline, &self.settings.cluster_name)).await;
        // A pipeline that was deleted and created again has the name of another one.
        let uid = pipeline.uid().unwrap_or_default();
        entries.all.retain(|entry| entry.spec.pipeline_ref.uid == uid);
        newest_first(&mut entries.all);
        let view = self.view(pipeline, &explained, entries, promotions, troubles, query);
        Ok(PipelineView { deployed, ..view })
    }

    fn view(
        &self,
        pipeline: Pipeline,
        explained: &[relaybook_tools::preview::Explained],
        entries: super::Entries,
        promotions: Vec<Promotion>,
        troubles: Vec<Trouble>,
        query: &Query,
    ) -> PipelineView {
        let status = pipeline.status.as_ref();
        let sent = status.and_then(|status| status.dispatched.as_ref()).map(|d| d.last_sent.clone()).unwrap_or_default();
        let infos = targets_of(&pipeline, &self.settings.cluster_name);
        let targets: Vec<_> = infos
            .iter()
            .map(|info| {
                let subject = info.log_subject().to_string();
                let notified = sent.iter().find(|last| last.subject == subject).map(|last| last.time);
                (info.environment.clone(), info.name.clone(), observed(&pipeline, info).cloned(), notified)
            })
            .collect();
        let present: Vec<_> = targets
            .iter()
            .map(|(_, name, status, _)| Present {
                subject: name.clone(),
                status: status.as_ref().map(|status| status.status).unwrap_or_default(),
                revision: status.as_ref().map(|status| revision(status).to_owned()).unwrap_or_default(),
                since: status.as_ref().and_then(|status| status.last_transition_time),
                settled: status.as_ref().and_then(|status| status.settled.as_ref()).map(|s| (s.status, s.revision.clone())),
            })
            .collect();
        let shown =
            infos.iter().map(|info| (info.name.clone(), names::shown(&info.as_subject(), &self.settings.cluster_name)));
        let recorded = entries.all.iter().map(|entry| (entry.spec.subject.name.clone(), entry.row.subject.clone()));
        let names: BTreeMap<String, String> = recorded.chain(shown).collect();
        let shown = |name: String| names.get(&name).cloned().unwrap_or(name);
        let range = query.range(self.now);
        let mut timeline = timeline(&entries.all, &present, explained, range, self.now);
        for lane in &mut timeline.lanes {
            lane.subject = shown(std::mem::take(&mut lane.subject));
        }
        let dispatched = status.and_then(|status| status.dispatched.as_ref());
        let read = dispatched.into_iter().flat_map(|d| &d.cursors).map(|cursor| cursor.serial).min().unwrap_or(i64::MAX);
        let changes = status.and_then(|status| status.log.as_ref()).map(|log| log.changes.as_slice()).unwrap_or_default();
        let mut promotions: Vec<_> = promotions
            .into_iter()
            .filter(|one| Some(&one.spec.pipeline_ref.uid) == pipeline.metadata.uid.as_ref())
            .collect();
        promotions.sort_by_key(|one| std::cmp::Reverse(one.metadata.creation_timestamp.as_ref().map(|time| time.0)));
        PipelineView {
            timeline,
            unread: changes.iter().filter(|change| change.serial > read).count(),
            row: PipelineRow::from(pipeline),
            targets: targets.into_iter().map(|(of, name, status, sent)| (of, shown(name), status, sent)).collect(),
            deployed: Deployed::default(),
            range,
            has_more: entries.next.is_some(),
            entries: entries.all,
            promotions,
            troubles,
            form_token: self.form_token.clone(),
            approved: None,
        }
    }

    pub(super) async fn one_pipeline(&self, namespace: &str, name: &str) -> Result<Pipeline, Nothing> {
        let api: Api<Pipeline> = Api::namespaced(self.caller.client.clone(), namespace);
        let found = call(&Wanted::new("get", "pipelines", Some(namespace)), api.get_opt(name)).await?;
        found.ok_or_else(|| Nothing::Missing(format!("Pipeline {namespace}/{name}")))
    }

    async fn promotions(&self, namespace: &str) -> Result<(Vec<Promotion>, Vec<Trouble>), Trouble> {
        let api: Api<Guarded<Promotion>> = Api::namespaced(self.caller.client.clone(), namespace);
        let wanted = Wanted::new("list", "promotions", Some(namespace));
        list(api, PAGES, &wanted).await
    }
}
