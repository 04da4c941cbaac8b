//! The values of Secrets, as last reported by the watches. Only this module can read them.

pub(super) mod changes;
pub(super) mod contents;
pub(super) mod redact;
pub(super) mod spellings;
pub(super) mod watches;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use secrecy::SecretSlice;
use tokio::sync::watch;
use tokio::time::Instant;

use super::attempt::NotSent;
use super::client::tls;
use super::request::signing::Signing;
use super::request::{compose, headers};
use super::tokens;
use crate::addresses::policy::Policy;
use changes::{Announcements, Changes};
use contents::Contents;
use redact::Hidden;
use relaybook_api::notification::credentials::{Needed, SecretKey};
use relaybook_api::values::hook_keys::Unsigned;
use relaybook_api::{ObjectName, Time, now};

/// The values of the Secrets that are watched. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Secrets {
    slots: Arc<RwLock<HashMap<ObjectName, Slot>>>,
    changes: Announcements,
    /// When this process last saw a known value of each Secret change.
    edits: Arc<RwLock<HashMap<ObjectName, Time>>>,
    /// The state of a Secret that is not in `slots`.
    others: State,
}

/// The slot to which the watch of one Secret writes. `Secrets` removes a slot that is no longer required, so writes of a watch that
/// ends late have no effect.
pub(super) type Slot = Arc<watch::Sender<State>>;

/// The known state of one Secret.
#[derive(Clone, Debug, Default)]
pub(super) enum State {
    /// The Secret has not been read yet.
    #[default]
    Unknown,
    /// Relaybook has no permission to read it.
    Unreadable,
    /// It does not exist.
    Missing,
    /// It has these contents.
    Present(Arc<Contents>),
}

impl Secrets {
    /// Creates an instance for watches. All Secrets are unknown.
    pub(super) fn unknown() -> Self {
        Self { slots: Arc::default(), changes: Announcements::default(), edits: Arc::default(), others: State::Unknown }
    }

    /// Creates an instance with values that never change. All other Secrets do not exist. This is for tests and for runs without a cluster.
    #[must_use]
    pub fn fixed(values: impl IntoIterator<Item = (SecretKey, String)>) -> Self {
        let mut data: HashMap<ObjectName, BTreeMap<String, SecretSlice<u8>>> = HashMap::new();
        for (key, value) in values {
            data.entry(key.secret()).or_default().insert(key.key, value.into_bytes().into());
        }
        let present = |data| Arc::new(watch::Sender::new(State::Present(Arc::new(Contents::new(data)))));
        let slots = data.into_iter().map(|(name, data)| (name, present(data))).collect();
        let changes = Announcements::default();
        Self { slots: Arc::new(RwLock::new(slots)), changes, edits: Arc::default(), others: State::Missing }
    }

    /// Checks that all required Secrets exist, and that a request can be sent with them: the same functions as at the time of the request.
    /// Returns the first error.
    pub fn check<'k>(&self, needed: impl IntoIterator<Item = &'k Needed>, policy: &Policy) -> Result<(), NotSent> {
        for needed in needed {
            let Some(secret) = needed.secret() else {
                tokens::check_issuer(needed, policy)?;
                continue;
            };
            let contents = self.now(&secret)?;
            match needed {
                Needed::Url(key) => drop(compose::secret_url(&contents, key, policy, &mut Hidden::default())?),
                Needed::Auth(auth) => tokens::check(auth, &contents, policy)?,
                Needed::Authorities(key) => drop(tls::authorities(&contents, key)?),
                Needed::ClientCertificate(name) => tls::checked_identity(&contents, name)?,
                Needed::Headers(name) => drop(headers::read(&contents, name, &mut Hidden::default())?),
                Needed::SigningKeys(signing) => drop(Signing::read(&contents, signing, &mut Hidden::default())?),
            }
        }
        Ok(())
    }

    /// Returns a listener for the names of Secrets that change from now on. A change is a new value, a creation, a deletion, or the first
    /// result of a watch, even if Relaybook must not read the Secret. A slow listener misses no name.
    #[must_use]
    pub fn changes(&self) -> Changes {
        self.changes.listen()
    }

    /// Returns when this process last saw a known value of one of these Secrets change. The first read is not a change.
    #[must_use]
    pub fn edited<'k>(&self, needed: impl IntoIterator<Item = &'k Needed>) -> Option<Time> {
        let edits = self.edits.read();
        needed.into_iter().filter_map(|needed| edits.get(&needed.secret()?).copied()).max()
    }

    /// Returns the contents of a Secret, if they are known.
    pub(super) fn now(&self, name: &ObjectName) -> Result<Arc<Contents>, NotSent> {
        let state = self.slot(name).map_or_else(|| self.others.clone(), |slot| slot.borrow().clone());
        state.contents(name)
    }

    /// Whether the watch of a Secret has reported its state. If Relaybook must not read the Secret, that is a state, too.
    #[must_use]
    pub fn is_known(&self, name: &ObjectName) -> bool {
        self.slot(name).map_or_else(|| self.others.is_known(), |slot| slot.borrow().is_known())
    }

    /// Returns the contents of a Secret with keys that can sign requests to hooks.
    pub(super) fn inbound(&self, name: &ObjectName) -> Result<Arc<Contents>, Unsigned> {
        let state = self.slot(name).map_or_else(|| self.others.clone(), |slot| slot.borrow().clone());
        match state {
            State::Unknown => Err(Unsigned::Unknown),
            State::Unreadable => Err(Unsigned::Unreadable),
            State::Missing => Err(Unsigned::Missing),
            State::Present(contents) => match contents.flaw() {
                Some(flaw) => Err(Unsigned::Unfit(flaw.clone())),
                None => Ok(contents),
            },
        }
    }

    /// Returns the contents of a Secret. If its watch has not reported yet, waits for the first report until the deadline.
    pub(super) async fn read(&self, name: &ObjectName, deadline: Instant) -> Result<Arc<Contents>, NotSent> {
        let Some(slot) = self.slot(name) else { return self.others.contents(name) };
        let mut state = slot.subscribe();
        let known = tokio::time::timeout_at(deadline, state.wait_for(|s| !matches!(s, State::Unknown))).await;
        match known {
            Ok(Ok(state)) => state.contents(name),
            Ok(Err(_)) | Err(_) => Err(NotSent::SecretUnknown(name.clone())),
        }
    }

    /// Whether the contents of a Secret differ from those of an earlier read.
    pub(super) fn differs(&self, name: &ObjectName, then: &Arc<Contents>) -> bool {
        self.slot(name).is_some_and(|slot| !matches!(&*slot.borrow(), State::Present(now) if Arc::ptr_eq(now, then)))
    }

    /// Adds a Secret.
    pub(super) fn add(&self, name: ObjectName) -> Slot {
        let slot = Slot::default();
        self.slots.write().insert(name, Arc::clone(&slot));
        slot
    }

    /// Removes a Secret.
    pub(super) fn remove(&self, name: &ObjectName) {
        self.slots.write().remove(name);
        self.edits.write().remove(name);
    }

    /// Discards the earlier value. The watch will soon report the current state.
    pub(super) fn forget_value(slot: &Slot) {
        slot.send_if_modified(|state| !matches!(std::mem::take(state), State::Unknown));
    }

    /// Stores what a watch saw, and notifies the listeners if it changed.
    pub(super) fn put(&self, name: &ObjectName, slot: &Slot, seen: Option<Secret>) {
        let seen = seen.map(Contents::from);
        let mut edited = false;
        let news = slot.send_if_modified(|state| {
            let same = match (&*state, &seen) {
                (State::Unknown | State::Unreadable, _) => false,
                (State::Missing, seen) => seen.is_none(),
                (State::Present(old), seen) => seen.as_ref().is_some_and(|new| old.same(new)),
            };
            if !same {
                edited = !matches!(state, State::Unknown | State::Unreadable);
                *state = seen.map_or(State::Missing, |contents| State::Present(Arc::new(contents)));
            }
            !same
        });
        if edited {
            self.edits.write().insert(name.clone(), now());
        }
        if news {
            self.changes.announce(name);
        }
    }

    /// Stores that the API server denied the watch. A value that was read before is kept.
    pub(super) fn put_unreadable(&self, name: &ObjectName, slot: &Slot) {
        let news = slot.send_if_modified(|state| {
            let unknown = matches!(state, State::Unknown);
            if unknown {
                *state = State::Unreadable;
            }
            unknown
        });
        if news {
            self.changes.announce(name);
        }
    }

    fn slot(&self, name: &ObjectName) -> Option<Slot> {
        self.slots.read().get(name).cloned()
    }
}

impl State {
    fn is_known(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// Returns the contents of a Secret that is used to send a request.
    fn contents(&self, name: &ObjectName) -> Result<Arc<Contents>, NotSent> {
        match self {
            Self::Unknown => Err(NotSent::SecretUnknown(name.clone())),
            Self::Unreadable => Err(NotSent::SecretUnreadable(name.clone())),
            Self::Missing => Err(NotSent::SecretMissing(name.clone())),
            Self::Present(contents) if contents.is_inbound() => Err(NotSent::SecretReserved(name.clone())),
            Self::Present(contents) => Ok(Arc::clone(contents)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use k8s_openapi::ByteString;

    use super::*;
    use relaybook_api::notification::credentials::AuthRef;
    use relaybook_api::values::hook_keys::Flaw;
    use relaybook_api::values::refs::INBOUND;

    /// A Secret with this data.
    pub(crate) fn secret(data: &[(&str, &str)]) -> Secret {
        let data = data.iter().map(|(k, v)| ((*k).to_owned(), ByteString(v.as_bytes().to_vec()))).collect();
        Secret { data: Some(data), ..Secret::default() }
    }

    pub(crate) fn key(key: &str) -> SecretKey {
        SecretKey::new("team-a", "chat", key)
    }

    /// A token in the value of a key.
    pub(crate) fn token(secret: SecretKey) -> Needed {
        Needed::Auth(AuthRef::Token { secret, header: http::header::AUTHORIZATION, scheme: String::new() })
    }

    fn check(secrets: &Secrets, keys: &[&str]) -> Result<(), NotSent> {
        secrets.check(&keys.iter().map(|k| token(key(k))).collect::<Vec<_>>(), &Policy::default())
    }

    #[test]
    fn check_returns_why_a_secret_cannot_be_used() {
        let secrets = Secrets::unknown();
        let name = key("").secret();
        assert_eq!(check(&secrets, &["url"]), Err(NotSent::SecretUnknown(name.clone())), "not required");
        let slot = secrets.add(name.clone());
        assert_eq!(check(&secrets, &["url"]), Err(NotSent::SecretUnknown(name.clone())), "not read");
        secrets.put(&name, &slot, None);
        assert_eq!(check(&secrets, &["url"]), Err(NotSent::SecretMissing(name.clone())));
        secrets.put(&name, &slot, Some(secret(&[("url", "x"), ("empty", "\n")])));
        assert_eq!(check(&secrets, &["url"]), Ok(()));
        assert_eq!(check(&secrets, &["url", "token"]), Err(NotSent::KeyMissing(key("token"))));
        assert_eq!(check(&secrets, &["empty"]), Err(NotSent::SecretInvalid { key: key("empty"), problem: "is empty" }));
        assert!(secrets.inbound(&name).is_err());
        let reserved = Secret { type_: Some(INBOUND.to_owned()), ..secret(&[("url", "x"), ("empty", "\n")]) };
        secrets.put(&name, &slot, Some(reserved));
        assert_eq!(check(&secrets, &["url"]), Err(NotSent::SecretReserved(name.clone())));
        assert_eq!(secrets.inbound(&name).err(), Some(Unsigned::Unfit(Flaw::NoKey)));
        assert!(secrets.is_known(&name));
        secrets.remove(&name);
        assert_eq!(check(&secrets, &["url"]), Err(NotSent::SecretUnknown(name.clone())));
        assert!(!secrets.is_known(&name));
    }

    #[test]
    fn a_value_with_which_nothing_can_be_sent_is_found_before_the_first_request() {
        let invalid = |problem| Err(NotSent::SecretInvalid { key: key("k"), problem });
        let odd = |at, what| Err(NotSent::SecretCharacter { key: key("k"), at, what });
        let check = |needed: Needed, value: &str| {
            let secrets = Secrets::fixed([(key("k"), value.to_owned())]);
            secrets.check(&[needed], &Policy::default())
        };
        for (value, want) in [
            ("https://chat.example.com/hook\n", Ok(())),
            ("\"https://chat.example.com/hook\"", invalid("is not a URL: remove the quotation marks")),
            ("\u{feff}https://chat.example.com/hook", odd(1, "a byte order mark")),
            ("SLACK_URL=https://chat.example.com", invalid("is not a URL")),
            ("chat.example.com/hook", invalid("is not a URL")),
            ("ftp://chat.example.com/hook", invalid("the URL must begin with https:// or http://")),
            ("https://user@chat.example.com/hook", invalid("the URL must not contain user info")),
            ("https://chat.example.com/a\nhttps://chat.example.com/b", odd(27, "a line break")),
            ("http://chat.example.com/hook", Err(NotSent::InsecureScheme)),
            ("https://127.0.0.1/hook", Err(NotSent::DestinationForbidden(crate::Rule::Loopback))),
        ] {
            assert_eq!(check(Needed::Url(key("k")), value), want, "{value:?}");
        }
        for (value, want) in [
            ("abc\r\n", Ok(())),
            ("abc\ndef", odd(4, "a line break")),
            ("abc\0", odd(4, "the character NUL")),
            ("\u{feff}abc", odd(1, "a byte order mark")),
            ("abc\u{200b}", odd(4, "an invisible character")),
            ("ab\u{a0}c", odd(3, "a no-break space")),
            ("\u{201c}abc\u{201d}", odd(1, "a typographic quotation mark")),
            ("ab\u{e9}", odd(3, "not an ASCII character")),
        ] {
            assert_eq!(check(token(key("k")), value), want, "{value:?}");
        }
    }

    #[test]
    fn a_user_name_and_a_password_are_checked_before_the_first_request() {
        let check = |user: &str, password: &str| {
            let values = [("username", user), ("password", password)].map(|(name, value)| (key(name), value.to_owned()));
            let auth = AuthRef::Basic { namespace: "team-a".to_owned(), name: "chat".to_owned() };
            Secrets::fixed(values).check(&[Needed::Auth(auth)], &Policy::default())
        };
        assert_eq!(check("bot", "p\u{e4}ss"), Ok(()));
        let colon = NotSent::SecretInvalid { key: key("username"), problem: "a user name must not contain a colon" };
        assert_eq!(check("a:b", "x"), Err(colon));
        let hidden = NotSent::SecretCharacter { key: key("password"), at: 2, what: "an invisible character" };
        assert_eq!(check("bot", "x\u{200b}"), Err(hidden.clone()));
        assert_eq!(hidden.to_string(), "Secret team-a/chat, key password: character 2 is an invisible character; remove it");
    }

    #[test]
    fn listeners_are_notified_only_of_changes() {
        let secrets = Secrets::unknown();
        let name = key("").secret();
        let slot = secrets.add(name.clone());
        let mut changes = secrets.changes();
        for (seen, news) in [
            (Some(secret(&[("k", "1")])), true),
            (Some(secret(&[("k", "1")])), false),
            (Some(secret(&[("k", "2")])), true),
            (Some(secret(&[("l", "2")])), true),
            (Some(secret(&[("k", "2"), ("l", "2")])), true),
            (None, true),
            (None, false),
            (Some(secret(&[])), true),
        ] {
            secrets.put(&name, &slot, seen.clone());
            assert_eq!(changes.now(), news.then(|| name.clone()), "{seen:?}");
        }
    }

    #[test]
    fn the_first_read_is_not_an_edit() {
        let secrets = Secrets::unknown();
        let (name, needed) = (key("").secret(), [token(key("k"))]);
        let slot = secrets.add(name.clone());
        let edited = |value: Option<&str>| {
            secrets.put(&name, &slot, value.map(|value| secret(&[("k", value)])));
            secrets.edited(&needed)
        };
        assert_eq!([edited(Some("1")), edited(Some("1"))], [None, None]);
        let first = edited(Some("2"));
        assert!(first.is_some());
        Secrets::forget_value(&slot);
        assert_eq!(edited(Some("2")), first, "read once more");
        assert!(edited(None) >= first && edited(Some("2")) >= first);
        secrets.remove(&name);
        assert_eq!(secrets.edited(&needed), None);
    }

    #[test]
    fn a_slow_listener_misses_no_secret() {
        let secrets = Secrets::unknown();
        let mut changes = secrets.changes();
        let names: Vec<_> = (0..1000).map(|n| SecretKey::new("team-a", &format!("s-{n:04}"), "k").secret()).collect();
        for name in &names {
            secrets.put(name, &secrets.add(name.clone()), Some(secret(&[("k", "v")])));
        }
        let heard: Vec<_> = std::iter::from_fn(|| changes.now()).collect();
        assert_eq!(heard, names);
    }

    #[tokio::test]
    async fn a_read_waits_for_the_watch_until_its_deadline() {
        let secrets = Secrets::unknown();
        let name = key("").secret();
        let slot = secrets.add(name.clone());
        let unknown = secrets.read(&name, Instant::now()).await;
        assert_eq!(unknown.unwrap_err(), NotSent::SecretUnknown(name.clone()));

        let read = secrets.read(&name, Instant::now() + Duration::from_mins(1));
        let (contents, ()) = tokio::join!(read, async { secrets.put(&name, &slot, Some(secret(&[("k", "v")]))) });
        let contents = contents.unwrap();
        assert_eq!(contents.text(&key("k")), Ok("v"));

        assert!(!secrets.differs(&name, &contents));
        secrets.put(&name, &slot, Some(secret(&[("k", "v")])));
        assert!(!secrets.differs(&name, &contents), "written again with the same value");
        secrets.put(&name, &slot, Some(secret(&[("k", "w")])));
        assert!(secrets.differs(&name, &contents));
    }

    #[test]
    fn debug_shows_no_value() {
        let secrets = Secrets::fixed([(key("k"), "hunter2".to_owned())]);
        let text = format!("{secrets:?} {:?}", Contents::from(secret(&[("k", "hunter2")])));
        assert!(!text.contains("hunter2") && text.contains('k'), "{text}");
    }
}
