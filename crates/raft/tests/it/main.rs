//! Tests of Raft groups. All nodes run in one process. A test can cut the links between nodes, and let a node's disk
//! lose its unsynced data.

mod cluster;
mod faults;
mod full;
mod members;
mod plain;
