//! Integration tests, which run the program `dunlin`.

mod bench_program;
mod cluster;
mod commands;
mod config;
mod dunlin;
mod durable;
mod feed;
mod feed_import;
mod following;
mod full_disk;
mod getting_started;
mod groups;
mod http;
mod kv;
mod lock;
mod namespace;
mod open_files;
#[cfg(feature = "otel-test")]
mod otel;
mod page_commands;
mod pages;
mod publish_subscribe;
mod request_reply;
mod serve;
mod space;
mod states;
mod task;
mod tls;
mod top;
mod topics;
mod users;
mod workers;
