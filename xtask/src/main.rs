//! The project's commands: `cargo xtask <command>`. Each command has its own file.
//!
//! The product does not depend on this crate. This crate uses few libraries, so that it builds quickly: it starts
//! programs such as cargo, git and python3 instead.

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
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Run the project's development commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Download the recordings that are missing in data/, and verify their checksums
    Data,
    /// Download the recordings, build the programs and run `dunlin demo` with the given arguments
    Demo(demo::Options),
    /// Build the other systems for `dunlin bench peers`, in peers/build/
    Peers,
    /// Test other projects' gRPC clients (grpcio, grpc-go, grpc-js, grpcurl) against a node
    Clients(clients::Options),
    /// Run the programs in tests/cases, each of which checks that one reported fault has not returned
    Cases(cases::Options),
    /// Run the tests of CI and stop at the first failure; `--all` runs all parts, and NAME runs one part, step or test
    Test(test::Options),
    /// Run one test for nextest, and fail if it leaves processes behind
    #[command(hide = true)]
    RunTest(run_test::Options),
    /// Test the lock-free code in every interleaving, and with the sanitizers if they are installed
    Race(race::Options),
    /// Fuzz the decoders and the topic, with the nightly toolchain
    Fuzz(fuzz::Options),
    /// Run the system tests many times with random kills, stops and corrupt input
    Chaos(chaos::Options),
    /// Build the wheel of the Python package, in target/python/wheels
    Python(python::Options),
    /// Install NATS client libraries into target/ and test each against the NATS listener
    NatsClients,
    /// Build `dunlin` with OpenTelemetry and test the export of traces
    Otel,
    /// Test the browser client (web/client) against a node
    Web,
    /// Build the dashboard and compare it with the committed one
    Dashboard(dashboard::Options),
    /// Test every page of the dashboard in a browser, against nodes
    Page(page::Options),
    /// Check format, lints, tidiness and licences, and run the unit tests of changed crates and their dependents
    Check(check::Options),
    /// Build the static binary of deploy/Containerfile and test it in an empty root directory; needs root
    Image,
    /// Check the repository's rules for source, tests and pages (see docs/testing.md), without changing anything
    Tidy,
    /// Print the sizes of the built programs; fail if `dunlin` is too large
    Sizes(sizes::Options),
    /// Draw the charts of the stored benchmark results
    Charts,
    /// Draw the README's pictures from the output of real commands
    Pictures,
    /// Regenerate the protobuf code, fix lints and format the source
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
