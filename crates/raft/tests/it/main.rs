//! Tests of Raft groups. All nodes run in one process, their links can be cut, and their disks can crash.

mod cluster;
mod faults;
mod full;
mod members;
mod plain;
