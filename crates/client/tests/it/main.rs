//! Tests of the client. In most of them, the client connects to a scripted node. This node checks the client's messages
//! and their order, and sends the responses in the script.

mod conformance;
mod connecting;
mod continuity;
mod cut_connections;
mod groups;
mod interrupting;
mod keys;
mod lost_connections;
mod members;
mod node;
mod peer;
mod publishing;
mod real_books;
mod recreated_topics;
mod requests;
mod running_node;
mod shared_connection;
mod state_subscribers;
mod states;
mod tasks;
mod workers;
mod worlds;
