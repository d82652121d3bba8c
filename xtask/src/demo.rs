//! `demo`: the recordings, the binary, and then `dunlin demo` in our place.
//!
//! The demo itself is a command of the product. Here stands only what it needs first; every argument is its own. That of tasks is a program of the Python
//! package, which is built for it.

use std::process::Command;

use anyhow::{Context, Result};

use crate::{data, python, workspace};

const TASKS: &str = "--tasks";

/// The demo's own options; `dunlin demo --help` explains them.
#[derive(clap::Args)]
pub struct Options {
    /// Tasks in place of feeds: four tenants have the recordings parsed by Python workers that come, go and are killed
    #[arg(long)]
    tasks: bool,
    /// Passed on to `dunlin demo`: --once, --speed 10x, --allow-generated, …
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Options {
    /// The demo as fast as it goes, to its closing table.
    pub fn once() -> Options {
        Options { tasks: false, arguments: ["--once", "--speed", "max"].map(str::to_owned).to_vec() }
    }

    /// Work of four tenants, once.
    pub fn of_tasks() -> Options {
        Options { tasks: true, arguments: vec!["--once".to_owned()] }
    }

    /// Some of it over three nodes, each of which is killed once.
    pub fn over_nodes() -> Options {
        let arguments = ["--nodes", "3", "--kills", "3", "--lines", "3000", "--speed", "8s", "--once"];
        Options { tasks: false, arguments: arguments.map(str::to_owned).to_vec() }
    }

    /// Wherever it was said: behind the first of the demo's own options all words are taken for its own.
    fn is_of_tasks(&self) -> bool {
        self.tasks || self.arguments.iter().any(|argument| argument == TASKS)
    }

    fn allow_generated(&self) -> bool {
        self.arguments.iter().any(|argument| argument == "--allow-generated")
    }
}

/// Fetches, builds, and becomes the demo.
pub fn run(options: &Options) -> Result<()> {
    become_(prepare(options)?)
}

/// Fetches and builds; the command that is then the demo.
pub fn prepare(options: &Options) -> Result<Command> {
    if options.is_of_tasks() {
        return prepare_tasks(options);
    }
    if let Err(error) = data::run() {
        if !options.allow_generated() {
            return Err(error.context(
                "the demo replays real recordings, and they are not all there \
                 (--allow-generated runs it on generated data instead)",
            ));
        }
        eprintln!("demo: no recordings, so generated data, as --allow-generated allows: {error:#}");
    }
    let mut demo = workspace::dunlin()?;
    demo.arg("demo").arg("--data").arg(data::directory()).args(&options.arguments);
    Ok(demo)
}

fn prepare_tasks(options: &Options) -> Result<Command> {
    data::run().context("the demo parses real recordings, and they are not all there")?;
    let dunlin = workspace::dunlin()?;
    let mut demo = python::example("recordings.py")?;
    demo.env("DUNLIN_BINARY", dunlin.get_program()).env("DUNLIN_DATA", data::directory());
    demo.args(options.arguments.iter().filter(|argument| *argument != TASKS));
    Ok(demo)
}

/// The demo takes over this process, so that Ctrl-C and the exit code are its own.
#[cfg(unix)]
fn become_(mut command: Command) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", command.get_program().display()))
}

#[cfg(not(unix))]
fn become_(mut command: Command) -> Result<()> {
    let status = command.status()?;
    std::process::exit(status.code().unwrap_or(2));
}
