//! For tests only: receivers in this process, instead of sockets.
//!
//! In: a function that connects to a receiver, for the thread that calls it. Out: its connections, for the requests of that thread.

use std::cell::RefCell;

use http::Uri;
use tokio::io::DuplexStream;

/// Connects to the receiver of a URL.
pub type Dial = Box<dyn Fn(&Uri) -> DuplexStream>;

thread_local! {
    static DIAL: RefCell<Option<Dial>> = const { RefCell::new(None) };
}

/// Sets how this thread connects to receivers. `None`: by sockets.
pub fn play(dial: Option<Dial>) {
    DIAL.set(dial);
}

pub(crate) fn connect(to: &Uri) -> Option<DuplexStream> {
    DIAL.with_borrow(|dial| dial.as_ref().map(|dial| dial(to)))
}
