//! The conditions that must hold before the process is ready.

use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Named gates. All are closed at first; the process is ready when all are open. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Gates {
    all: Arc<RwLock<Vec<Gate>>>,
}

/// One gate. Its owner is the component that opens it. An open gate never closes again.
#[derive(Clone, Debug)]
pub struct Gate {
    name: &'static str,
    open: Arc<AtomicBool>,
}

impl Gates {
    /// Adds a closed gate.
    #[must_use = "a gate that is dropped can never be opened"]
    pub fn add(&self, name: &'static str) -> Gate {
        let gate = Gate { name, open: Arc::default() };
        self.all.write().push(gate.clone());
        gate
    }

    /// Returns the names of the closed gates, in the order in which they were added.
    #[must_use]
    pub fn closed(&self) -> Vec<&'static str> {
        let all = self.all.read();
        all.iter().filter(|gate| !gate.open.load(Ordering::Acquire)).map(|gate| gate.name).collect()
    }
}

impl Gate {
    /// Opens the gate permanently.
    pub fn open(&self) {
        self.open.store(true, Ordering::Release);
    }
}
