//! The kinds of requests. Each kind has its own clients, because they read different parts of an answer.
//!
//! In: the kind of a request. Out: the limits of its connections. The windows say how many bytes the other side can send ahead over HTTP/2,
//! for one answer and for all answers of a connection.

/// A kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Traffic {
    /// Deliveries and spans. At most 4 KiB of an answer are read, so larger windows would only be memory that a receiver can fill.
    Webhooks,
    /// Requests to forges and their Git servers. The whole answer is read, and can have many megabytes. With small windows, a distant
    /// server would mostly wait for us.
    Forges,
}

const KIB: u32 = 1024;
const MIB: u32 = 1024 * KIB;

impl Traffic {
    /// The window of HTTP/2 for one answer, in bytes.
    pub(crate) const fn stream_window(self) -> u32 {
        match self {
            Self::Webhooks => 16 * KIB,
            Self::Forges => MIB,
        }
    }

    /// The window of HTTP/2 for all answers of a connection, in bytes.
    pub(crate) const fn connection_window(self) -> u32 {
        match self {
            Self::Webhooks => 256 * KIB,
            Self::Forges => 4 * MIB,
        }
    }

    /// Maximum number of bytes that can arrive while no request is in flight. An answer can begin just before its request counts as in
    /// flight, or continue after its end is no longer needed. So this is more than the other side can send ahead for one answer.
    pub(crate) const fn idle_bytes(self) -> usize {
        match self {
            Self::Webhooks => 64 * KIB as usize,
            Self::Forges => 2 * MIB as usize,
        }
    }

    /// Maximum number of idle connections to one server: as many as are likely to be busy at the same time.
    pub(crate) const fn max_idle(self) -> usize {
        match self {
            Self::Webhooks => 64,
            Self::Forges => 4,
        }
    }
}
