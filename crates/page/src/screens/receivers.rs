//! The receivers, by origin: scheme, host and port, or the Secret with the URL. Pure.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::follow::rows::NotificationRow;
use crate::query::Query;
use crate::screens::chart::{Figures, success};
use crate::screens::parts::{Tone, age, badge, command, millis, namespace_field, scroll, trouble};
use crate::trouble::Trouble;
use relaybook_api::Time;
use relaybook_api::values::permalink;

/// Number of notifications of an origin that are named.
const NAMED: usize = 12;

/// One origin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Receiver {
    /// The notifications, by namespace and name, each with whether nothing is wrong with it. `None`: no object says it, because the endpoint
    /// is that of a pipeline or of the global configuration.
    pub(crate) notifications: BTreeMap<(String, String), Option<bool>>,
    /// Whether pipelines have endpoints of their own for some of these notifications. The sums contain their deliveries.
    pub(crate) is_shared: bool,
    /// Sums of the statuses of the notifications.
    pub(crate) pending: i64,
    pub(crate) delivered: i64,
    pub(crate) parked: i64,
    pub(crate) last_sent: Option<Time>,
    /// What the deliveries that were read say.
    pub(crate) sample: Figures,
}

/// What the screen shows.
#[derive(Debug)]
pub(crate) struct Receivers {
    pub(crate) all: BTreeMap<String, Receiver>,
    /// Number of deliveries that were read, and whether there are more.
    pub(crate) read: usize,
    pub(crate) has_more: bool,
    pub(crate) troubles: Vec<Trouble>,
}

impl Receiver {
    /// Adds a notification that sends to the origin.
    pub(crate) fn add(&mut self, row: &NotificationRow) {
        self.notifications.insert((row.namespace.clone(), row.name.clone()), Some(row.is_well()));
        self.pending += row.pending;
        self.delivered += row.delivered;
        self.parked += row.parked;
        self.last_sent = self.last_sent.max(row.last_sent);
    }

    /// Whether a Notification object counts for this receiver.
    fn has_object(&self) -> bool {
        self.notifications.values().any(Option::is_some)
    }

    /// Returns how many deliveries are pending, were delivered and were parked. Without an object, only those that were read are known.
    fn counts(&self) -> (usize, usize, usize) {
        let count = |number: i64| usize::try_from(number).unwrap_or(0);
        let Figures { pending, delivered, parked, .. } = self.sample;
        if self.has_object() {
            (count(self.pending), count(self.delivered), count(self.parked))
        } else {
            (pending, delivered, parked)
        }
    }

    fn state(&self) -> (Tone, &'static str) {
        let ill = self.notifications.values().filter(|is_well| **is_well == Some(false)).count();
        let (pending, delivered, parked) = self.counts();
        let fails = !self.has_object() && self.sample.failing + parked > 0;
        match ill {
            0 if pending + delivered + parked == 0 && self.last_sent.is_none() => (Tone::Quiet, "Not used yet"),
            0 if fails && delivered == 0 => (Tone::Bad, "Needs attention"),
            0 if fails => (Tone::Warn, "Partly"),
            0 => (Tone::Good, "Answers"),
            ill if ill == self.notifications.len() => (Tone::Bad, "Needs attention"),
            _ => (Tone::Warn, "Partly"),
        }
    }
}

impl Receivers {
    /// Returns the content of the page.
    pub(crate) fn html(&self, query: &Query, now: Time) -> Markup {
        let mut all: Vec<_> = self.all.iter().collect();
        all.sort_by_key(|(origin, receiver)| (receiver.state().0.rank(), -receiver.pending, (*origin).clone()));
        html! {
            h1 { "Receivers" }
            @for one in &self.troubles { (trouble(one)) }
            form.filters action="/receivers" { (namespace_field(query)) button { "Show" } }
            @if all.is_empty() && self.troubles.is_empty() { p.empty { "There are no notifications here." } }
            @if !all.is_empty() {
                (scroll("receivers", &html! { table {
                        thead { tr {
                            th scope="col" { "Receiver" } th scope="col" { "State" } th scope="col" { "Pending" } th scope="col" { "Parked" }
                            th scope="col" { "Success" } th scope="col" { "p50" } th scope="col" { "p99" } th scope="col" { "429" } th scope="col" { "Last sent" }
                            th scope="col" { "Notifications" }
                        } }
                        tbody { @for (origin, receiver) in &all { (line(origin, receiver, now)) } }
                    } }))
                p.none {
                    "Pending, parked and success count all kept deliveries of the Notification objects. For other endpoints, and for p50, p99 and 429, they come from "
                    (self.read) " deliveries" @if self.has_more { ", because more are not read" } "."
                }
            }
            (command(&format!("kubectl get notifications {}", query.scope())))
        }
    }
}

fn line(origin: &str, receiver: &Receiver, now: Time) -> Markup {
    let (tone, words) = receiver.state();
    let (pending, delivered, parked) = receiver.counts();
    let took = |percent| receiver.sample.percentile(percent).map_or_else(|| "—".to_owned(), millis);
    html! {
        tr {
            th scope="row" { (origin) @if receiver.is_shared { span.sub { "Some pipelines have endpoints of their own. The counts here contain their deliveries." } } }
            td data-label="State" { (badge(tone, words)) }
            td.number data-label="Pending" { (pending) }
            td.number data-label="Parked" { (parked) }
            td.number data-label="Success" { (success(delivered, parked).unwrap_or_else(|| "—".to_owned())) }
            td.number data-label="p50" { (took(50)) }
            td.number data-label="p99" { (took(99)) }
            td.number data-label="429" { (receiver.sample.throttled) }
            td data-label="Last sent" { @match receiver.last_sent { Some(last) => (age(last, now)), None => span.none { "never" } } }
            td data-label="Notifications" {
                @for ((namespace, name), is_well) in receiver.notifications.iter().take(NAMED) {
                    a href=(permalink::notification(namespace, name)) { (namespace) "/" (name) }
                    @if *is_well == Some(false) { " " (badge(Tone::Bad, "!")) }
                    " "
                }
                @if receiver.notifications.len() > NAMED { span.none { "and " (receiver.notifications.len() - NAMED) " more" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_notification_the_deliveries_alone_decide_the_state_of_a_receiver() {
        let of = |is_well: Option<bool>, (delivered, parked, failing): (usize, usize, usize)| {
            let mut sample = Figures::default();
            (sample.delivered, sample.parked, sample.failing, sample.pending) = (delivered, parked, failing, failing);
            let notifications = [(("team-a".to_owned(), "chat".to_owned()), is_well)].into();
            Receiver { notifications, sample, ..Receiver::default() }
        };
        for (is_well, sample, state, counts) in [
            (None, (0, 0, 0), "Not used yet", (0, 0, 0)),
            (None, (3, 0, 0), "Answers", (0, 3, 0)),
            (None, (3, 1, 0), "Partly", (0, 3, 1)),
            (None, (3, 0, 1), "Partly", (1, 3, 0)),
            (None, (0, 2, 0), "Needs attention", (0, 0, 2)),
            (None, (0, 0, 1), "Needs attention", (1, 0, 0)),
            // The object counts all kept deliveries, so what was read does not matter.
            (Some(true), (0, 2, 0), "Not used yet", (0, 0, 0)),
            (Some(false), (3, 0, 0), "Needs attention", (0, 0, 0)),
        ] {
            let receiver = of(is_well, sample);
            assert_eq!((receiver.state().1, receiver.counts()), (state, counts), "{is_well:?} {sample:?}");
        }
        let used = Receiver { delivered: 5, ..of(Some(true), (0, 2, 0)) };
        assert_eq!((used.state().1, used.counts()), ("Answers", (0, 5, 0)));
    }
}
