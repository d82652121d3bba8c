//! Keys, leases and locks of a node, and the topic of their changes.

mod alone;
mod cluster;
mod full;
mod nodes;
