//! A test for the real receiver of a notification, which is sent after the person has confirmed it.

use std::collections::BTreeMap;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;

use super::{Layers, Nothing, Reader, computed};
use crate::read::call::{call, in_time};
use crate::screens::send_test::{Consent, Missing, TestView};
use crate::trouble::{Trouble, Wanted};
use relaybook_api::values::names::{is_label, is_subdomain};
use relaybook_api::values::refs::ConfigMapKey;
use relaybook_api::{GROUP, Pipeline};
use relaybook_settings::config::{Given, Text};
use relaybook_tools::preview::{AddressedTest, TestSample, live, test_request, test_sample};

/// What became of a test.
pub(crate) enum Tested {
    /// The person must confirm it first.
    Asks(Box<TestView>, Missing),
    /// It was sent: whether the receiver accepted it, and the result in words.
    Sent(bool, String),
}

impl Reader<'_> {
    /// Sends a test to the receiver of a notification, for the first target of a pipeline that it applies to. Without consent, returns what
    /// would be sent. A test that would change something is refused.
    pub(crate) async fn test(
        &self,
        namespace: &str,
        name: &str,
        pipeline: &str,
        consent: Consent<'_>,
    ) -> Result<Tested, Trouble> {
        let (home, pipeline) = pipeline.split_once('/').unwrap_or((namespace, pipeline));
        if !is_label(home) || !is_subdomain(pipeline) {
            return Err(Trouble::Other("This is not the name of a pipeline".to_owned()));
        }
        self.may_send(home).await?;
        let wanted = Wanted::new("get", "secrets", Some(home));
        let means = |error| Trouble::of_preview(&error, &wanted);
        let sample = Box::pin(self.sample(home, pipeline, name)).await?;
        let config_maps = sample.notification.config_maps();
        let texts: BTreeMap<ConfigMapKey, Text> =
            in_time(live::texts(&self.caller.client, config_maps), means).await?.into_iter().collect();
        let request = {
            let text = |key: &ConfigMapKey| texts.get(key).cloned().unwrap_or(Text::NoConfigMap);
            let given = Given { allow_http: self.settings.allow_http, text: &text };
            test_request(&sample, &given).map_err(means)?
        };
        let test = in_time(request.addressed(&self.caller.client, &self.settings.tests), means).await?;
        let view = self.confirmation(&test, namespace, name, format!("{home}/{pipeline}"));
        if let Err(missing) = consent.check(&view) {
            return Ok(Tested::Asks(Box::new(view), missing));
        }
        let posted = test.send().await;
        Ok(Tested::Sent(posted.accepted, format!("for {}: {}", view.about, posted.words)))
    }

    fn confirmation(&self, test: &AddressedTest, namespace: &str, name: &str, pipeline: String) -> TestView {
        let AddressedTest { request, receiver, .. } = test;
        TestView {
            namespace: namespace.to_owned(),
            notification: name.to_owned(),
            pipeline,
            type_: request.preview.trigger,
            about: request.about.clone(),
            method: request.preview.method,
            receiver: receiver.clone(),
            marked: request.marked,
            request: request.preview.text(),
            form_token: self.form_token.clone(),
        }
    }

    /// Returns the sample of a test, if one may be sent.
    async fn sample(&self, namespace: &str, pipeline: &str, name: &str) -> Result<TestSample, Trouble> {
        let (pipeline, layers) = tokio::join!(self.one_pipeline(namespace, pipeline), self.layers(namespace));
        let pipeline: Pipeline = pipeline.map_err(|nothing| match nothing {
            Nothing::Missing(what) => Trouble::Other(format!("{what} does not exist")),
            Nothing::Trouble(trouble) => trouble,
        })?;
        let layers: Layers = self.with_layer_namespace(layers?, &pipeline).await;
        if let Some(trouble) = layers.unknown.first() {
            let words = "No test was sent, because this configuration can change the request";
            return Err(Trouble::Other(format!("{} {words}", trouble.sentence())));
        }
        let (settings, name) = (self.settings.clone(), name.to_owned());
        let wanted = Wanted::new("get", "pipelines", Some(namespace));
        let work = move || {
            let known = layers.known(&settings, &pipeline);
            let sample = test_sample(&pipeline, &known, &name, settings.url.as_ref());
            sample.map_err(|error| Trouble::of_preview(&error, &wanted))
        };
        computed(work).await?
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
}
