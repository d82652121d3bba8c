//! The command `bench`: passes its arguments to the crate with the benchmarks.

use anyhow::{Result, bail};
use dunlin_bench::child::ChildProgram;
use dunlin_bench::{BenchRequest, RawFeedOptions, RawOptions};
use dunlin_cli::arguments::GlobalOptions;
use dunlin_cli::commands::bench::{Arguments, FeedArguments};
use dunlin_cli::commands::feed::read_instruments;
use dunlin_cli::connect::tls;
use dunlin_cli::outcome::CommandRefusal;

pub fn run(arguments: &Arguments, global: &GlobalOptions) -> Result<()> {
    let (with_peers, suite) = match arguments.words.as_slice() {
        [peers, suite] if peers == "peers" => (true, suite),
        [suite] if suite != "peers" => (false, suite),
        words => {
            return Err(CommandRefusal(format!(
                "expected the arguments `SUITE` or `peers SUITE`, not {:?}",
                words.join(" ")
            ))
            .into());
        }
    };
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let command_line = words.collect::<Vec<_>>().join(" ");
    let request = BenchRequest {
        suite: suite.clone(),
        with_peers,
        options: options(arguments, global)?,
        command: format!("dunlin {command_line}"),
        runs_folder: arguments.keep.clone(),
        against: arguments.against.clone(),
        child: ChildProgram::current()?,
    };
    if !dunlin_bench::run(request)? {
        bail!("some results failed their checks: see FAILED above");
    }
    Ok(())
}

fn options(arguments: &Arguments, global: &GlobalOptions) -> Result<RawOptions> {
    Ok(RawOptions {
        cases: arguments.cases.clone(),
        params: arguments.params.clone(),
        runs: arguments.runs,
        warmup: arguments.warmup.clone(),
        time: arguments.time.clone(),
        url: global.url.clone(),
        tls: tls(global)?,
        quick: arguments.quick,
        json: global.json,
        feed: feed_options(&arguments.feed)?,
    })
}

fn feed_options(arguments: &FeedArguments) -> Result<RawFeedOptions> {
    let FeedArguments { config, clients, instruments, depth, delay_ms, test_loss_every, seed } =
        arguments.clone();
    let config = config.map(|file| read_instruments(&file)).transpose()?;
    Ok(RawFeedOptions { config, clients, instruments, depth, delay_ms, test_loss_every, seed })
}

/// Arguments of the hidden command that `bench` runs in its child processes.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct BenchChildArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub fn run_child(child: &BenchChildArguments) -> Result<()> {
    dunlin_bench::child_main(&child.arguments)
}
