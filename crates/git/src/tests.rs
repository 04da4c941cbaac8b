//! Tests of the module: tables for the pure parts, packs of a hostile server, and the real `git http-backend`.

mod backend;
mod http_backend;
mod packs;
mod pure;
mod served;
