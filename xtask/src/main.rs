//! The project's own commands: `cargo xtask <command>`, one file for each command.
//!
//! Nothing of the product depends on this crate. It drives cargo, git and python3 as processes, so it stays quick to
//! build: it is the first thing a newcomer waits for.

mod cases;
mod changed;
mod chaos;
mod charts;
mod check;
mod clients;
mod dashboard;
mod data;
mod demo;
mod fuzz;
mod image;
mod nats_clients;
mod otel;
mod page;
mod peers;
mod pictures;
mod process;
mod python;
mod race;
mod run_test;
mod sizes;
mod test;
mod tidy;
mod tools;
mod web;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "The project's own commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fetch the recorded market streams into data/ and verify them; does nothing when they are there
    Data,
    /// Fetch the data, build the binary and run `dunlin demo` with every argument given here
    Demo(demo::Options),
    /// Build the rival programs that `dunlin bench peers` measures, into peers/build/
    Peers,
    /// Run clients of other projects (grpcio, grpc-go, grpc-js, grpcurl) against a node
    Clients(clients::Options),
    /// Run the programs of tests/cases, which reproduce faults that outsiders found
    Cases(cases::Options),
    /// Run what CI runs, and stop at the first step that fails; `--all` for everything, NAME for one part or test
    Test(test::Options),
    /// Run one test's program, as `cargo xtask test` has nextest do
    #[command(hide = true)]
    RunTest(run_test::Options),
    /// Try the lock-free code in every interleaving, and under the sanitizers where the machine has them
    Race(race::Options),
    /// Feed the decoders and the topic whatever a fuzzer thinks of, on nightly
    Fuzz(fuzz::Options),
    /// Kill, stop and feed garbage to whole systems, many times: the long tier of the system tests
    Chaos(chaos::Options),
    /// Build the Python package's wheel, into target/python/wheels
    Python(python::Options),
    /// Install NATS client libraries into target/ and try the NATS door with each
    NatsClients,
    /// Build the program with OpenTelemetry, and try its exporter
    Otel,
    /// Try the client for browsers against the real binary
    Web,
    /// Build the dashboard and compare it with the committed one
    Dashboard(dashboard::Options),
    /// Open every page of the dashboard in a browser, against real nodes
    Page(page::Options),
    /// Check format, lints, tidiness and licences, and run the unit tests of crates that changed and of those that depend on them
    Check(check::Options),
    /// Build the static binary of deploy/Containerfile, and try it alone in an empty root; needs root
    Image,
    /// Compare what ARCHITECTURE.md and the other pages say with the tree; reads only
    Tidy,
    /// Print how large the built programs are, and fail where `dunlin` is too large
    Sizes(sizes::Options),
    /// Draw the charts of the kept benchmark runs
    Charts,
    /// Make the README's pictures of what the commands really print
    Pictures,
    /// Rewrite what can be put right by machine: the code of protobuf files, lints, then format
    Fix,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Data => data::run(),
        Command::Demo(options) => demo::run(&options),
        Command::Peers => peers::run(),
        Command::Clients(options) => clients::run(&options),
        Command::Cases(options) => cases::run(&options),
        Command::Test(options) => test::run(&options),
        Command::RunTest(options) => match run_test::run(&options) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Race(options) => race::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Chaos(options) => chaos::run(&options),
        Command::Python(options) => python::run(&options),
        Command::NatsClients => nats_clients::run(),
        Command::Otel => otel::run(),
        Command::Web => web::run(),
        Command::Dashboard(options) => dashboard::run(&options),
        Command::Page(options) => page::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Image => image::run(),
        Command::Tidy => tidy::run(),
        Command::Sizes(options) => sizes::run(&options),
        Command::Charts => charts::run(),
        Command::Pictures => pictures::run(),
        Command::Fix => check::fix(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
