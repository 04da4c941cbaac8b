//! Spans, and the ids that connect them. Pure.
//!
//! In: keys that identify a change, and each piece of work on it. Out: [`Trace`]s and [`SpanId`]s, and the `traceparent` of
//! [W3C Trace Context](https://www.w3.org/TR/trace-context/#traceparent-header). The ids are hashes of the keys. So a process that
//! continues the work of another one computes the same ids, and no id has to be stored.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::TelemetryError;

/// Number of bits of a trace id that decide whether the trace is sampled: the last seven bytes, as in
/// <https://opentelemetry.io/docs/specs/otel/trace/tracestate-probability-sampling/>. Other systems with this rule sample the same traces.
const BITS: u32 = 56;

/// The share of traces with spans, as a threshold: a trace is sampled if its last bits are at or above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample(u64);

impl FromStr for Sample {
    type Err = TelemetryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ratio: f64 = text.parse().map_err(|_| TelemetryError::Sample)?;
        if !(0.0..=1.0).contains(&ratio) {
            return Err(TelemetryError::Sample);
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 2^56")]
        let threshold = ((1.0 - ratio) * 2_f64.powi(BITS.cast_signed())).round() as u64;
        Ok(Self(threshold))
    }
}

/// The trace of one change, with all work that follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    id: [u8; 16],
    root: SpanId,
    sampled: bool,
}

impl Trace {
    /// Returns the trace of the change with this serial in the log of this pipeline.
    #[must_use]
    pub fn of_change(pipeline: &str, serial: i64, sample: Sample) -> Self {
        let hash = hash(&["change", pipeline, &serial.to_string()]);
        let (mut id, mut root, mut last) = ([0; 16], [0; 8], [0; 8]);
        id.copy_from_slice(&hash[..16]);
        root.copy_from_slice(&hash[16..24]);
        last.copy_from_slice(&id[8..]);
        let sampled = u64::from_be_bytes(last) & ((1 << BITS) - 1) >= sample.0;
        // An id of zeros is invalid. No hash is known that starts with 16 zero bytes.
        id[0] |= u8::from(id == [0; 16]);
        Self { id, root: SpanId::of(u64::from_be_bytes(root)), sampled }
    }

    /// Returns the id of the span of the change itself.
    #[must_use]
    pub const fn root(&self) -> SpanId {
        self.root
    }

    /// Whether the spans of the trace are recorded.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        self.sampled
    }

    /// Returns the id of the trace.
    #[must_use]
    pub const fn id(&self) -> [u8; 16] {
        self.id
    }

    /// Returns the value of `traceparent`, which identifies the span of the request for the receiver.
    #[must_use]
    pub fn parent_header(&self, span: SpanId) -> String {
        format!("00-{}-{span}-{:02x}", hex::encode(self.id), u8::from(self.sampled))
    }
}

/// The id of a span; never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId([u8; 8]);

impl SpanId {
    /// Returns the id for a number, such as a random one.
    #[must_use]
    pub fn of(number: u64) -> Self {
        Self(number.max(1).to_be_bytes())
    }

    /// Returns the id for a unique key of any length.
    #[must_use]
    pub fn hashed(key: &[&str]) -> Self {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hash(key)[..8]);
        Self::of(u64::from_be_bytes(bytes))
    }

    /// Returns the bytes of the id.
    #[must_use]
    pub const fn bytes(self) -> [u8; 8] {
        self.0
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// Hashes the parts. Each part ends with a zero byte, which no part contains, so that different keys have different inputs.
fn hash(parts: &[&str]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hasher.finalize().into()
}

/// A completed piece of work. The code that creates a span must ensure that it contains nothing secret.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The trace of the span.
    pub trace: Trace,
    /// The id of the span.
    pub id: SpanId,
    /// The span that caused this one.
    pub parent: Option<SpanId>,
    /// The name, from a small fixed set.
    pub name: &'static str,
    /// Whether the span is a call to another system.
    pub is_call: bool,
    /// When the work started.
    pub start: Timestamp,
    /// When the work ended.
    pub end: Timestamp,
    /// The attributes of the span.
    pub attributes: Vec<(&'static str, Value)>,
    /// The error, if the work failed.
    pub error: Option<String>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample(text: &str) -> Sample {
        text.parse().unwrap()
    }

    fn trace(pipeline: &str, serial: i64) -> Trace {
        Trace::of_change(pipeline, serial, sample("1"))
    }

    /// The ids are the first 24 bytes of `printf 'change\0UID\0SERIAL\0' | sha256sum`. Every later version must compute the same ids,
    /// because it continues traces of earlier versions.
    #[test]
    fn trace_and_span_ids_of_a_change_never_change() {
        let trace = trace("0b6f6f0e-6d0a-4c7e-9f2b-3a1f6c1d2e3f", 1_763_711_234_567);
        let known = "00-2c166b8859b7236df9008cf6d0df0e78-ab073adf5f5d4575-01";
        assert_eq!(trace.parent_header(trace.root()), known);
    }

    #[test]
    fn every_part_of_a_key_counts() {
        let one = trace("p1", 12);
        assert_eq!(one, trace("p1", 12));
        for other in [trace("p2", 12), trace("p1", 13), trace("p11", 2), trace("p1\0", 12)] {
            assert!(one.id() != other.id() && one.root() != other.root(), "{other:?}");
        }
        let span = SpanId::hashed(&["delivery", "a", "b"]);
        assert_eq!(span, SpanId::hashed(&["delivery", "a", "b"]));
        for other in [&["delivery", "ab", ""][..], &["delivery", "a"], &["deliverya", "b"]] {
            assert_ne!(span, SpanId::hashed(other), "{other:?}");
        }
    }

    #[test]
    fn a_span_id_is_never_zero_because_zero_is_invalid() {
        assert_eq!(SpanId::of(0).to_string(), "0000000000000001");
        assert_eq!(SpanId::of(u64::MAX).to_string(), "ffffffffffffffff");
    }

    #[test]
    fn a_sample_ratio_is_parsed_from_0_to_1() {
        for (text, threshold) in
            [("1", 0), ("1.0", 0), ("0", 1 << BITS), ("0.5", 1 << (BITS - 1)), ("0.25", 3 << (BITS - 2))]
        {
            assert_eq!(sample(text), Sample(threshold), "{text}");
        }
        for text in ["", "-0.1", "1.1", "NaN", "inf", "10%"] {
            assert!(text.parse::<Sample>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_flag_says_whether_it_is_sampled() {
        let of = |ratio: &str| (0..10_000).map(|serial| Trace::of_change("p", serial, sample(ratio))).collect::<Vec<_>>();
        assert!(of("1").iter().all(Trace::is_sampled));
        assert!(!of("0").iter().any(Trace::is_sampled));
        let half = of("0.5");
        let sampled = half.iter().filter(|trace| trace.is_sampled()).count();
        assert!((4_700..5_300).contains(&sampled), "{sampled}");
        for (one, other) in half.iter().zip(of("0.6")) {
            assert!(!one.is_sampled() || other.is_sampled(), "a higher ratio samples every trace of a lower ratio");
            assert!(one.parent_header(one.root()).ends_with(if one.is_sampled() { "-01" } else { "-00" }));
        }
    }

    proptest! {
        #[test]
        fn headers_follow_the_specification(pipeline: String, serial: i64, span: u64, ratio in 0.0_f64..=1.0) {
            let trace = Trace::of_change(&pipeline, serial, sample(&format!("{ratio}")));
            let header = trace.parent_header(SpanId::of(span));
            let parts: Vec<_> = header.split('-').collect();
            prop_assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [2, 32, 16, 2]);
            prop_assert!(parts.iter().all(|part| part.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))));
            prop_assert!(parts[1] != "0".repeat(32) && parts[2] != "0".repeat(16));
            prop_assert_eq!(parts[0], "00");
        }
    }
}
