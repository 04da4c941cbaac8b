//! What must be so before the process is ready.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Named gates, all closed at first; ready means that all are open. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Gates {
    all: Arc<RwLock<Vec<Gate>>>,
}

/// One gate, in the hands of the part that opens it. It stays open.
#[derive(Clone, Debug)]
pub struct Gate {
    name: &'static str,
    open: Arc<AtomicBool>,
}

impl Gates {
    /// One more gate, closed.
    #[must_use = "a gate that nobody holds never opens"]
    pub fn add(&self, name: &'static str) -> Gate {
        let gate = Gate { name, open: Arc::default() };
        self.all.write().unwrap_or_else(PoisonError::into_inner).push(gate.clone());
        gate
    }

    /// The names of those that are closed, in the order in which they were added.
    #[must_use]
    pub fn closed(&self) -> Vec<&'static str> {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|gate| !gate.open.load(Ordering::Acquire)).map(|gate| gate.name).collect()
    }
}

impl Gate {
    /// Opens it, once and for all.
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
    }
}
