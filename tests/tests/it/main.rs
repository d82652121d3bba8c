//! Tests of what nodes guarantee about the delivery of records when processes or connections fail. Nodes, publishers
//! and subscribers are separate processes.
//!
//! `cargo test` runs each test a few times. `cargo xtask chaos` runs each test many times; environment variables state
//! the number of runs (module `tier`).

mod alone;
mod backup;
mod bad_input;
mod cluster;
mod cluster_deleted;
mod cluster_figures;
mod cluster_leaders;
mod cluster_topics;
mod cluster_under_test;
mod crowd;
mod killed_node;
mod killed_store;
mod killed_writer;
mod nats_async;
mod nats_clients;
mod nats_node;
mod nats_nodes;
mod processes;
mod promises;
mod readme;
mod refused;
mod space;
mod stopped;
mod tasks;
mod tier;
mod tls_node;
