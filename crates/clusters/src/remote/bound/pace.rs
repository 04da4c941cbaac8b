//! Limits how often a watch may start. Without it, a server that ends each watch at once without an error would be called again without a
//! pause, because a backoff reacts to errors only.
//!
//! In: the path of a watch that is about to start. Out: its turn, at least a second after the previous one.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Minimum time between the starts of two watches of the same path.
const PAUSE: Duration = Duration::from_secs(1);

/// Start times of the watches of the last second, by path.
#[derive(Clone, Debug, Default)]
pub(super) struct Pace(Arc<Mutex<HashMap<String, Instant>>>);

impl Pace {
    /// Waits until a watch of this path may start.
    pub async fn turn(&self, path: &str) {
        while let Err(next) = self.begin(path, Instant::now()) {
            sleep_until(next).await;
        }
    }

    /// Records the start, or returns when to try again. A caller that gives up during the wait leaves no entry.
    fn begin(&self, path: &str, now: Instant) -> Result<(), Instant> {
        let mut began = self.0.lock();
        began.retain(|_, at| now < *at + PAUSE);
        if let Some(at) = began.get(path) {
            return Err(*at + PAUSE);
        }
        began.insert(path.to_owned(), now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_of_one_path_begin_at_most_once_a_second_and_idle_paths_are_forgotten() {
        let (pace, now) = (Pace::default(), Instant::now());
        let half = PAUSE / 2;
        assert_eq!(pace.begin("/a", now), Ok(()));
        assert_eq!(pace.begin("/a", now), Err(now + PAUSE));
        assert_eq!(pace.begin("/b", now + half), Ok(()), "others do not wait for it");
        assert_eq!(pace.begin("/a", now + half), Err(now + PAUSE), "asking again does not put it off");
        assert_eq!(pace.begin("/a", now + PAUSE), Ok(()));
        assert_eq!(pace.begin("/c", now + PAUSE + half), Ok(()));
        let mut kept: Vec<_> = pace.0.lock().keys().cloned().collect();
        kept.sort();
        assert_eq!(kept, ["/a", "/c"]);
    }
}
