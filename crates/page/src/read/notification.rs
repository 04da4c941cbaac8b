//! One notification.

use kube::ResourceExt as _;

use super::{Layers, Nothing, Reader, list, newest_first};
use crate::follow::rows::NotificationRow;
use crate::screens::chart::columns;
use crate::screens::notification::NotificationView;
use crate::trouble::{Trouble, Wanted};
use relaybook_api::Pipeline;
use relaybook_runtime::watch::api_in;
use relaybook_tools::audit::{Filter, Row};
use relaybook_tools::preview::covered;

/// Number of pages of deliveries that are read.
const PAGES: usize = 4;

impl Reader<'_> {
    /// Reads one notification.
    pub(crate) async fn notification(&self, namespace: &str, name: &str) -> Result<NotificationView, Nothing> {
        let filter = Filter { notification: Some(name.to_owned()), ..Filter::default() };
        let (layers, pipelines, (mut entries, elsewhere)) =
            tokio::join!(self.layers(namespace), self.pipelines(namespace, name), async {
                // Here are also the deliveries of cluster-wide notifications about pipelines of other namespaces.
                if namespace == self.settings.config_map.namespace {
                    return (self.deliveries(Some(namespace), &filter, PAGES, None).await, None);
                }
                self.about(namespace, &filter, PAGES).await
            });
        let layers = layers?;
        let own = layers.notifications.iter().find(|notification| notification.name_any() == name);
        let left_out = self.left_out(&layers, elsewhere);
        let mut troubles: Vec<Trouble> = entries.trouble.take().into_iter().chain(left_out).collect();
        let (pipelines, unread) = pipelines.unwrap_or_else(|trouble| (Vec::new(), vec![trouble]));
        troubles.extend(unread);
        let covered = self.covered(&pipelines, &layers, name);
        if own.is_none() && covered.is_empty() && layers.global.get(name).is_none() && entries.all.is_empty() {
            return Err(Nothing::Missing(format!("Notification {namespace}/{name}")));
        }
        let explained = match covered.first() {
            Some((pipeline, _)) => {
                let layers = self.with_layer_namespace(layers.clone(), pipeline).await;
                match self.explained(pipeline, &layers, Some(name)).await {
                    Ok(explained) => Some((pipeline.name_any(), explained)),
                    Err(trouble) => {
                        troubles.push(trouble);
                        None
                    }
                }
            }
            None => None,
        };
        newest_first(&mut entries.all);
        let rows: Vec<&Row> = entries.all.iter().map(|entry| &entry.row).collect();
        Ok(NotificationView {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            row: own.cloned().map(NotificationRow::from),
            is_layered: layers.global.get(name).is_some() || !covered.is_empty(),
            columns: columns(&rows, self.now),
            pipelines: covered
                .iter()
                .map(|(pipeline, targets)| (pipeline.namespace().unwrap_or_default(), pipeline.name_any(), *targets))
                .collect(),
            explained,
            has_more: entries.next.is_some(),
            entries: entries.all,
            troubles,
            form_token: self.form_token.clone(),
            tested: None,
        })
    }

    /// Returns the pipelines to which a notification applies, each with its number of targets.
    fn covered<'p>(&self, pipelines: &'p [Pipeline], layers: &Layers, name: &str) -> Vec<(&'p Pipeline, usize)> {
        let count = |pipeline| covered(pipeline, &layers.known(self.settings, pipeline), name);
        pipelines.iter().filter_map(|pipeline| Some((pipeline, count(pipeline)?))).collect()
    }

    /// Reads the pipelines that a notification can apply to: those of its namespace, or all if it is cluster-wide.
    async fn pipelines(&self, namespace: &str, name: &str) -> Result<(Vec<Pipeline>, Vec<Trouble>), Trouble> {
        let is_wide = namespace == self.settings.config_map.namespace && self.global().await?.0.get(name).is_some();
        let scope = Some(namespace).filter(|_| !is_wide);
        list(api_in(&self.caller.client, scope), 1, &Wanted::new("list", "pipelines", scope)).await
    }
}
