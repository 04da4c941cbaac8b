//! Pure: renders the templates of title and description.
//!
//! In: a template of the strategy, and the promotion. Out: the text, or a problem with its position. The templates have the data and the limits
//! of those of notifications, as for the transition `PromotionRequested` of this promotion.

use std::sync::Arc;

use super::values::always;
use relaybook_api::delivery::{PipelineRef, Subject, SubjectKind};
use relaybook_api::promotion::{Phase, PromotionState};
use relaybook_api::{DeliverySpec, Promotion, PromotionSpec, State, Status, Time, TransitionType};
use relaybook_core::promotion::policy::strategy_name;
use relaybook_core::promotion::progress::Problem;
use relaybook_forge::text::shown;
use relaybook_settings::render::{Body, Data, Parameters, RenderError, Values};

/// The texts are Markdown, so the values are not escaped.
const CONTENT_TYPE: &str = "text/markdown";

/// Renders a template. `field`: its name in the strategy.
pub(super) fn render(field: &str, template: &str, promotion: &Promotion) -> Result<String, Problem> {
    let rendered = rendered(template, &data(promotion));
    rendered
        .map_err(|error| always("TemplateInvalid", &format!("the template pullRequest.{field} cannot be rendered: {error}")))
}

pub(super) fn rendered(template: &str, data: &Data) -> Result<String, RenderError> {
    let parameters = Parameters::default();
    Body::compile(CONTENT_TYPE, template, &parameters)?.render(&Values::new(data, &parameters)?)
}

/// Returns the data of the templates.
pub(super) fn data(promotion: &Promotion) -> Data {
    // The forge acts on what it finds in a text, for example on the name of a person. So the values are escaped as in the default texts.
    let spec = safe(&promotion.spec);
    let metadata = &promotion.metadata;
    let namespace = metadata.namespace.clone().unwrap_or_default();
    let strategy = promotion.status.as_ref().and_then(|status| status.strategy.as_ref());
    let before = State { current: spec.previous.clone(), ..State::default() };
    let after = State {
        status: Status::InProgress,
        revision: spec.revision.clone(),
        current: spec.previous.clone(),
        promotion: Some(PromotionState {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            phase: Phase::Requested,
            strategy: strategy.map_or("", strategy_name).to_owned(),
            from: spec.from.clone(),
            url: String::new(),
        }),
        ..State::default()
    };
    let transition = DeliverySpec {
        pipeline_ref: PipelineRef {
            namespace: namespace.clone(),
            name: spec.pipeline_ref.name.clone(),
            uid: spec.pipeline_ref.uid.clone(),
        },
        subject: Subject {
            kind: SubjectKind::Environment,
            name: spec.environment.clone(),
            environment: spec.environment.clone(),
            ..Subject::default()
        },
        serial: spec.occasion,
        type_: TransitionType::PromotionRequested,
        time: metadata.creation_timestamp.as_ref().map_or(Time::UNIX_EPOCH, |time| time.0),
        from: before,
        to: after,
        ..DeliverySpec::default()
    };
    Data::new("", &transition, &Arc::default(), &Arc::default(), &namespace)
}

/// Returns the spec with texts that a forge only shows.
fn safe(spec: &PromotionSpec) -> PromotionSpec {
    PromotionSpec {
        environment: shown(&spec.environment),
        from: shown(&spec.from),
        revision: shown(&spec.revision),
        previous: spec.previous.as_deref().map(shown),
        ..spec.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use relaybook_core::promotion::testing::{new, spec};

    #[test]
    fn a_hostile_revision_is_only_shown() {
        let hostile = new(PromotionSpec { revision: "@team fixes #1".into(), ..spec(20, 0) });
        let text = render("title", "{{promotion.revision}} {{revision}}", &hostile).unwrap();
        assert!(!text.contains('@') && !text.contains('#'), "{text}");
    }

    #[test]
    fn templates_of_pull_requests_have_the_data_of_a_request() {
        let promotion = new(spec(20, 0));
        let text =
            render("title", "{{pipeline.name}} {{promotion.revision}} {{promotion.from}}-{{environment}}", &promotion);
        assert_eq!(text.unwrap(), "web 2 staging-prod");
        let problem = render("body", "{{promotion.version}}", &promotion).unwrap_err();
        assert_eq!(problem.reason, "TemplateInvalid");
        assert!(problem.message.contains("pullRequest.body") && problem.message.contains("version"), "{}", problem.message);
    }
}
