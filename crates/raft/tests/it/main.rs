//! Groups of a few nodes in one process, with links that can be cut and disks that can crash.

mod cluster;
mod faults;
mod full;
mod members;
mod plain;
