//! Answers requests: who asks, what for, and with what.

mod actions;
mod strangers;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use http::header::{self, HeaderValue};
use http::{Method, StatusCode};
use maud::{Markup, html};

use crate::Settings;
use crate::access::caller::{Caller, Entry, Known, NoCaller, Person};
use crate::access::origin;
use crate::access::origin::{FormKey, Hosts, Refusal};
use crate::access::seal::{SealError, random};
use crate::answer::{Answer, Asked};
use crate::events::events;
use crate::follow::Following;
use crate::forms::Form;
use crate::query::{Query, Screen};
use crate::read::destination::Destinations;
use crate::read::health::Health;
use crate::read::recent::Recent;
use crate::read::uncounted::Uncounted;
use crate::read::{Nothing, Reader};
use crate::screens::asset;
use crate::screens::parts;
use crate::screens::parts::Frame;
use crate::screens::simple;
use crate::screens::undelivered::{Resent, Which};
use crate::trouble::Trouble;
use relaybook_api::now;
use relaybook_runtime::fair::{Limits, Permits};
use strangers::outside;

/// Maximum time of a page. Each call of it has a shorter limit.
const LONGEST: Duration = Duration::from_secs(40);
/// Maximum time of an action, which can be a hundred calls.
const LONGEST_ACTION: Duration = Duration::from_mins(3);
/// How many pages are made at once, in total and for each person. Each can hold some thousand deliveries, and the page shares the memory of
/// the controllers.
const PAGES: Limits = Limits::new(8, 2).with_budget(Duration::from_secs(30));
/// Number of streams of events, in total and for each person.
const STREAMS: Limits = Limits::new(100, 25);

/// The page. Cheap to clone.
#[derive(Clone)]
pub struct Page(Arc<Inner>);

struct Inner {
    entry: Entry,
    hosts: Hosts,
    settings: Settings,
    known: Known,
    following: Following,
    health: Health,
    uncounted: Uncounted,
    recent: Recent,
    destinations: Destinations,
    forms: FormKey,
    pages: Permits<Person>,
    streams: Permits<Person>,
}

/// A request whose caller is known.
struct Visit<'a> {
    asked: &'a Asked,
    caller: Caller,
    query: Query,
    form_token: String,
    /// The flags of commands for the same cluster and user.
    flags: &'a str,
    /// What the header names.
    place: &'a str,
}

impl Page {
    /// Creates a page for the person who runs it, on this machine and port.
    pub fn own(own: crate::Own, port: u16, settings: Settings) -> Result<Self, SealError> {
        let hosts = ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("{host}:{port}")).to_vec();
        Ok(Self::new(Entry::Own(Box::new(own)), Hosts::Only(hosts), FormKey::new(&random()?), settings))
    }

    /// Creates a page for everybody with a token of the cluster.
    #[must_use]
    pub fn public(tokens: crate::Tokens, settings: Settings) -> Self {
        let hosts = Hosts::Public(settings.url.clone());
        let forms = FormKey::new(tokens.form_secret());
        Self::new(Entry::Tokens(Box::new(tokens)), hosts, forms, settings)
    }

    fn new(entry: Entry, hosts: Hosts, forms: FormKey, settings: Settings) -> Self {
        Self(Arc::new(Inner {
            entry,
            hosts,
            settings,
            known: Known::default(),
            following: Following::default(),
            health: Health::default(),
            uncounted: Uncounted::default(),
            recent: Recent::default(),
            destinations: Destinations::default(),
            forms,
            pages: Permits::new(PAGES),
            streams: Permits::new(STREAMS),
        }))
    }

    /// Ends the watches that nobody uses. Never returns.
    pub async fn sweep(&self) {
        self.0.following.sweep().await;
    }

    /// Answers a request. `accepted` is called if its credentials are.
    pub async fn answer(&self, asked: Asked, accepted: impl FnOnce() + Send) -> Answer {
        match origin::check(&self.0.hosts, &asked.method, &asked.headers) {
            Ok(()) => {}
            Err(Refusal::Host) => {
                return Answer::text(
                    StatusCode::MISDIRECTED_REQUEST,
                    "This page is not for this host name; --page-url sets the name.\n",
                );
            }
            Err(Refusal::Origin) => return Answer::text(StatusCode::FORBIDDEN, "The request comes from another site.\n"),
        }
        if let Some(asset) = asset::find(&asked.path) {
            return Answer::asset(asset);
        }
        let longest = if asked.method == Method::POST { LONGEST_ACTION } else { LONGEST };
        let work = self.0.page(&asked, accepted);
        let slow = || {
            let words = "The page took too long; reload it to try again.\n";
            Answer::text(StatusCode::SERVICE_UNAVAILABLE, words).with(header::RETRY_AFTER, HeaderValue::from_static("5"))
        };
        let answer = tokio::time::timeout(longest, Box::pin(work)).await.unwrap_or_else(|_| slow());
        if answer.status == StatusCode::SERVICE_UNAVAILABLE {
            return answer.with(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        answer
    }
}

impl Inner {
    async fn page(&self, asked: &Asked, accepted: impl FnOnce()) -> Answer {
        match (&asked.method, asked.path.as_str(), &self.entry) {
            (&Method::GET, "/enter", Entry::Own(own)) => {
                let given = Form::read(asked.query.as_bytes());
                return match own.enter(given.get("ticket")) {
                    Some(cookie) => Answer::see_other("/").with_cookie(&cookie),
                    None => outside(StatusCode::UNAUTHORIZED, "Not here", &simple::no_ticket(true)),
                };
            }
            (&Method::POST, "/sign-in", Entry::Tokens(_)) => return self.sign_in(asked).await,
            _ => {}
        }
        let caller = match self.known.caller(&self.entry, &asked.headers).await {
            Ok(caller) => caller,
            Err(why) => return self.stranger(asked, &why),
        };
        accepted();
        let form_token = self.forms.token(&caller.form_key());
        let (flags, place) = (self.settings.flags.as_str(), self.settings.place.as_str());
        let visit = Visit { asked, query: Query::read(&asked.query), caller, form_token, flags, place };
        if asked.path == "/events" && asked.method == Method::GET {
            return self.events(&visit).await;
        }
        let person = visit.caller.person();
        let _permit = self.pages.acquire(person.clone(), ()).await;
        let answer = match asked.method {
            Method::GET | Method::HEAD => self.read(&visit).await,
            Method::POST => self.act(&visit).await,
            _ => Answer::text(StatusCode::METHOD_NOT_ALLOWED, "Only GET and POST are allowed.\n")
                .with(header::ALLOW, HeaderValue::from_static("GET, HEAD, POST")),
        };
        answer.to(person)
    }

    async fn read(&self, visit: &Visit<'_>) -> Answer {
        if visit.asked.path == "/sign-in" {
            return Answer::see_other("/");
        }
        if let Some(screen) = Screen::of(&visit.asked.path) {
            return self.screen(visit, screen, Done::Nothing).await;
        }
        // An action has no screen of its own. But its address is in the browser with its result, so it can be opened again.
        if let Some((path, "resend" | "test" | "approve")) = visit.asked.path.rsplit_once('/')
            && let Some(screen) = Screen::of(path)
        {
            return Answer::see_other(&visit.query.link(&screen.path()));
        }
        let sentence = "There is no such page. Names have only small letters, digits, dashes and dots.".to_owned();
        let content = simple::problem("Not found", &[sentence], None);
        inside(visit, StatusCode::NOT_FOUND, "Not found", None, &html! {}, &content)
    }

    async fn events(&self, visit: &Visit<'_>) -> Answer {
        let form = Form::read(visit.asked.query.as_bytes());
        let shown = form.get("for");
        let (path, query) = shown.split_once('?').unwrap_or((shown, ""));
        let Some(screen) = Screen::of(path) else {
            return Answer::text(StatusCode::NOT_FOUND, "There is no such page.\n");
        };
        let Some(permit) = self.streams.try_acquire(visit.caller.person(), (), 1) else {
            return Answer::text(StatusCode::SERVICE_UNAVAILABLE, "Too many screens are open.\n");
        };
        let home = self.settings.config_map.namespace.as_str();
        let stream = events(&visit.caller, &self.following, &screen, &Query::read(query), home, permit).await;
        Answer::events(stream.boxed())
    }

    fn reader<'a>(&'a self, visit: &'a Visit<'_>) -> Reader<'a> {
        Reader {
            caller: &visit.caller,
            settings: &self.settings,
            following: &self.following,
            uncounted: &self.uncounted,
            recent: &self.recent,
            destinations: &self.destinations,
            form_token: self.settings.actions.then(|| visit.form_token.clone()),
            now: now(),
        }
    }

    /// Reads a screen and what is wrong with the installation side by side.
    async fn screen(&self, visit: &Visit<'_>, screen: Screen, done: Done) -> Answer {
        let reader = self.reader(visit);
        let title = title(&screen);
        let (content, findings) = tokio::join!(
            content(&reader, &screen, &visit.query, done),
            self.health.findings(&visit.caller, &self.settings.config_map, reader.now)
        );
        let banners = parts::banners(&findings);
        match content {
            Ok(content) => inside(visit, StatusCode::OK, &title, Some(screen), &banners, &content),
            Err(Nothing::Missing(what)) => {
                let sentence = format!("{what} does not exist. It was deleted, or the name is wrong.");
                let content = simple::problem("Not found", &[sentence], Some(&same(&screen)));
                inside(visit, StatusCode::NOT_FOUND, "Not found", None, &banners, &content)
            }
            Err(Nothing::Trouble(trouble @ Trouble::SignedOut)) => {
                self.known.forget(&visit.caller.key);
                self.following.forget(&visit.caller.key);
                self.stranger(visit.asked, &NoCaller::Refused(trouble))
            }
            Err(Nothing::Trouble(trouble)) => {
                let mut sentences = vec![trouble.sentence()];
                if matches!(&trouble, Trouble::Forbidden(wanted) if wanted.namespace.is_none()) {
                    sentences.push("Enter a namespace that you may read.".to_owned());
                }
                let content = html! {
                    (simple::problem(&title, &sentences, None))
                    form.filters { (parts::namespace_field(&visit.query)) button { "Show" } }
                };
                inside(visit, status(&trouble), &title, Some(screen), &banners, &content)
            }
        }
    }
}

/// A page for a caller.
fn inside(
    visit: &Visit<'_>,
    status: StatusCode,
    title: &str,
    screen: Option<Screen>,
    banners: &Markup,
    content: &Markup,
) -> Answer {
    let is_live = visit.asked.method != Method::POST && screen.is_some() && visit.query.after.is_none();
    let frame = Frame {
        title: title.to_owned(),
        place: visit.place.to_owned(),
        screen,
        query: visit.query.clone(),
        name: visit.caller.name.clone(),
        is_signed_in: true,
        has_cookie: visit.caller.has_cookie,
        form_token: visit.form_token.clone(),
        is_live,
        flags: visit.flags.to_owned(),
        now: now(),
    };
    Answer::html(status, parts::page(&frame, banners, content))
}

/// What was done before a screen is shown.
enum Done {
    Nothing,
    One(Result<(), Trouble>),
    Resent(Resent),
    Tested((bool, String)),
    Approved(Result<String, String>),
}

/// Returns the content of a screen. Each read is a future of its own size.
async fn content(reader: &Reader<'_>, screen: &Screen, query: &Query, done: Done) -> Result<Markup, Nothing> {
    let now = reader.now;
    Ok(match screen {
        Screen::Overview => Box::pin(reader.overview(query)).await?.html(query, now),
        Screen::Pipeline(namespace, name) => {
            let mut view = Box::pin(reader.pipeline(namespace, name, query)).await?;
            if let Done::Approved(result) = done {
                view.approved = Some(result);
            }
            view.html(query, now)
        }
        Screen::Delivery(namespace, name) => {
            let mut view = Box::pin(reader.delivery(namespace, name)).await?;
            match done {
                Done::One(Ok(())) => view.was_resent = true,
                Done::One(Err(trouble)) => view.troubles.push(trouble),
                _ => {}
            }
            view.html(now)
        }
        Screen::Notification(namespace, name) => {
            let mut view = Box::pin(reader.notification(namespace, name)).await?;
            if let Done::Tested(result) = done {
                view.tested = Some(result);
            }
            view.html(now)
        }
        Screen::Receivers => Box::pin(reader.receivers(query)).await?.html(query, now),
        Screen::Pending | Screen::Parked => {
            let which = if *screen == Screen::Pending { Which::Pending } else { Which::Parked };
            let mut view = Box::pin(reader.undelivered(which, query)).await?;
            if let Done::Resent(resent) = done {
                view.resent = Some(resent);
            }
            view.html(query, now)
        }
        Screen::Clusters => {
            let (clusters, troubles) = Box::pin(reader.clusters(query)).await?;
            simple::clusters(&clusters, &troubles, query, now)
        }
        Screen::Search => Box::pin(reader.search(query)).await?.html(query, now),
    })
}

fn title(screen: &Screen) -> String {
    match screen {
        Screen::Overview => "Overview".to_owned(),
        Screen::Pipeline(namespace, name) => format!("Pipeline {namespace}/{name}"),
        Screen::Delivery(_, name) => format!("Delivery {name}"),
        Screen::Notification(namespace, name) => format!("Notification {namespace}/{name}"),
        Screen::Receivers => "Receivers".to_owned(),
        Screen::Pending => "Pending".to_owned(),
        Screen::Parked => "Parked".to_owned(),
        Screen::Clusters => "Clusters".to_owned(),
        Screen::Search => "Search".to_owned(),
    }
}

/// Returns the command that lists the objects of a kind.
fn same(screen: &Screen) -> String {
    match screen {
        Screen::Pipeline(namespace, _) => format!("kubectl get pipelines -n {namespace}"),
        Screen::Delivery(namespace, _) => format!("relaybook audit -n {namespace}"),
        Screen::Notification(namespace, _) => format!("kubectl get notifications -n {namespace}"),
        _ => "kubectl get relaybook -A".to_owned(),
    }
}

const fn status(trouble: &Trouble) -> StatusCode {
    match trouble {
        Trouble::SignedOut => StatusCode::UNAUTHORIZED,
        Trouble::Forbidden(_) => StatusCode::FORBIDDEN,
        Trouble::NotInstalled => StatusCode::NOT_FOUND,
        Trouble::Away(_) | Trouble::Slow | Trouble::Expired | Trouble::Other(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}
