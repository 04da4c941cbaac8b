//! Pure: the problems of a declared strategy that every attempt would have.
//!
//! In: a strategy of a pipeline. Out: each field that no attempt can use, with what to write instead. `relaybook lint` asks, so that nobody has to
//! wait for the first promotion.

use url::Url;

use super::template;
use relaybook_api::promotion::{GitRepository, PromotedPipeline, PromotionStrategy, PullRequestStrategy};
use relaybook_api::values::refs::is_service;
use relaybook_api::{Promotion, PromotionSpec, PromotionStatus};
use relaybook_core::promotion::names;
use relaybook_core::promotion::policy::repository;
use relaybook_forge::{Kind, Repository, RepositoryError, text};
use relaybook_git::{Author, Paths};

/// The problem of one field. The field is relative to the strategy, for example `pullRequest.url`.
pub type Unusable = (String, String);

/// Returns the problems of a strategy. `allow_http`: whether `http` is allowed to any host. `sample`: the name of the pipeline and the names of
/// the environments, for the templates.
#[must_use]
pub fn unusable(strategy: &PromotionStrategy, allow_http: bool, sample: Sample<'_>) -> Vec<Unusable> {
    let Some((of, branch)) = repository(strategy) else { return Vec::new() };
    let (name, branch_field) = if strategy.commit.is_some() { ("commit", "branch") } else { ("pullRequest", "baseBranch") };
    let mut all = Vec::new();
    let mut add = |field: &str, message: String| all.push((format!("{name}.{field}"), message));
    match &strategy.pull_request {
        Some(request) => {
            if let Err((field, message)) = of_forge(request) {
                add(field, message);
            }
            if let Some(api) = request.api_url.as_deref().filter(|api| is_insecure(api, allow_http)) {
                add("apiUrl", insecure(api));
            }
            for (field, template) in [("title", &request.title), ("body", &request.body)] {
                let problem = template.as_ref().and_then(|template| of_template(field, template, strategy, sample).err());
                if let Some(message) = problem {
                    add(field, message);
                }
            }
        }
        None => {
            if let Err(error) = Url::parse(&of.url) {
                add("url", format!("it is not a URL: {error}"));
            }
        }
    }
    if is_insecure(&of.url, allow_http) {
        add("url", insecure(&of.url));
    }
    if let Err(error) = Paths::new(&of.paths) {
        add("paths", error.to_string());
    }
    if !relaybook_git::is_branch(branch) {
        add(branch_field, "it is not the name of a branch; write it without refs/heads/".to_owned());
    }
    if let Some(Err(error)) = of.author.as_ref().map(|author| Author::new(&author.name, &author.email)) {
        add("author", error.to_string());
    }
    if is_reserved(of, strategy) {
        let message = "it is also the Secret of the approval hook, and Relaybook sends nothing from a Secret of that type; use two \
            Secrets";
        add("secretRef", message.to_owned());
    }
    all
}

/// What the templates are rendered with.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Name of the pipeline.
    pub pipeline: &'a str,
    /// The environment to which the revision goes.
    pub environment: &'a str,
    /// The environment before it.
    pub from: &'a str,
}

/// Checks whether the URLs lead to a repository of the forge.
fn of_forge(of: &PullRequestStrategy) -> Result<(), (&'static str, String)> {
    let parsed = |url: &str| Url::parse(url).map_err(|error| format!("it is not a URL: {error}"));
    let url = parsed(&of.repository.url).map_err(|message| ("url", message))?;
    let api = of.api_url.as_deref().map(parsed).transpose().map_err(|message| ("apiUrl", message))?;
    let Err(error) = Repository::new(Kind::from(of.type_), &url, api.as_ref()) else { return Ok(()) };
    // The URL of the API is at fault if that of the repository is a valid one without it.
    let is_of_api = !matches!(error, RepositoryError::Path(_)) && Repository::new(Kind::from(of.type_), &url, None).is_ok();
    Err((if is_of_api { "apiUrl" } else { "url" }, error.to_string()))
}

fn of_template(field: &str, template: &str, strategy: &PromotionStrategy, sample: Sample<'_>) -> Result<(), String> {
    let rendered = template::rendered(template, &template::data(&promotion(strategy, sample)));
    let rendered = rendered.map_err(|error| error.to_string())?;
    if field == "title" && text::titled(&rendered).is_empty() {
        return Err("the title is empty".to_owned());
    }
    Ok(())
}

/// Returns a promotion as a template gets it.
fn promotion(strategy: &PromotionStrategy, sample: Sample<'_>) -> Promotion {
    let spec = PromotionSpec {
        pipeline_ref: PromotedPipeline { name: sample.pipeline.to_owned(), uid: "sample".to_owned() },
        environment: sample.environment.to_owned(),
        from: sample.from.to_owned(),
        revision: "6.5.1".to_owned(),
        previous: Some("6.5.0".to_owned()),
        occasion: 1,
        ..PromotionSpec::default()
    };
    let mut promotion = Promotion::new(&names::name(&spec), spec);
    promotion.metadata.namespace = Some("default".to_owned());
    promotion.status = Some(PromotionStatus { strategy: Some(strategy.clone()), ..PromotionStatus::default() });
    promotion
}

fn is_insecure(url: &str, allow_http: bool) -> bool {
    let http = Url::parse(url).ok().filter(|url| url.scheme() == "http");
    http.is_some_and(|url| !allow_http && !url.domain().is_some_and(is_service))
}

fn insecure(url: &str) -> String {
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    format!("http is not allowed to {host}; use https, a name that ends in .svc, or --allow-http")
}

/// Whether the credentials are those of the approval hook.
fn is_reserved(of: &GitRepository, strategy: &PromotionStrategy) -> bool {
    of.secret_ref.as_ref().zip(strategy.secret_ref.as_ref()).is_some_and(|(ours, hook)| ours.name == hook.name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const SAMPLE: Sample<'_> = Sample { pipeline: "web", environment: "prod", from: "staging" };

    fn told(strategy: Value) -> Vec<Unusable> {
        unusable(&serde_json::from_value(strategy).unwrap(), false, SAMPLE)
    }

    fn pull_request(changes: &Value) -> Vec<Unusable> {
        let mut of = json!({"type": "github", "url": "https://github.com/acme/deploy.git"});
        json_patch::merge(&mut of, changes);
        told(json!({"pullRequest": of}))
    }

    #[test]
    fn settings_that_no_attempt_can_use_are_reported_with_their_field() {
        for (changes, field, words) in [
            (json!({"url": "https://github.com/acme"}), "url", "OWNER/NAME"),
            (json!({"url": "https:///acme/deploy"}), "url", "OWNER/NAME"),
            (json!({"type": "bitbucket-server"}), "url", "scm/PROJECT/NAME"),
            (json!({"apiUrl": "https://t:p@github.com/api"}), "apiUrl", "credentials"),
            (json!({"url": "http://github.com/acme/deploy"}), "url", "http is not allowed to github.com"),
            (json!({"apiUrl": "http://github.com/api/v3"}), "apiUrl", "http is not allowed to github.com"),
            (json!({"paths": ["apps/../secrets"]}), "paths", "apps/../secrets"),
            (json!({"paths": ["/apps"]}), "paths", "/apps"),
            (json!({"baseBranch": "a..b"}), "baseBranch", "name of a branch"),
            (json!({"author": {"name": " ", "email": "a@example.com"}}), "author", "name of the author"),
            (json!({"title": "{{promotion.version}}"}), "title", "promotion.version"),
            (json!({"title": "{{#if previousRevision}}{{/if}}"}), "title", "empty"),
            (json!({"body": "{{#if"}), "body", "line 1"),
        ] {
            let found = pull_request(&changes);
            let [(at, message)] = &found[..] else { panic!("{changes}: {found:?}") };
            assert_eq!(*at, format!("pullRequest.{field}"), "{changes}: {message}");
            assert!(message.contains(words), "{changes}: {message}");
        }
    }

    #[test]
    fn settings_that_attempts_can_use_have_no_problem() {
        for changes in [
            json!({}),
            json!({"title": "{{pipeline.name}} {{promotion.revision}} → {{environment}}", "body": "from {{promotion.from}}"}),
            json!({"paths": ["apps/prod/", "clusters"], "baseBranch": "release/1.x", "author": {"name": "B", "email": "b@e.com"}}),
            json!({"type": "gitea", "url": "http://gitea.git.svc:3000/acme/deploy.git"}),
            json!({"url": "https://github.example.com/acme/deploy", "apiUrl": "https://github.example.com/api/v3"}),
        ] {
            assert_eq!(pull_request(&changes), [], "{changes}");
        }
        assert_eq!(told(json!({"notification": {}, "secretRef": {"name": "a"}})), []);
        assert_eq!(told(json!({"commit": {"url": "https://git.example.com/deploy.git", "branch": "main"}})), []);
        let plain = json!({"commit": {"url": "http://git.example.com/deploy.git"}});
        assert_eq!(told(plain.clone())[0].0, "commit.url");
        assert_eq!(unusable(&serde_json::from_value(plain).unwrap(), true, SAMPLE), []);
    }

    #[test]
    fn one_secret_cannot_be_both_credentials_and_a_key_of_approvals() {
        let with = |hook: &str| {
            told(json!({
                "commit": {"url": "https://git.example.com/deploy.git", "secretRef": {"name": "deploy"}},
                "secretRef": {"name": hook},
            }))
        };
        assert_eq!(with("approvals"), []);
        assert_eq!(with("deploy")[0].0, "commit.secretRef");
    }
}
