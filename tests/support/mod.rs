//! What the integration tests stand on: real parts, started by the tests and gone with them.
//!
//! In: the launcher in `hack/control-plane`, the built `pennant`. Out: a control plane ([`control_plane`]), a way to it on which
//! calls and answers are lost ([`proxy`]), Pennant as a child process ([`pennant`]), HTTP receivers on loopback that do what a
//! script says ([`receiver`]), certificates good and bad ([`tls`]), the chart as it renders and the rights that it gives
//! ([`chart`], [`under`]), objects as people and their controllers write them ([`world`]), waiting without luck ([`wait`]),
//! and the judge of it all ([`oracle`]), with which every test ends: nothing missing, nothing unexpected, no order violated, no
//! duplicate beyond what the test allows, and an audit that says what the receiver saw.
//!
//! Nothing here looks into Pennant. Of its library only the API types and `crds()` are used.

#[allow(dead_code, reason = "the integration tests use it")]
pub mod chart;
pub mod control_plane;
pub mod lanes;
pub mod oracle;
pub mod pennant;
pub mod proxy;
pub mod reaper;
pub mod receiver;
#[allow(dead_code, reason = "the integration tests use it")]
pub mod remote;
#[allow(dead_code, reason = "the integration tests use it")]
pub mod tls;
pub mod under;
pub mod wait;
pub mod world;

pub use oracle::Oracle;
pub use pennant::Pennant;
pub use proxy::{Fault, Proxy};
pub use receiver::{Receiver, Reply};
pub use wait::eventually;
pub use world::World;
