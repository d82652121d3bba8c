//! Tests of the bench with real processes: tiny runs of everything that needs no installed peer.

mod broker;
mod children;
mod control;
mod feed;
mod runs;
mod space;
mod stand;
mod tasks;
