//! Runs the roles of child processes. A child process is started as `dunlin bench-child ROLE --name=value …`.
//!
//! A child process ends when its parent process ends. A child process never waits without a deadline.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::broker;
use crate::control;
use crate::feed;
use crate::grpc;
use crate::local;
use crate::protocols;
use crate::raw;
use crate::remote;
use crate::space;
use crate::tasks;

/// The arguments of a child process, by name.
#[derive(Debug)]
pub struct RoleArgs(Vec<(String, String)>);

impl RoleArgs {
    fn parse(args: &[String]) -> Result<Self> {
        let pairs = args.iter().map(|arg| {
            let pair = arg.strip_prefix("--").and_then(|pair| pair.split_once('='));
            let (name, value) = pair.with_context(|| format!("argument `{arg}`: expected --name=value"))?;
            Ok((name.to_owned(), value.to_owned()))
        });
        pairs.collect::<Result<_>>().map(Self)
    }

    /// Returns the value of an argument, parsed. Returns an error if the argument is missing.
    pub fn get<T: FromStr>(&self, name: &str) -> Result<T>
    where
        T::Err: std::fmt::Display,
    {
        let value = self.text(name)?;
        value.parse().map_err(|error| anyhow!("--{name}={value}: {error}"))
    }

    /// Returns the value of an argument as text. Returns an error if the argument is missing.
    pub fn text(&self, name: &str) -> Result<&str> {
        let pair = self.0.iter().find(|(known, _)| known == name);
        pair.map(|(_, value)| value.as_str()).with_context(|| format!("--{name} is missing"))
    }
}

/// Writes a value to standard output as one line of JSON, for the process that started this one.
pub fn print_line(line: &impl Serialize) -> Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, line)?;
    out.write_all(b"\n")?;
    out.flush().context("cannot write to the parent process")
}

/// Reads the next line from the process that started this one, and parses it as JSON.
pub fn read_line<T: DeserializeOwned>() -> Result<T> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).context("cannot read from the parent process")?;
    serde_json::from_str(&line).with_context(|| format!("the parent process sent a malformed line: {line}"))
}

/// Runs a role. The first of `args` is the name of the role. The program calls this function for its hidden command
/// `bench-child`.
pub fn child_main(args: &[String]) -> Result<()> {
    let (role, rest) = args.split_first().context("the first argument, the role, is missing")?;
    set_parent_death_signal()?;
    if role == "bound" {
        return exec_program(rest);
    }
    let args = RoleArgs::parse(rest)?;
    match role.as_str() {
        "raw-sink" => raw::stream::sink(&args),
        "raw-echo" => raw::ping_pong::echo(&args),
        "raw-relay" => raw::relay::relay(&args),
        "local-memory" => local::memory::run_child(&args),
        "remote-node" => remote::node::serve(&args),
        "broker-offender" => broker::offender_child(&args),
        "broker-stress" => broker::stress_child(&args),
        "control-clients" => control::clients::run(&args),
        "control-node" => control::node::serve(&args),
        "listener-node" => protocols::node::serve(&args),
        "grpc-echo" => grpc::serve_echo(&args),
        "grpc-node" => grpc::serve_node(&args),
        "feed-node" => feed::node::serve(&args),
        "space-delay" => space::delay::relay(&args),
        "space-node" => space::node::serve(&args),
        "tasks-worker" => tasks::worker_processes::run(&args),
        "tasks-clients" => tasks::clients::run(&args),
        "tasks-local-worker" => tasks::local::run(),
        "tasks-scheduler" => tasks::scheduler::run(&args),
        unknown => bail!("unknown role `{unknown}`"),
    }
}

fn set_parent_death_signal() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot make this process end when its parent process ends")?;
    // This process has asked the kernel for a signal at the end of its parent. If the parent had already ended, the
    // signal never arrives; the parent is then init.
    if getppid().is_none_or(|parent| parent.is_init()) {
        bail!("the parent process has ended");
    }
    Ok(())
}

fn exec_program(args: &[String]) -> Result<()> {
    let (program, args) = args.split_first().context("the program to start is missing")?;
    Err(Command::new(program).args(args).exec()).with_context(|| format!("cannot start {program}"))
}
