//! Canary of Flagger (<https://docs.flagger.app/usage/how-it-works#canary-status>).
//!
//! `status.phase` says where the analysis of the newest version of the target is, and `Promoted` has the words for it. After `Failed`, the old
//! version runs. The status contains no generation. The version is in the object that the Canary refers to, so it is that of the label.

use super::super::kstatus::Verdict;
use super::super::revision;
use super::super::view::View;
use super::{Reading, Rules};

pub(super) static CANARY: Rules = Rules { group: "flagger.app", kind: "Canary", reader: "canary/1", read };

fn read(view: &View<'_>) -> Reading {
    Reading::declared(verdict(view), revision::of_label(view)).suspended(view.flag("/spec/suspend"))
}

fn verdict(view: &View<'_>) -> Verdict {
    let promoted = view.condition("Promoted");
    let message = promoted.map(|promoted| promoted.message).unwrap_or_default();
    match view.text("/status/phase") {
        "Initialized" | "Succeeded" => Verdict::current(),
        "Failed" => {
            let reason = promoted.map(|promoted| promoted.reason).filter(|reason| !reason.is_empty());
            Verdict::failed(reason.unwrap_or("Failed"), message)
        }
        "" => Verdict::in_progress("NoStatus", "its controller has not written a phase yet"),
        phase => Verdict::in_progress(phase, message),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::*;

    #[test]
    fn the_phase_of_a_canary_determines_its_status() {
        for (phase, want) in [
            ("Initialized", Current),
            ("Succeeded", Current),
            ("Failed", Failed),
            ("Initializing", InProgress),
            ("Waiting", InProgress),
            ("Progressing", InProgress),
            ("WaitingPromotion", InProgress),
            ("Promoting", InProgress),
            ("Finalising", InProgress),
            ("Terminating", InProgress),
            ("", InProgress),
        ] {
            let promoted = condition("Promoted", "Unknown", "Because", 0);
            let seen = read(CANARY, json!({}), json!({"phase": phase, "conditions": [promoted]}));
            let runs = if want == Current { "v7" } else { "" };
            assert_eq!(summary(&seen), (want, runs, "v7"), "{phase}");
            assert_eq!(seen.message.is_empty(), want == Current, "{phase}");
        }
        let seen = read(CANARY, json!({}), json!({"phase": "Failed"}));
        assert_eq!((seen.status, &*seen.reason, &*seen.message), (Failed, "Failed", ""));
        assert_eq!(read(CANARY, json!({}), json!({"phase": ["Succeeded"]})).status, InProgress);
        assert!(read(CANARY, json!({"suspend": true}), json!({"phase": "Succeeded"})).suspended);
    }
}
