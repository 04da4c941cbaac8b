//! One delivery.

use std::sync::Arc;

use futures::future::OptionFuture;
use kube::ResourceExt as _;

use super::{Layers, Nothing, Reader};
use crate::read::call::{call, in_time};
use crate::screens::delivery::DeliveryView;
use crate::trouble::{Trouble, Wanted};
use relaybook_api::Pipeline;
use relaybook_api::values::refs::ConfigMapKey;
use relaybook_settings::config::{Given, Text};
use relaybook_tools::audit;
use relaybook_tools::audit::{Entry, Filter, StateFilter};
use relaybook_tools::preview::{LayeredNotification, Preview, Recorded, live, recorded};

impl Reader<'_> {
    /// Reads one delivery.
    pub(crate) async fn delivery(&self, namespace: &str, name: &str) -> Result<DeliveryView, Nothing> {
        let wanted = Wanted::new("get", "deliveries", Some(namespace));
        let entry = call(&wanted, audit::entry(&self.caller.client, namespace, name)).await?;
        let entry = self.named(entry.ok_or_else(|| Nothing::Missing(format!("Delivery {namespace}/{name}")))?);
        let waits = entry.row.outcome.is_none() && !entry.again;
        let (request, before) = tokio::join!(self.request(&entry), OptionFuture::from(waits.then(|| self.before(&entry))));
        let mut troubles = Vec::new();
        let before = before.and_then(|before| before.map_err(|trouble| troubles.push(trouble)).ok());
        let request = request.map(|(request, unknown)| {
            troubles.extend(unknown);
            request
        });
        Ok(DeliveryView { entry, request, before, troubles, form_token: self.form_token.clone(), was_resent: false })
    }

    /// Returns the pending deliveries of the same lane that are before this one, and whether there can be others.
    async fn before(&self, entry: &Entry) -> Result<(Vec<Entry>, bool), Trouble> {
        let spec = &entry.spec;
        let filter = Filter {
            pipeline: Some(spec.pipeline_ref.name.clone()),
            notification: Some(spec.notification.clone()),
            state: Some(StateFilter::Pending),
            ..Filter::default()
        };
        let (entries, elsewhere) = self.about(&spec.pipeline_ref.namespace, &filter, 1).await;
        // The deliveries of one lane are in one namespace, unless the URL was moved meanwhile.
        let is_elsewhere = entry.row.namespace != spec.pipeline_ref.namespace;
        if let Some(trouble) = if is_elsewhere { elsewhere } else { entries.trouble } {
            return Err(trouble);
        }
        let is_before = |other: &Entry| {
            let is_same_lane = other.spec.lane == spec.lane && other.spec.pipeline_ref.uid == spec.pipeline_ref.uid;
            // A redelivery is sent outside of its lane, so nothing waits for it.
            is_same_lane && !other.again && other.spec.place() < spec.place()
        };
        let mut before: Vec<_> = entries.all.into_iter().filter(is_before).collect();
        before.sort_by_key(|other| other.spec.place());
        Ok((before, entries.next.is_some()))
    }

    /// Renders the request with the present settings. The second value says what of them is not known.
    async fn request(&self, entry: &Entry) -> Result<(Preview, Vec<Trouble>), Trouble> {
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
        let Layers { notifications, global, unknown } = self.with_layer_namespace(layers?, &pipeline).await;
        let (name, cluster) = (&spec.notification, &self.settings.cluster_name);
        let layered = LayeredNotification::for_subject(&global, name, &notifications, &pipeline, &spec.subject, cluster);
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
            cluster: &self.settings.cluster_name,
            page_url: self.settings.url.as_ref(),
        };
        recorded(layered, &what, &given).map_err(|error| Trouble::of_preview(&error, wanted))
    }
}
