//! Histories that were wrong once. Each stays here after its cause is removed.

use super::Step::{
    Calm, Change, Command, Delete, Dispatch, Edit, End, Forge, HandOver, Kill, Policy, Redeliver, Stop, Watch,
};
use super::server::Forged;
use super::{Setting, Step, World, base, notification, try_one};

/// A user requests a redelivery before the engine learns that the outcome is written.
const ASKED_BEFORE_THE_ANSWER: &[Step] = &[
    Change(0),
    Change(1),
    Watch(false),
    Watch(false),
    Calm(1),
    Calm(3),
    Change(0),
    Change(1),
    Calm(1),
    End(false, 2, 1),
    End(false, 1, 0),
    End(false, 0, 19),
    Redeliver(19),
];

/// A process that has lost the Lease reopens a Delivery that the new leader has listed as settled. It is not foreign.
const REDELIVERED_AT_A_HANDOVER: &[Step] =
    &[Change(0), Change(0), Calm(3), Calm(3), Watch(false), Redeliver(32), Watch(false), HandOver, Stop, Calm(1)];

/// A direct attempt fails, and its create replaces a foreign object of its name. The deletion of that object does not remove the delivery.
const REPLACED_BY_A_DIRECT_ATTEMPT: &[Step] = &[
    Change(0),
    Calm(1),
    Calm(3),
    Forge(5, Forged { is_right: false, is_settled: false }),
    Change(0),
    Calm(2),
    Change(0),
    Dispatch,
    Command,
    End(false, 0, 54),
    End(false, 0, 15),
];

/// The ordering is edited while the result of a direct attempt is being written.
const EDITED_BESIDE_A_DIRECT_ATTEMPT: &[Step] = &[
    Policy(true),
    Change(1),
    Calm(1),
    Calm(3),
    Change(1),
    Change(2),
    Calm(1),
    End(false, 0, 25),
    End(false, 0, 0),
    Edit(Setting::Ordering),
    Dispatch,
    End(false, 0, 25),
];

/// A user deletes a pending Delivery, and a later one is sent before the process is killed.
const DELETED_AND_KILLED: &[Step] = &[
    Change(1),
    Change(1),
    Watch(false),
    Watch(false),
    Calm(3),
    Change(1),
    Delete(19),
    Forge(0, Forged { is_right: true, is_settled: false }),
    Kill,
    Calm(3),
    Kill,
];

/// A user deletes a Delivery after an edit of the ordering.
const EDITED_AND_DELETED: &[Step] = &[
    Change(0),
    Change(0),
    Forge(11, Forged { is_right: false, is_settled: false }),
    Policy(true),
    Change(0),
    Change(0),
    Edit(Setting::Supersede),
    Calm(3),
    End(false, 0, 7),
    Edit(Setting::Ordering),
    Delete(57),
    Change(0),
    Calm(1),
];

#[test]
fn histories_that_were_wrong_once_are_right() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    let (base, settings) = (base(), notification("n1"));
    for (name, steps) in [
        ("asked before the answer", ASKED_BEFORE_THE_ANSWER),
        ("redelivered at a handover", REDELIVERED_AT_A_HANDOVER),
        ("replaced by a direct attempt", REPLACED_BY_A_DIRECT_ATTEMPT),
        ("edited beside a direct attempt", EDITED_BESIDE_A_DIRECT_ATTEMPT),
        ("deleted and killed", DELETED_AND_KILLED),
        ("edited and deleted", EDITED_AND_DELETED),
    ] {
        let mut world = World::new(&base, &settings, None);
        try_one(&mut world, steps).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
