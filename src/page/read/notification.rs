//! One notification.

use std::collections::BTreeMap;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};

use super::{Layers, Nothing, Reader, list, newest_first};
use crate::api::pipeline::target::targets_of;
use crate::api::values::names::{is_label, is_subdomain};
use crate::api::values::refs::ConfigMapKey;
use crate::api::{GROUP, Pipeline};
use crate::audit::{Filter, Row};
use crate::config::{Given, Text};
use crate::k8s::watch::api_in;
use crate::page::follow::rows::NotificationRow;
use crate::page::read::call::{call, in_time};
use crate::page::screens::chart::columns;
use crate::page::screens::notification::NotificationView;
use crate::page::trouble::{Trouble, Wanted};
use crate::preview::{LayeredNotification, covered, live, test_request};

/// Number of pages of deliveries that are read.
const PAGES: usize = 4;

impl Reader<'_> {
    /// Reads one notification.
    pub(in crate::page) async fn notification(&self, namespace: &str, name: &str) -> Result<NotificationView, Nothing> {
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
            Some((pipeline, _)) => match self.explained(pipeline, &layers, Some(name)).await {
                Ok(explained) => Some((pipeline.name_any(), explained)),
                Err(trouble) => {
                    troubles.push(trouble);
                    None
                }
            },
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
        let scope = Some(namespace.to_owned()).filter(|_| !is_wide);
        let api = api_in::<Pipeline>(self.caller.client.clone(), scope.as_ref());
        let wanted = Wanted::new("list", "pipelines", scope.as_deref());
        list(api, 1, &wanted).await
    }

    /// Checks whether the caller may send deliveries again, because a test also makes a request to a receiver.
    async fn may_send(&self, namespace: &str) -> Result<(), Trouble> {
        let attributes = ResourceAttributes {
            verb: Some("patch".to_owned()),
            group: Some(GROUP.to_owned()),
            resource: Some("deliveries".to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec =
            SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..SelfSubjectAccessReviewSpec::default() };
        let api: Api<SelfSubjectAccessReview> = Api::all(self.caller.client.clone());
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let wanted = Wanted::new("create", "selfsubjectaccessreviews", None);
        let review = call(&wanted, api.create(&PostParams::default(), &review)).await?;
        if review.status.is_some_and(|status| status.allowed) {
            return Ok(());
        }
        Err(Trouble::Forbidden(Wanted::new("patch", "deliveries", Some(namespace))))
    }

    /// Sends a test to the receiver of a notification, for the first target of a pipeline that it applies to. Returns whether the receiver accepted it, and the
    /// result in words.
    pub(in crate::page) async fn test(
        &self,
        namespace: &str,
        name: &str,
        pipeline: &str,
    ) -> Result<(bool, String), Trouble> {
        let (home, pipeline) = pipeline.split_once('/').unwrap_or((namespace, pipeline));
        if !is_label(home) || !is_subdomain(pipeline) {
            return Err(Trouble::Other("This is not the name of a pipeline".to_owned()));
        }
        self.may_send(home).await?;
        let wanted = Wanted::new("get", "secrets", Some(home));
        let means = |error| Trouble::of_preview(&error, &wanted);
        let (pipeline, layers) = tokio::join!(self.one_pipeline(home, pipeline), self.layers(home));
        let pipeline = pipeline.map_err(|nothing| match nothing {
            Nothing::Missing(what) => Trouble::Other(format!("{what} does not exist")),
            Nothing::Trouble(trouble) => trouble,
        })?;
        let Layers { notifications, global, unknown } = layers?;
        if let Some(trouble) = unknown.first() {
            let words = "No test was sent, because this configuration can change the request";
            return Err(Trouble::Other(format!("{} {words}", trouble.sentence())));
        }
        let own = notifications.iter().find(|notification| notification.name_any() == name);
        let cluster = &self.settings.cluster_name;
        let applied = targets_of(&pipeline, cluster).into_iter().find_map(|info| {
            let layered = LayeredNotification::for_target(&global, (name, own), &pipeline, Some(&info.name), cluster);
            Some((info.name, layered.ok()?))
        });
        let Some((target, layered)) = applied else {
            return Err(Trouble::Other(format!(
                "Notification {name} applies to no target of Pipeline {home}/{}",
                pipeline.name_any()
            )));
        };
        let texts: BTreeMap<ConfigMapKey, Text> =
            in_time(live::texts(&self.caller.client, layered.config_maps()), means).await?.into_iter().collect();
        let request = {
            let text = |key: &ConfigMapKey| texts.get(key).cloned().unwrap_or(Text::NoConfigMap);
            let given = Given { allow_http: self.settings.allow_http, text: &text };
            let mut context = live::sample_context(&pipeline, Some(&target), cluster, name).map_err(means)?;
            context.page.clone_from(&self.settings.url);
            test_request(&layered, &given, &context).map_err(means)?
        };
        let posted = request.send(&self.caller.client, &self.settings.tests).await.map_err(means)?;
        Ok((posted.accepted, format!("for {target}: {}", posted.words)))
    }
}
