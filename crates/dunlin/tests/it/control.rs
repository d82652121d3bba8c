//! What a node promises of keys and values, leases and locks, and of the topic of their changes.

mod alone;
mod cluster;
mod full;
mod stage;
