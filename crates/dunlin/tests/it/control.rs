//! Tests of keys, leases and locks, and of the topic with the changes of keys.

mod alone;
mod cluster;
mod full;
mod nodes;
