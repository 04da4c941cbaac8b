//! One delivery.

use std::sync::Arc;

use futures::future::OptionFuture;
use kube::ResourceExt as _;

use super::{Layers, Nothing, Reader};
use crate::api::Pipeline;
use crate::api::delivery::SubjectKind;
use crate::api::values::refs::ConfigMapKey;
use crate::audit::{self, Entry, Filter, StateFilter};
use crate::config::{Given, Text};
use crate::page::read::call::{call, in_time};
use crate::page::screens::delivery::DeliveryView;
use crate::page::trouble::{Trouble, Wanted};
use crate::preview::{LayeredNotification, Preview, Recorded, live, recorded};

impl Reader<'_> {
    /// Reads one delivery.
    pub(in crate::page) async fn delivery(&self, namespace: &str, name: &str) -> Result<DeliveryView, Nothing> {
        let wanted = Wanted::new("get", "deliveries", Some(namespace));
        let entry = call(&wanted, audit::entry(&self.caller.client, namespace, name)).await?;
        let entry = entry.ok_or_else(|| Nothing::Missing(format!("Delivery {namespace}/{name}")))?;
        let is_pending = entry.row.outcome.is_none();
        let (request, before) =
            tokio::join!(self.request(&entry), OptionFuture::from(is_pending.then(|| self.before(&entry))));
        let mut troubles = Vec::new();
        let before = before.and_then(|before| {
            before.unwrap_or_else(|trouble| {
                troubles.push(trouble);
                None
            })
        });
        let request = request.map(|(request, unknown)| {
            troubles.extend(unknown);
            request
        });
        Ok(DeliveryView { entry, request, before, troubles, form_token: self.form_token.clone(), was_resent: false })
    }

    /// Returns the pending deliveries of the same lane that are before this one. `None`: the list is too long to know.
    async fn before(&self, entry: &Entry) -> Result<Option<Vec<Entry>>, Trouble> {
        let spec = &entry.spec;
        let filter = Filter {
            pipeline: Some(spec.pipeline_ref.name.clone()),
            notification: Some(spec.notification.clone()),
            selector: Some(format!("pennant.dev/pipeline-namespace={}", spec.pipeline_ref.namespace)),
            state: Some(StateFilter::Pending),
            ..Filter::default()
        };
        let entries = self.deliveries(Some(&entry.row.namespace), &filter, 1, None).await;
        if let Some(trouble) = entries.trouble {
            return Err(trouble);
        }
        let is_before = |other: &Entry| {
            other.spec.lane == spec.lane
                && other.spec.pipeline_ref.uid == spec.pipeline_ref.uid
                && (other.spec.order, other.spec.serial) < (spec.order, spec.serial)
        };
        let mut before: Vec<_> = entries.all.into_iter().filter(is_before).collect();
        before.sort_by_key(|other| (other.spec.order, other.spec.serial));
        Ok(Some(before).filter(|before| !before.is_empty() || entries.next.is_none()))
    }

    /// Renders the request with the present settings. The second value says what of them is not known.
    async fn request(&self, entry: &Entry) -> Result<(Preview, Option<Trouble>), Trouble> {
        let spec = &entry.spec;
        let home = &spec.pipeline_ref.namespace;
        let (pipeline, layers) = tokio::join!(self.one_pipeline(home, &spec.pipeline_ref.name), self.layers(home));
        let gone = |what: &str| Trouble::Other(format!("The request cannot be shown: {what} does not exist any more"));
        let pipeline = pipeline.map_err(|nothing| match nothing {
            Nothing::Missing(what) => gone(&what),
            Nothing::Trouble(trouble) => trouble,
        })?;
        if pipeline.uid().as_deref() != Some(&spec.pipeline_ref.uid) {
            return Err(gone("the pipeline of this delivery"));
        }
        let Layers { notifications, global, unknown } = layers?;
        let own = notifications.iter().find(|notification| notification.name_any() == spec.notification);
        let target = Some(spec.subject.name.as_str()).filter(|_| spec.subject.kind == SubjectKind::Target);
        let layered = LayeredNotification::for_target(
            &global,
            (&spec.notification, own),
            &pipeline,
            target,
            &self.settings.cluster_name,
        );
        let wanted = Wanted::new("get", "configmaps", Some(home));
        let layered = layered.map_err(|error| Trouble::of_preview(&error, &wanted))?;
        Ok((self.rendered(entry, &pipeline, &layered, &wanted).await?, unknown))
    }

    async fn rendered(
        &self,
        entry: &Entry,
        pipeline: &Pipeline,
        layered: &LayeredNotification,
        wanted: &Wanted,
    ) -> Result<Preview, Trouble> {
        let texts = live::texts(&self.caller.client, layered.config_maps());
        let texts = in_time(texts, |error| Trouble::of_preview(&error, wanted)).await?;
        let text = |key: &ConfigMapKey| texts.get(key).cloned().unwrap_or(Text::NoConfigMap);
        let given = Given { allow_http: self.settings.allow_http, text: &text };
        let what = Recorded {
            spec: &entry.spec,
            namespace: &entry.row.namespace,
            superseded: entry.row.superseded,
            labels: Arc::new(pipeline.labels().clone()),
            annotations: Arc::new(pipeline.annotations().clone()),
            page_url: self.settings.url.as_ref(),
        };
        recorded(layered, &what, &given).map_err(|error| Trouble::of_preview(&error, wanted))
    }
}
