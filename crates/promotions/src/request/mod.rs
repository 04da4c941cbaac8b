//! What a person asks for on the command line: a promotion, an approval, or a list of promotions.
//!
//! In: a pipeline, its Promotions, and the arguments. Out: the Promotion to create or to approve, or an error with a remedy ([`ask`](relaybook_core::promotion::ask), pure).
//! [`command`] makes the calls to the API server with the permissions of the person, and returns rows for the output.

pub mod command;
