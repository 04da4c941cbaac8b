//! `docs/configuration.md` says what is so: its examples are understood, and its tables of fields are made of the schema.

mod chart;
mod examples;
mod fields;

const PAGE: &str = include_str!("../../../docs/configuration.md");
