//! Answers to people who are not signed in: the form for a token, and why there is nothing else.

use http::{Method, StatusCode};
use maud::{Markup, html};
use secrecy::SecretString;

use super::Inner;
use super::status;
use crate::access::caller::{Entry, IN_COOKIE, NoCaller, no_cookie, token};
use crate::access::origin;
use crate::answer::{Answer, Asked};
use crate::forms::{Form, local_path};
use crate::query::{Query, Screen};
use crate::screens::parts;
use crate::screens::parts::Frame;
use crate::screens::simple;
use crate::trouble::Trouble;
use relaybook_api::now;

impl Inner {
    /// Answers somebody who is not signed in.
    pub(super) fn stranger(&self, asked: &Asked, why: &NoCaller) -> Answer {
        let is_page = asked.method == Method::GET && Screen::of(&asked.path).is_some();
        if !is_page && asked.path != "/sign-in" {
            return Answer::text(StatusCode::UNAUTHORIZED, "Sign in first.\n");
        }
        let path = if asked.query.is_empty() { asked.path.clone() } else { format!("{}?{}", asked.path, asked.query) };
        let next = local_path(&path);
        if *why == NoCaller::Anonymous && is_page && origin::is_from_elsewhere(&asked.headers) {
            return Answer::html(StatusCode::OK, simple::from_elsewhere(next));
        }
        match (&self.entry, why) {
            (Entry::Own(_), NoCaller::Anonymous) => outside(StatusCode::UNAUTHORIZED, "Not here", &simple::no_ticket(false)),
            (Entry::Tokens(_), NoCaller::Anonymous) => {
                let next = if asked.path == "/sign-in" { "/" } else { next };
                outside(StatusCode::UNAUTHORIZED, "Sign in", &simple::sign_in(next, None))
            }
            (Entry::Tokens(_), NoCaller::Refused(trouble @ Trouble::SignedOut)) => {
                let form = simple::sign_in(next, Some(&trouble.sentence()));
                outside(StatusCode::UNAUTHORIZED, "Sign in", &form).with_cookie(&no_cookie())
            }
            (_, NoCaller::Refused(trouble)) => {
                let status = status(trouble);
                let content = simple::problem("Nothing can be shown", &[trouble.sentence()], None);
                outside(status, "Nothing can be shown", &content)
            }
        }
    }

    /// Checks a token that a person has entered, and keeps it in a cookie.
    pub(super) async fn sign_in(&self, asked: &Asked) -> Answer {
        let form = Form::read(&asked.body);
        let next = local_path(form.get("next"));
        let Entry::Tokens(tokens) = &self.entry else { return Answer::see_other("/") };
        let refuse = |words: &str| outside(StatusCode::UNAUTHORIZED, "Sign in", &simple::sign_in(next, Some(words)));
        let Some(token): Option<SecretString> = token(form.get("bearer"), IN_COOKIE) else {
            return refuse(
                "This is not a token, or it is longer than 2,900 bytes. Use a proxy that sends such a token in the header Authorization.",
            );
        };
        let accepted = self.known.with_token(tokens, &token, true).await;
        match accepted {
            Ok(_) => match tokens.cookie(&token) {
                Ok(cookie) => Answer::see_other(next).with_cookie(&cookie),
                Err(_) => Answer::text(StatusCode::INTERNAL_SERVER_ERROR, "The system provides no random numbers.\n"),
            },
            Err(Trouble::SignedOut) => refuse("The API server does not accept this token."),
            Err(trouble) => refuse(&trouble.sentence()),
        }
    }
}

/// A page for somebody who is not signed in.
pub(super) fn outside(status: StatusCode, title: &str, content: &Markup) -> Answer {
    let frame = Frame {
        title: title.to_owned(),
        place: String::new(),
        screen: None,
        query: Query::default(),
        name: None,
        is_signed_in: false,
        has_cookie: false,
        form_token: String::new(),
        is_live: false,
        flags: String::new(),
        now: now(),
    };
    Answer::html(status, parts::page(&frame, &html! {}, content))
}
