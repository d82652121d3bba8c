//! Groups of a few nodes in one process, whose ways to one another can be cut and whose disks can crash.

mod faults;
mod full;
mod members;
mod plain;
mod stage;
