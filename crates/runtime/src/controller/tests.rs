//! Tests of the loop, with a reconciler that notes what happens.

use std::collections::BTreeSet;
use std::future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{FutureExt as _, stream};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};

use super::*;
use crate::leader::Renewal;
use relaybook_telemetry::{Metrics, chain};

const DONE: Next = Next::Done(None);
const FAILED: Next = Next::Failed { is_hung: false };
const LIMIT: Duration = Duration::from_secs(30);

type Work = Box<dyn FnMut(&'static str, Tenure) -> BoxFuture<'static, Next> + Send>;

/// What has happened.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<BTreeSet<String>>>);

impl Notes {
    fn add(&self, note: String) {
        self.0.lock().insert(note);
    }

    /// Returns what has happened since the last call, in the order of the alphabet.
    fn take(&self) -> String {
        let notes = std::mem::take(&mut *self.0.lock());
        notes.into_iter().collect::<Vec<_>>().join(", ")
    }
}

/// Reconciles objects like `a/x` of the namespace `a`. An event is its key, or `-a/x` if it is gone, or empty.
struct Fake {
    objects: BTreeSet<&'static str>,
    notes: Notes,
    /// The terms in which all lists were complete, and what has ended.
    ends: Arc<Mutex<Vec<String>>>,
    work: Work,
}

impl Reconciler for Fake {
    type Key = &'static str;
    type Event = &'static str;
    type Done = Next;

    fn absorb(&mut self, event: &'static str, wakes: &mut Wakes<&'static str>) {
        if let Some(gone) = event.strip_prefix('-') {
            self.objects.remove(gone);
            wakes.forget(&gone);
        } else if !event.is_empty() {
            self.objects.insert(event);
            wakes.wake(event);
        }
    }

    fn listed(&mut self, is_leading: bool, wakes: &mut Wakes<&'static str>) {
        self.notes.add(format!("{} lists", if is_leading { "all" } else { "some" }));
        self.objects.iter().copied().for_each(|key| wakes.wake(key));
    }

    fn place<'a>(&'a self, key: &'a &'static str) -> Option<Place<'a>> {
        let (namespace, _) = key.split_once('/')?;
        self.objects.contains(key).then_some(Place { namespace, uid: Some(key) })
    }

    fn is_foreign(&self, key: &&'static str) -> bool {
        key.ends_with("/foreign")
    }

    fn stand_by(&mut self, key: &&'static str, is_elsewhere: bool) {
        self.notes.add(format!("{key} is {}", if is_elsewhere { "elsewhere" } else { "not ready" }));
    }

    fn start(
        &mut self,
        key: &&'static str,
        tenure: Tenure,
        _: &mut Wakes<&'static str>,
    ) -> Option<BoxFuture<'static, Next>> {
        self.notes.add(format!("{key} in term {}", tenure.term()));
        Some((self.work)(key, tenure))
    }

    fn ended(&mut self, key: &&'static str, next: Next, _: &mut Wakes<&'static str>) -> Next {
        self.ends.lock().push((*key).to_owned());
        next
    }

    fn complete(&mut self, term: u64, _: &mut Wakes<&'static str>) {
        self.ends.lock().push(format!("lists of term {term}"));
    }

    fn last_work(&mut self) -> BoxFuture<'static, ()> {
        let ends = self.ends.clone();
        async move { ends.lock().push("last work".to_owned()) }.boxed()
    }
}

fn fake(work: impl FnMut(&'static str, Tenure) -> BoxFuture<'static, Next> + Send + 'static) -> (Fake, Notes) {
    let notes = Notes::default();
    (Fake { objects: BTreeSet::new(), notes: notes.clone(), ends: Arc::default(), work: Box::new(work) }, notes)
}

fn watched(namespaces: &[&str]) -> Vec<Watched> {
    namespaces.iter().map(|namespace| Watched { namespace: Some((*namespace).to_owned()), is_needed: true }).collect()
}

/// Returns a loop in term 1 with a watch of each namespace.
fn controller(
    namespaces: &[&str],
    work: impl FnMut(&'static str, Tenure) -> BoxFuture<'static, Next> + Send + 'static,
) -> (Controller<Fake>, Notes, Renewal) {
    let ((fake, notes), (lease, renewal)) = (fake(work), Lease::renewable(Duration::from_mins(10)));
    let told = notes.clone();
    let ready = Box::new(move || told.add("ready".to_owned()));
    let (limiter, stop) = (NamespaceLimiter::new(64), CancellationToken::new());
    (Controller::new(fake, (lease, watched(namespaces)), limiter, stop, ready), notes, renewal)
}

impl Controller<Fake> {
    fn event(&mut self, event: &'static str) {
        self.arrived(Arrived { event, listed: None });
    }

    fn list(&mut self, watch: usize, term: u64) {
        self.arrived(Arrived { event: "", listed: Some((watch, term)) });
    }

    /// Takes the results of all tasks until there are none.
    async fn settle(&mut self) {
        self.start_due();
        while let Some(ended) = self.tasks.join_next_with_id().await {
            self.stepped(ended).unwrap();
            self.start_due();
        }
    }
}

fn done(_: &'static str, _: Tenure) -> BoxFuture<'static, Next> {
    future::ready(DONE).boxed()
}

#[tokio::test]
async fn a_key_is_reconciled_when_the_lists_of_its_namespace_are_complete_in_the_term() {
    let (mut controller, notes, renewal) = controller(&["a", "b"], done);
    controller.event("a/x");
    controller.event("b/y");
    controller.settle().await;
    assert_eq!(notes.take(), "a/x is not ready, b/y is not ready");
    for (what, watch, term, expected) in [
        ("an earlier term", 0, 0, "a/x is not ready, b/y is not ready, some lists"),
        ("one namespace", 0, 1, "a/x in term 1, b/y is not ready, some lists"),
        ("both", 1, 1, "a/x in term 1, all lists, b/y in term 1, ready"),
        ("again", 1, 1, "a/x in term 1, all lists, b/y in term 1"),
    ] {
        controller.list(watch, term);
        controller.settle().await;
        assert_eq!(notes.take(), expected, "{what}");
    }
    renewal.set_term(Some(2));
    controller.event("a/x");
    controller.list(1, 1);
    controller.settle().await;
    assert_eq!(notes.take(), "a/x is not ready, b/y is not ready, some lists", "these are lists of the term before");
    controller.list(0, 2);
    controller.list(1, 2);
    controller.settle().await;
    assert_eq!(notes.take(), "a/x in term 2, all lists, b/y in term 2, some lists");
    renewal.set_term(None);
    controller.event("a/x");
    controller.settle().await;
    assert_eq!(notes.take(), "a/x is not ready");
    renewal.set(None);
    renewal.set_term(Some(2));
    controller.event("a/x");
    controller.settle().await;
    assert_eq!(notes.take(), "a/x is elsewhere", "this replica has other buckets");
}

#[tokio::test]
async fn a_reconcile_does_not_wait_for_an_optional_list() {
    let (mut controller, notes, _renewal) = controller(&["a", "a"], done);
    controller.watched[1].is_needed = false;
    controller.event("a/x");
    controller.list(0, 1);
    controller.settle().await;
    assert_eq!(notes.take(), "a/x in term 1, all lists");
    assert!(controller.wakes.has_listed(0, 1) && !controller.wakes.has_listed(1, 1));
    controller.list(1, 1);
    controller.settle().await;
    assert_eq!(notes.take(), "a/x in term 1, all lists, ready", "the process is ready after all lists");
    assert!(controller.wakes.has_listed(1, 1) && !controller.wakes.has_listed(1, 2));
}

#[tokio::test]
async fn an_object_of_another_shard_needs_only_its_bucket_if_it_comes_or_goes() {
    let (mut controller, notes, renewal) = controller(&["a"], done);
    controller.lease = controller.lease.clone().of_shard("eu");
    for (what, is_listed, expected) in [
        ("before the list", false, "a/foreign is not ready, a/x is elsewhere"),
        ("after it", true, "a/foreign in term 1, a/x is elsewhere, all lists, ready"),
    ] {
        if is_listed {
            controller.list(0, 1);
        }
        controller.event("a/x");
        controller.event("a/foreign");
        controller.settle().await;
        assert_eq!(notes.take(), expected, "{what}");
    }
    renewal.set(None);
    controller.event("a/foreign");
    controller.settle().await;
    assert_eq!(notes.take(), "a/foreign is elsewhere", "this replica has other buckets");
}

#[tokio::test]
async fn a_reconcile_that_waited_for_its_permit_starts_only_if_the_bucket_is_still_ours() {
    let (mut controller, notes, renewal) = controller(&["a"], done);
    controller.list(0, 1);
    controller.event("a/x");
    controller.start_due();
    notes.take();
    renewal.set(None);
    controller.settle().await;
    assert_eq!(notes.take(), "a/x is elsewhere");
}

#[tokio::test]
async fn a_key_has_one_reconcile_at_a_time() {
    let (gate, running, begun) = (Arc::new(Semaphore::new(0)), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (opens, count) = (gate.clone(), begun.clone());
    let (mut controller, _, _renewal) = controller(&["a"], move |_, _| {
        let (gate, running) = (gate.clone(), running.clone());
        begun.fetch_add(1, Ordering::SeqCst);
        let work = async move {
            assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0);
            gate.acquire().await.unwrap().forget();
            running.fetch_sub(1, Ordering::SeqCst);
            DONE
        };
        work.boxed()
    });
    controller.list(0, 1);
    controller.event("a/x");
    controller.start_due();
    controller.event("a/x");
    let permitted = controller.tasks.join_next_with_id().await.unwrap();
    controller.stepped(permitted).unwrap();
    opens.add_permits(1);
    controller.settle().await;
    assert_eq!(count.load(Ordering::SeqCst), 1, "an event before the start is a part of the reconcile");
    controller.event("a/x");
    controller.start_due();
    let permitted = controller.tasks.join_next_with_id().await.unwrap();
    controller.stepped(permitted).unwrap();
    for _ in 0..3 {
        controller.event("a/x");
        controller.start_due();
    }
    assert_eq!((count.load(Ordering::SeqCst), controller.tasks.len()), (2, 1));
    opens.add_permits(9);
    controller.settle().await;
    assert_eq!(count.load(Ordering::SeqCst), 3, "events during a reconcile cause one more");
}

#[tokio::test]
async fn pauses_grow_with_failures_and_a_success_a_new_list_or_a_deletion_resets_them() {
    let mut results = vec![FAILED, FAILED, DONE, FAILED, FAILED, FAILED, FAILED].into_iter();
    let work = move |_: &'static str, _: Tenure| future::ready(results.next().unwrap_or(DONE)).boxed();
    let (mut controller, _, _renewal) = controller(&["a"], work);
    controller.list(0, 1);
    for (n, expected) in [Some(1), Some(2), None, Some(1), Some(2), Some(1), Some(1), None].into_iter().enumerate() {
        match n {
            5 => controller.list(0, 1),
            6 => controller.event("-a/x"),
            _ => {}
        }
        let before = Instant::now();
        controller.event("a/x");
        controller.settle().await;
        let (after, next) = (Instant::now(), controller.wakes.queue.next_at());
        let pause = expected.map(Duration::from_secs);
        let is_expected = |at| pause.is_some_and(|pause| before + pause <= at && at <= after + pause);
        assert!(next.map_or(pause.is_none(), is_expected), "{n}: {next:?}");
        assert_eq!(controller.wakes.failures.len(), usize::from(pause.is_some()), "{n}");
    }
    assert!(controller.keys.is_empty());
}

#[tokio::test]
async fn a_namespace_earns_permits_only_by_answers() {
    let hung = Next::Failed { is_hung: true };
    let table = [(hung, 1), (Next::Idle(None), 1), (FAILED, 2), (hung, 1), (DONE, 2)];
    let mut results = table.map(|(next, _)| next).into_iter();
    let work = move |_, _| future::ready(results.next().unwrap_or(DONE)).boxed();
    let (mut controller, _, _renewal) = controller(&["a"], work);
    controller.limiter = NamespaceLimiter::new(8);
    controller.list(0, 1);
    for (next, expected) in table {
        controller.event("a/x");
        controller.settle().await;
        let free: Vec<_> = std::iter::from_fn(|| controller.limiter.acquire("a").now_or_never()).collect();
        assert_eq!(free.len(), expected, "{next:?}");
    }
}

/// Returns the sources with one watch, which has listed `a/x` and `a/y` in term 1.
fn sources(lease: &Lease) -> Sources<&'static str> {
    let answers = |_: http::Request<Body>| future::pending::<Result<http::Response<Body>, tower::BoxError>>();
    let client = Client::new(tower::service_fn(answers), "default");
    let mut sources = Sources::new(&client, lease, &Metrics::new());
    sources.watched = watched(&["a"]);
    let events = [("a/x", None), ("a/y", None), ("", Some((0, 1)))].map(|(event, listed)| Arrived { event, listed });
    sources.push(stream::iter(events).chain(stream::pending()));
    sources
}

async fn run_until_end(fake: Fake, sources: Sources<&'static str>, shutdown: &CancellationToken) -> Result<(), Broken> {
    let running = run(fake, sources, NamespaceLimiter::new(64), shutdown.clone(), || {});
    timeout(LIMIT, running).await.expect("it ends")
}

#[tokio::test]
async fn a_reconcile_that_panics_ends_the_controller_with_its_message() {
    let (lease, _renewal) = Lease::renewable(Duration::from_mins(10));
    let (stops, begun) = (Arc::<AtomicUsize>::default(), Arc::new(Notify::new()));
    let stopped = stops.clone();
    let (fake, _) = fake(move |key, tenure| {
        let (begun, stops) = (begun.clone(), stops.clone());
        let work = async move {
            if key == "a/x" {
                begun.notified().await;
                panic!("no such index");
            }
            begun.notify_one();
            // It could wait for an hour, but after the panic it must not write any more.
            assert!(!tenure.wait(Duration::from_hours(1)).await);
            stops.fetch_add(1, Ordering::SeqCst);
            DONE
        };
        work.boxed()
    });
    let error = run_until_end(fake, sources(&lease), &CancellationToken::new()).await.unwrap_err();
    let text = chain(&error);
    assert!(text.contains("a/x") && text.contains("no such index"), "{text}");
    assert_eq!(stopped.load(Ordering::SeqCst), 1, "it waits for the reconciles in progress");
}

#[tokio::test]
async fn a_stop_waits_for_the_reconciles_in_progress_and_they_write_nothing_more() {
    let (lease, shutdown) = (Lease::held(Duration::from_mins(10)), CancellationToken::new());
    let (stop, ends) = (shutdown.clone(), Arc::<AtomicUsize>::default());
    let ended = ends.clone();
    let (fake, _) = fake(move |_, tenure| {
        let (stop, ends) = (stop.clone(), ends.clone());
        let work = async move {
            stop.cancel();
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert!(!tenure.allows(Duration::ZERO));
            ends.fetch_add(1, Ordering::SeqCst);
            DONE
        };
        work.boxed()
    });
    run_until_end(fake, sources(&lease), &shutdown).await.unwrap();
    assert!(ended.load(Ordering::SeqCst) > 0);
}

#[tokio::test]
async fn a_source_that_ends_ends_the_controller_unless_the_process_stops() {
    let (lease, shutdown) = (Lease::held(Duration::from_mins(10)), CancellationToken::new());
    for is_stopping in [false, true] {
        if is_stopping {
            shutdown.cancel();
        }
        let mut sources = sources(&lease);
        sources.add(stream::empty());
        let result = run_until_end(fake(done).0, sources, &shutdown).await;
        assert_eq!(result.is_err(), !is_stopping, "{result:?}");
    }
}

#[tokio::test]
async fn a_list_of_another_part_counts_and_the_last_work_follows_the_last_result() {
    let (lease, shutdown) = (Lease::held(Duration::from_mins(10)), CancellationToken::new());
    let (stop, (listed, terms)) = (shutdown.clone(), tokio::sync::watch::channel(None));
    let (fake, _) = fake(move |_, tenure| {
        stop.cancel();
        async move {
            assert!(!tenure.wait(Duration::from_hours(1)).await);
            DONE
        }
        .boxed()
    });
    let (ends, mut sources) = (fake.ends.clone(), sources(&lease));
    sources.list(terms, || "");
    let (ready, mut is_ready) = tokio::sync::oneshot::channel();
    let ready = move || ready.send(()).unwrap();
    let running = tokio::spawn(run(fake, sources, NamespaceLimiter::new(1), shutdown, ready));
    for term in [0, 1] {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(term == 1 || is_ready.try_recv().is_err() && ends.lock().is_empty());
        listed.send_replace(Some(term));
    }
    timeout(LIMIT, running).await.unwrap().unwrap().unwrap();
    let ends = ends.lock().join(", ");
    assert!(["a/x", "a/y"].iter().any(|key| ends == format!("lists of term 1, {key}, last work")), "{ends}");
}
