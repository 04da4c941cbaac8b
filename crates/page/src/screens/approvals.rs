//! The promotions that wait for an approval, and the form that approves one. Pure.

use std::sync::Arc;

use maud::{Markup, html};

use crate::follow::rows::PipelineRow;
use crate::screens::parts::{lasting, quoted, revision};
use relaybook_api::promotion::WaitingApproval;
use relaybook_api::values::permalink;
use relaybook_api::{Promotion, Time};

/// Maximum number of promotions in the list.
const SHOWN: usize = 20;

/// A promotion that waits for an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Approval {
    pub(crate) namespace: String,
    pub(crate) pipeline: String,
    /// The environment to which the revision goes.
    pub(crate) environment: String,
    pub(crate) revision: String,
    /// The uid of the Promotion.
    pub(crate) promotion_uid: String,
    pub(crate) since: Time,
}

impl Approval {
    /// Returns those of a pipeline, in the order of its environments.
    pub(crate) fn of(row: &PipelineRow) -> Vec<Self> {
        let waiting = row.environments.iter().filter_map(|cell| {
            let WaitingApproval { revision, promotion_uid, since, .. } = cell.waits_for_approval.clone()?;
            Some(Self {
                namespace: row.namespace.clone(),
                pipeline: row.name.clone(),
                environment: cell.name.clone(),
                revision,
                promotion_uid,
                since,
            })
        });
        waiting.collect()
    }

    /// Returns those of a pipeline that are not approved. The status of the pipeline follows some time after an approval, so the promotions
    /// that were read decide.
    pub(crate) fn of_unapproved(row: &PipelineRow, promotions: &[Promotion]) -> Vec<Self> {
        let approved: Vec<_> =
            promotions.iter().filter(|one| one.spec.approved).filter_map(|one| one.metadata.uid.as_deref()).collect();
        Self::of(row).into_iter().filter(|one| !approved.contains(&one.promotion_uid.as_str())).collect()
    }

    /// Returns those of all pipelines. The one that has waited for the longest time is first.
    pub(crate) fn of_all<'a>(rows: impl Iterator<Item = &'a Arc<PipelineRow>>) -> Vec<Self> {
        let mut all: Vec<_> = rows.flat_map(|row| Self::of(row)).collect();
        all.sort_by(|a, b| (a.since, &a.namespace, &a.pipeline).cmp(&(b.since, &b.namespace, &b.pipeline)));
        all
    }

    /// The form that approves it. It has the promotion and the revision that the person sees, so no other one is approved. Without a token,
    /// the command.
    pub(crate) fn form(&self, token: Option<&str>) -> Markup {
        let Self { namespace, pipeline, environment, revision, promotion_uid, .. } = self;
        let Some(token) = token else {
            // With `=`, a revision that begins with a hyphen is not taken for a flag.
            let flag = quoted(&format!("--revision={revision}"));
            return html! { code { "relaybook approve " (pipeline) " " (environment) " -n " (namespace) " " (flag) } };
        };
        html! {
            form.approve method="post" action=(format!("{}/approve", permalink::pipeline(namespace, pipeline))) {
                input type="hidden" name="token" value=(token);
                input type="hidden" name="environment" value=(environment);
                input type="hidden" name="revision" value=(revision);
                input type="hidden" name="promotion" value=(promotion_uid);
                button aria-label=(format!("Approve {revision} for {environment} of {namespace}/{pipeline}")) { "Approve" }
            }
        }
    }
}

/// The list of the overview. Empty if nothing waits.
pub(crate) fn list(all: &[Approval], token: Option<&str>, now: Time) -> Markup {
    if all.is_empty() {
        return html! {};
    }
    html! {
        section aria-labelledby="approvals" {
            h2 #approvals { "Promotions that wait for an approval" }
            ul.list.plain {
                @for one in all.iter().take(SHOWN) {
                    li.approval {
                        span {
                            a href=(permalink::pipeline(&one.namespace, &one.pipeline)) { (one.namespace) "/" (one.pipeline) }
                            " " (revision(&one.revision)) " to " (one.environment) " " span.none { (lasting(one.since, now)) }
                        }
                        (one.form(token))
                    }
                }
                @if all.len() > SHOWN { li.none { "and " (all.len() - SHOWN) " more" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screens::overview::testing::row;
    use relaybook_api::PromotionSpec;

    fn waiting(revision: &str, uid: &str, since: i64) -> WaitingApproval {
        let since = Time::from_second(since).unwrap();
        WaitingApproval { revision: revision.to_owned(), promotion: "p".to_owned(), promotion_uid: uid.to_owned(), since }
    }

    #[test]
    fn the_promotion_that_waits_for_the_longest_time_is_first() {
        let at = |second| Time::from_second(second).unwrap();
        let waits = |name: &str, all: &[Option<i64>]| {
            let mut row = row(name, &vec!["Current"; all.len()]);
            for (cell, since) in row.environments.iter_mut().zip(all) {
                cell.waits_for_approval = since.map(|since| waiting(&format!("r{since}"), &format!("u{since}"), since));
            }
            Arc::new(row)
        };
        let rows = [waits("a", &[None, Some(30)]), waits("b", &[Some(20), Some(10)]), waits("c", &[None])];
        let all = Approval::of_all(rows.iter());
        let names: Vec<_> = all.iter().map(|one| format!("{}/{} {}", one.pipeline, one.environment, one.revision)).collect();
        assert_eq!(names, ["b/e1 r10", "b/e0 r20", "a/e1 r30"]);
        assert_eq!(list(&[], Some("t"), at(40)).into_string(), "");
        let with = list(&all, Some("t"), at(40)).into_string();
        assert!(with.contains("name=\"revision\" value=\"r10\"") && with.contains("/pipelines/team-a/b/approve"), "{with}");
        assert!(with.contains("name=\"promotion\" value=\"u10\""), "{with}");
        let without = list(&all, None, at(40)).into_string();
        assert!(!without.contains("<form"), "{without}");
        assert!(without.contains("relaybook approve b e1 -n team-a --revision=r10<"), "{without}");
    }

    #[test]
    fn the_command_approves_only_the_revision_that_was_shown() {
        for (revision, flag) in [
            ("1.2.0", "--revision=1.2.0"),
            ("main@sha1:5f3d2c1", "--revision=main@sha1:5f3d2c1"),
            ("a; rm -rf /", "'--revision=a; rm -rf /'"),
            ("a'b", "'--revision=a'\\''b'"),
        ] {
            let mut row = row("shop", &["Current"]);
            row.environments[0].waits_for_approval = Some(waiting(revision, "u", 10));
            let shown = Approval::of(&row)[0].form(None).into_string();
            assert_eq!(shown, format!("<code>relaybook approve shop e0 -n team-a {flag}</code>"));
        }
    }

    #[test]
    fn a_promotion_that_was_read_as_approved_is_not_offered_again() {
        let mut row = row("shop", &["Current"]);
        row.environments[0].waits_for_approval = Some(waiting("2", "u2", 10));
        for (uid, approved, offered) in [("u2", true, 0), ("u2", false, 1), ("u1", true, 1)] {
            let mut read = Promotion::new("p", PromotionSpec { approved, ..PromotionSpec::default() });
            read.metadata.uid = Some(uid.to_owned());
            assert_eq!(Approval::of_unapproved(&row, &[read]).len(), offered, "{uid} {approved}");
        }
        assert_eq!(Approval::of_unapproved(&row, &[]).len(), 1);
    }
}
