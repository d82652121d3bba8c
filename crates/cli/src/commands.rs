//! The modules of the commands of `dunlin`, in the order in which the help lists the commands.

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

use crate::arguments::{CliCommand, GlobalOptions};
use crate::bench_program;
use crate::console::Console;

pub fn run(command: &CliCommand, global: &GlobalOptions, console: &Console) -> Result<()> {
    match command {
        CliCommand::Config(arguments) => config::run(arguments, console),
        CliCommand::Completions(arguments) => completions::run(arguments),
        CliCommand::Man(arguments) => man::run(arguments),
        CliCommand::Feed(arguments) => feed::run(arguments, global, console),
        CliCommand::Scale(_) => bench_program::exec("scale"),
        CliCommand::User(arguments) => user::run(arguments, global, console),
        CliCommand::Errors(arguments) => errors::run(arguments, console),
        CliCommand::Bench(_) => bench_program::exec("bench"),
        CliCommand::Report(_) => bench_program::exec("report"),
        CliCommand::Demo(_) => bench_program::exec("demo"),
        CliCommand::Serve(arguments) => serve::run(arguments, global, console),
        CliCommand::Cluster(arguments) => cluster::run(arguments, console),
        CliCommand::Dev(arguments) => dev::run(arguments, console),
        CliCommand::Pub(arguments) => publish::run(arguments, global, console),
        CliCommand::Sub(arguments) => subscribe::run(arguments, global, console),
        CliCommand::Req(arguments) => request::run(arguments, global, console),
        CliCommand::Reply(arguments) => reply::run(arguments, global, console),
        CliCommand::Top(arguments) => top::run(arguments, global, console),
        CliCommand::Topics(arguments) => topics::run(arguments, global, console),
        CliCommand::Kv(arguments) => kv::run(arguments, global, console),
        CliCommand::Space(arguments) => space::run(arguments, global, console),
        CliCommand::Lock(arguments) => lock::run(arguments, global, console),
        CliCommand::LockGuard => lock::guard::run(),
        CliCommand::Elect(arguments) => elect::run(arguments, global, console),
        CliCommand::Task(arguments) => task::run(arguments, global, console),
        CliCommand::Subscriptions(arguments) => subscriptions::run(arguments, global, console),
        CliCommand::Log(arguments) => log::run(arguments, global, console),
    }
}
