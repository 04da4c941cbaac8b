//! Tests when a token is requested, and how long it is kept.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use secrecy::ExposeSecret;

use super::*;

const LIFE: Duration = Duration::from_hours(1);
const STEP: &str = "a token";
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);

fn key(name: &str) -> Key {
    Key::of("team-a", [name])
}

fn issued(token: &str) -> Issued {
    Issued { token: token.into(), lifetime: LIFE }
}

fn refusal() -> NotSent {
    NotSent::TokenRefused { step: STEP, why: "b".to_owned() }
}

async fn lend(tokens: &Tokens, key: Key, result: Result<Issued, Refused>) -> Result<Lent, NotSent> {
    tokens.get(key, STEP, Instant::now() + PATIENCE, async { result }).await
}

async fn get(tokens: &Tokens, key: Key, result: Result<Issued, Refused>) -> Result<String, NotSent> {
    Ok(lend(tokens, key, result).await?.token().expose_secret().to_owned())
}

#[test]
fn a_token_is_kept_until_it_must_be_renewed() {
    let (mut entry, start) = (Entry::new(Instant::now()), Instant::now());
    let late = start + LIFE - EARLY;
    let (second, mut now) = (Duration::from_secs(1), start);
    for (what, at, is_due, expected, result) in [
        ("nothing is known", start, true, None, Some(Ok(issued("1")))),
        ("it is new", late - second, false, Some("1"), None),
        ("the server refuses, and the old one is valid", late, true, Some("1"), Some(Err(refusal()))),
        ("the server is asked later", late + PAUSES[0] - second, false, Some("1"), None),
        ("it issues a new one", late + PAUSES[0], true, Some("1"), Some(Ok(issued("2")))),
        ("the new one is kept", late + LIFE - EARLY, false, Some("2"), None),
        ("it has ended", late + PAUSES[0] + LIFE, true, None, None),
    ] {
        assert!(now <= at, "{what}");
        now = at;
        let lent = entry.lent(&key("a"), now);
        let token = lent.as_ref().map(|lent| lent.token().expose_secret());
        assert_eq!((entry.is_due(now), token), (is_due, expected), "{what}");
        if let Some(result) = result {
            entry.end(result.map_err(Refused::from), now);
        }
    }
}

#[test]
fn a_failure_is_kept_longer_each_time_unless_nothing_was_requested() {
    let (mut entry, now) = (Entry::new(Instant::now()), Instant::now());
    let mut pause = |why: NotSent, after: Option<u64>| {
        entry.end(Err(Refused { after: after.map(Duration::from_secs), ..why.into() }), now);
        let until = entry.failure.as_ref().unwrap().until;
        assert!(entry.is_due(until) && entry.is_over(until), "nothing else is waited for");
        until.duration_since(now).as_secs()
    };
    for expected in [5, 10, 20, 40, 60, 60] {
        assert_eq!(pause(NotSent::TokenUnanswered(STEP), None), expected);
    }
    for (asked, expected) in [(30, 60), (300, 300), (9000, 600)] {
        assert_eq!(pause(refusal(), Some(asked)), expected, "the server asked for {asked} s");
    }
    assert_eq!(pause(NotSent::InvalidRequest("a"), None), 0, "the server has refused nothing");
    assert_eq!(pause(refusal(), None), 5);
    entry.end(Ok(issued("1")), now);
    assert!(entry.failure.is_none());
}

#[test]
fn a_token_that_its_owner_no_longer_allows_is_forgotten_when_it_must_be_renewed() {
    let start = Instant::now();
    for (refused, expected) in [(Refused::from(refusal()), Some("1")), (Refused::revoked(refusal()), None)] {
        let mut entry = Entry::new(start);
        entry.end(Ok(issued("1")), start);
        entry.end(Err(refused), start + LIFE - EARLY);
        let lent = entry.lent(&key("a"), start + LIFE - EARLY);
        assert_eq!(lent.as_ref().map(|lent| lent.token().expose_secret()), expected);
        assert!(!entry.is_due(start + LIFE - EARLY), "the server is asked later");
    }
}

#[tokio::test]
async fn a_rejected_token_is_forgotten_once_and_not_while_it_is_new() {
    let tokens = Tokens::default();
    let of = async |token| lend(&tokens, key("a"), Ok(issued(token))).await.unwrap();
    let new = of("1").await;
    assert!(!tokens.forget(&new), "another one would be rejected, too");
    let older = Lent { at: new.at + YOUNG, ..new.clone() };
    assert_eq!(of("2").await.token().expose_secret(), "1");
    assert!(tokens.forget(&older));
    assert_eq!(of("3").await.token().expose_secret(), "3");
    assert!(tokens.forget(&older), "there is another one already");
    assert_eq!(of("4").await.token().expose_secret(), "3", "the new one was not rejected");
}

#[test]
fn the_token_before_is_masked_as_long_as_it_is_valid() {
    let (mut entry, start) = (Entry::new(Instant::now()), Instant::now());
    entry.end(Ok(issued("1")), start);
    entry.end(Ok(issued("2")), start + LIFE - EARLY);
    for (at, expected) in [(start + LIFE - EARLY, &["1", "2"][..]), (start + LIFE, &["2"])] {
        let lent = entry.lent(&key("a"), at).unwrap();
        let hidden: Vec<_> = lent.secrets().map(ExposeSecret::expose_secret).collect();
        assert_eq!(hidden, expected, "{at:?}");
    }
}

#[tokio::test]
async fn a_server_that_hangs_gets_one_request_and_stops_no_delivery_that_has_a_token() {
    let (tokens, started) = (Tokens::default(), Arc::new(AtomicUsize::new(0)));
    let hangs = |of: &str, limit| {
        let started = Arc::clone(&started);
        let request = async move {
            started.fetch_add(1, Ordering::Relaxed);
            pending().await
        };
        tokens.get(key(of), STEP, Instant::now() + limit, request)
    };
    for _ in 0..5 {
        let lent = hangs("a", Duration::from_millis(10)).await;
        assert_eq!(lent.err(), Some(NotSent::TokenUnanswered(STEP)));
    }
    assert_eq!(started.load(Ordering::Relaxed), 1);
    let now = Instant::now();
    let old = Valid { token: "1".into(), since: now, renewal: now, end: now + LIFE };
    tokens.all.lock().insert(key("b"), Entry { token: Some(Arc::new(old)), ..Entry::new(now) });
    let lent = hangs("b", PATIENCE).await.unwrap();
    assert_eq!((lent.token().expose_secret(), started.load(Ordering::Relaxed)), ("1", 2));
}

#[tokio::test]
async fn a_request_goes_on_without_the_delivery_that_started_it() {
    let tokens = Tokens::default();
    let (answer, asked) = tokio::sync::oneshot::channel();
    let slow = async { asked.await.map_err(|_| NotSent::TokenUnanswered(STEP).into()) };
    let none = tokens.get(key("a"), STEP, Instant::now() + Duration::from_millis(10), slow).await;
    assert_eq!(none.err(), Some(NotSent::TokenUnanswered(STEP)));
    assert!(answer.send(issued("1")).is_ok(), "the request has not ended");
    assert_eq!(get(&tokens, key("a"), Ok(issued("2"))).await.as_deref(), Ok("1"), "nobody repeats it");
}

#[tokio::test]
async fn a_request_that_panics_is_repeated() {
    let tokens = Tokens::default();
    let panics = async { panic!("expected") };
    let failed = tokens.get(key("a"), STEP, Instant::now() + PATIENCE, panics).await;
    assert_eq!(failed.err(), Some(NotSent::TokenUnanswered(STEP)));
    assert_eq!(get(&tokens, key("a"), Ok(issued("1"))).await.as_deref(), Ok("1"));
}

#[test]
fn each_request_for_a_token_has_a_result() {
    for (result, expected) in [
        (Ok(issued("1")), TokenResult::Issued),
        (Err(refusal()), TokenResult::Refused),
        (Err(NotSent::TokenUnanswered(STEP)), TokenResult::Unanswered),
        (Err(NotSent::InvalidRequest("a")), TokenResult::NotSent),
    ] {
        assert_eq!(counted(&result.map_err(Refused::from)), expected);
    }
}

#[tokio::test]
async fn a_thousand_deliveries_wait_for_one_token() {
    let (tokens, asked) = (Tokens::default(), Arc::new(AtomicUsize::new(0)));
    let one = || {
        let asked = Arc::clone(&asked);
        let request = async move {
            asked.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok(issued("1"))
        };
        tokens.get(key("a"), STEP, Instant::now() + PATIENCE, request)
    };
    let all = join_all((0..1000).map(|_| one())).await;
    assert_eq!((asked.load(Ordering::Relaxed), all.iter().filter(|sent| sent.is_ok()).count()), (1, 1000));
}

#[test]
fn a_namespace_with_many_tokens_does_not_take_the_room_of_others() {
    let start = Instant::now();
    let at = |number: usize| start + Duration::from_millis(u64::try_from(number).unwrap());
    let of = |number: usize| Key::of("team-b", [number.to_string().as_str()]);
    let with_token = |number| {
        let mut entry = Entry::new(at(number));
        entry.end(Ok(issued("1")), at(number));
        entry
    };
    let mut all = HashMap::from([(key("a"), with_token(0))]);
    all.extend((1..MOST).map(|number| (of(number), with_token(number))));
    assert!(make_room(&mut all, at(MOST)));
    assert_eq!(all.len(), MOST - 1);
    assert!(all.contains_key(&key("a")), "it is the oldest one of all, and the only one of its namespace");
    assert!(!all.contains_key(&of(1)), "the least recently used one of the others is gone");
    all.insert(of(1), with_token(1));
    assert!(make_room(&mut all, start + LIFE * 2));
    assert!(all.is_empty(), "those without a use go first");
}

#[tokio::test]
async fn a_namespace_with_many_requests_does_not_stop_others() {
    let tokens = Tokens::default();
    for number in 0..=MOST_REQUESTS {
        let of = Key::of("team-b", [number.to_string().as_str()]);
        let waits = tokens.get(of, STEP, Instant::now() + Duration::from_millis(1), pending()).await;
        assert_eq!(waits.err(), Some(NotSent::TokenUnanswered(STEP)));
    }
    let in_flight = tokens.all.lock().values().filter(|entry| entry.in_flight().is_some()).count();
    assert_eq!(in_flight, MOST_REQUESTS);
    assert_eq!(get(&tokens, key("a"), Ok(issued("1"))).await.as_deref(), Ok("1"));
}
