//! Tests of the client, mostly with a scripted node: its messages, their order, and what callers receive.

mod beginning_anew;
mod conformance;
mod connecting;
mod continuity;
mod cutting;
mod following;
mod groups;
mod interrupting;
mod keys;
mod losing;
mod members;
mod node;
mod peer;
mod publishing;
mod real_books;
mod requests;
mod running;
mod sharing;
mod states;
mod tasks;
mod working;
