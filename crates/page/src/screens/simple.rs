//! Screens without data of Relaybook: sign-in, errors, the entry from another site; and the clusters. Pure.

use maud::{Markup, html};

use crate::query::Query;
use crate::screens::parts::{Tone, age, badge, command, namespace_field, scroll, trouble};
use crate::trouble::Trouble;
use relaybook_api::Time;
use relaybook_api::values::permalink;

/// The form in which a person enters a token.
pub(crate) fn sign_in(next: &str, problem: Option<&str>) -> Markup {
    html! {
        h1 { "Sign in" }
        @if let Some(problem) = problem { p.notice.bad role="alert" { (problem) } }
        form.sign-in method="post" action="/sign-in" {
            input type="hidden" name="next" value=(next);
            label { span { "Token of the cluster" }
                input type="password" name="bearer" required maxlength="4096" autocomplete="off" spellcheck="false";
            }
            button { "Sign in" }
        }
        p { "The API server decides with this token what you see. It is kept encrypted in a cookie of this browser, for twelve hours at most." }
        (command("kubectl create token NAME --namespace NAMESPACE --duration 1h"))
    }
}

/// The page for a browser without the cookie of `relaybook page`.
pub(crate) fn no_ticket(was_used: bool) -> Markup {
    html! {
        h1 { "This address is for one browser" }
        @if was_used { p { "The address that `relaybook page` printed can be opened once, and it was opened already, or it is not complete." } }
        p { "Use the browser in which it was opened, or start the page again." }
        (command("relaybook page"))
    }
}

/// The page for a link on another site: it loads the page once more, and then the browser sends the cookie.
pub(crate) fn from_elsewhere(path: &str) -> Markup {
    html! {
        (maud::DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "Relaybook" }
                meta http-equiv="refresh" content=(format!("0;url={path}"));
            }
            body { p { a href=(path) { "Continue to Relaybook" } } }
        }
    }
}

/// A page that only says what is wrong.
pub(crate) fn problem(title: &str, sentences: &[String], same: Option<&str>) -> Markup {
    html! {
        h1 { (title) }
        @for sentence in sentences { p.notice.warn role="status" { (sentence) } }
        p { a href="/" { "To the overview" } }
        @if let Some(same) = same { (command(same)) }
    }
}

/// One cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    /// Whether all pipelines see it as reachable.
    pub(crate) is_reachable: bool,
    pub(crate) since: Option<Time>,
    /// The pipelines with a target there, by namespace and name.
    pub(crate) pipelines: Vec<(String, String)>,
}

/// Number of pipelines of a cluster that are named.
const NAMED: usize = 20;

/// The fields of the clusters, as a template of kubectl.
const CLUSTERS: &str = r#"{range .items[*].status.clusters[*]}{.clusterRef}{"\t"}{.reachable}{"\n"}{end}"#;

/// The screen of the clusters.
pub(crate) fn clusters(all: &[Cluster], troubles: &[Trouble], query: &Query, now: Time) -> Markup {
    let offline = all.iter().filter(|cluster| !cluster.is_reachable).count();
    html! {
        h1 { "Clusters" }
        @for one in troubles { (trouble(one)) }
        form.filters action="/clusters" { (namespace_field(query)) button { "Show" } }
        @if all.is_empty() && troubles.is_empty() {
            p.empty { "No pipeline here reports another cluster. A cluster is listed after its first answer, or when Relaybook has waited for it for " code { "--cluster-grace" } ". The cluster that Relaybook runs in is not listed." }
        }
        @if !all.is_empty() {
            @if offline == 0 { p.verdict.good { "All clusters answer: " (all.len()) "." } }
            @else { p.verdict.bad { "Offline: " (offline) " of " (all.len()) " clusters. The targets there keep the last known state." } }
            (scroll("clusters", &html! { table {
                    thead { tr { th scope="col" { "Cluster" } th scope="col" { "State" } th scope="col" { "Since" } th scope="col" { "Affected pipelines" } } }
                    tbody {
                        @for cluster in all {
                            tr {
                                th scope="row" { (cluster.name) span.sub { (cluster.kind) } }
                                td data-label="State" { @if cluster.is_reachable { (badge(Tone::Good, "Reachable")) } @else { (badge(Tone::Bad, "Offline")) } }
                                td data-label="Since" { @match cluster.since { Some(since) => (age(since, now)), None => span.none { "not known" } } }
                                td data-label="Affected pipelines" {
                                    @for (namespace, name) in cluster.pipelines.iter().take(NAMED) {
                                        a href=(permalink::pipeline(namespace, name)) { (namespace) "/" (name) } " "
                                    }
                                    @if cluster.pipelines.len() > NAMED { span.none { "and " (cluster.pipelines.len() - NAMED) " more" } }
                                }
                            }
                        }
                    }
                } }))
        }
        (command(&format!("kubectl get pipelines {} -o jsonpath='{CLUSTERS}'", query.scope())))
    }
}
