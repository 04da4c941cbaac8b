//! Targets on a second and a third control plane: what happens there is told as if it were here, and what happens to them is told
//! too.

mod changes;
mod groups;
mod kinds;
mod leaks;
mod offline;
mod people;
