//! Answers to forms: what a person does, with the permissions of that person.

use http::StatusCode;
use maud::html;

use super::{Done, Inner, Visit, inside};
use crate::access::caller::no_cookie;
use crate::answer::Answer;
use crate::forms::{Form, approve, local_path, resend, resend_all};
use crate::query::{Query, Screen};
use crate::read::send_test::Tested;
use crate::screens::send_test::UnconfirmedTest;
use crate::screens::simple;

impl Inner {
    /// Does what a form requests, if it has the token of this caller.
    pub(super) async fn act(&self, visit: &Visit<'_>) -> Answer {
        let form = Form::read(&visit.asked.body);
        if !self.forms.is_token(&visit.caller.form_key(), form.get("token")) {
            let sentence =
                "The form is not from this page, or it is too old. Open the page again, and repeat the action.".to_owned();
            let content = simple::problem("Nothing was done", &[sentence], None);
            return inside(visit, StatusCode::FORBIDDEN, "Nothing was done", None, &html! {}, &content);
        }
        if visit.asked.path == "/sign-out" {
            self.known.forget(&visit.caller.key);
            self.following.forget(&visit.caller.key);
            return Answer::see_other("/").with_cookie(&no_cookie());
        }
        if !self.settings.actions {
            let sentence = "This page only reads. An administrator can allow actions with --page-actions.".to_owned();
            let content = simple::problem("Nothing was done", &[sentence], None);
            return inside(visit, StatusCode::FORBIDDEN, "Nothing was done", None, &html! {}, &content);
        }
        if visit.asked.path == "/parked/resend" {
            let done = Done::Resent(resend_all(&visit.caller, &form).await);
            let back = local_path(form.get("back"));
            let query = Query::read(back.split_once('?').map_or("", |(_, query)| query));
            let visit = Visit { query, caller: visit.caller.clone(), form_token: visit.form_token.clone(), ..*visit };
            return self.screen(&visit, Screen::Parked, done).await;
        }
        let action = visit.asked.path.rsplit_once('/').and_then(|(path, action)| Some((Screen::of(path)?, action)));
        match action {
            Some((Screen::Delivery(namespace, name), "resend")) => {
                let result = resend(&visit.caller, &namespace, &name).await;
                self.screen(visit, Screen::Delivery(namespace, name), Done::One(result)).await
            }
            Some((Screen::Pipeline(namespace, name), "approve")) => {
                let result = approve(&visit.caller, (&namespace, &name), &form).await;
                let done = Done::Approved(result.map_err(|trouble| trouble.sentence()));
                self.screen(visit, Screen::Pipeline(namespace, name), done).await
            }
            Some((Screen::Notification(namespace, name), "test")) => self.test(visit, &form, (namespace, name)).await,
            _ => Answer::text(StatusCode::NOT_FOUND, "There is no such action.\n"),
        }
    }

    /// Requests a test. If a person must confirm it, asks for that.
    async fn test(&self, visit: &Visit<'_>, form: &Form, (namespace, name): (String, String)) -> Answer {
        let (pipeline, confirmed) = (form.get("pipeline"), form.get("acts") == "yes");
        let tested = Box::pin(self.reader(visit).test(&namespace, &name, pipeline, confirmed)).await;
        let screen = Screen::Notification(namespace.clone(), name.clone());
        let result = match tested {
            Ok(Tested::Unconfirmed(why)) => {
                let (pipeline, form_token) = (pipeline.to_owned(), Some(visit.form_token.clone()));
                let asking = UnconfirmedTest { namespace, notification: name, pipeline, why, form_token }.html();
                return inside(visit, StatusCode::OK, "Send this test?", Some(screen), &html! {}, &asking);
            }
            Ok(Tested::Over(accepted, words)) => (accepted, words),
            Err(trouble) => (false, format!("has no result: {}", trouble.sentence())),
        };
        self.screen(visit, screen, Done::Tested(result)).await
    }
}
