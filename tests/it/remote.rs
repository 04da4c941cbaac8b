//! Targets on a second and a third control plane. Their changes are sent like those of the local cluster, and changes of the
//! clusters themselves are sent, too.

mod changes;
mod groups;
mod kinds;
mod leaks;
mod offline;
mod people;
