//! The commands, in the order in which the help lists them.

pub mod bench;
pub mod cluster;
pub mod completions;
pub mod config;
pub mod demo;
pub mod dev;
pub mod elect;
pub mod errors;
pub mod feed;
pub mod kv;
pub mod lock;
pub mod log;
pub mod man;
pub mod owners;
pub mod parse;
pub mod publish;
pub mod reply;
pub mod report;
pub mod request;
pub mod scale;
pub mod serve;
pub mod space;
pub mod subscribe;
pub mod subscriptions;
pub mod task;
pub mod top;
pub mod topics;
pub mod user;

use anyhow::Result;

use crate::arguments::{Command, Global};
use crate::bench_program;
use crate::console::Console;

pub fn run(command: &Command, global: &Global, console: &Console) -> Result<()> {
    match command {
        Command::Config(arguments) => config::run(arguments, console),
        Command::Completions(arguments) => completions::run(arguments),
        Command::Man(arguments) => man::run(arguments),
        Command::Feed(arguments) => feed::run(arguments, global, console),
        Command::Scale(_) => bench_program::exec("scale"),
        Command::User(arguments) => user::run(arguments, global, console),
        Command::Errors(arguments) => errors::run(arguments, console),
        Command::Bench(_) => bench_program::exec("bench"),
        Command::Report(_) => bench_program::exec("report"),
        Command::Demo(_) => bench_program::exec("demo"),
        Command::Serve(arguments) => serve::run(arguments, global, console),
        Command::Cluster(arguments) => cluster::run(arguments, console),
        Command::Dev(arguments) => dev::run(arguments, console),
        Command::Pub(arguments) => publish::run(arguments, global, console),
        Command::Sub(arguments) => subscribe::run(arguments, global, console),
        Command::Req(arguments) => request::run(arguments, global, console),
        Command::Reply(arguments) => reply::run(arguments, global, console),
        Command::Top(arguments) => top::run(arguments, global, console),
        Command::Topics(arguments) => topics::run(arguments, global, console),
        Command::Kv(arguments) => kv::run(arguments, global, console),
        Command::Space(arguments) => space::run(arguments, global, console),
        Command::Lock(arguments) => lock::run(arguments, global, console),
        Command::LockGuard => lock::guard::run(),
        Command::Elect(arguments) => elect::run(arguments, global, console),
        Command::Task(arguments) => task::run(arguments, global, console),
        Command::Subscriptions(arguments) => subscriptions::run(arguments, global, console),
        Command::Log(arguments) => log::run(arguments, global, console),
    }
}
