//! `demo`: downloads the recordings, builds the programs, and runs `dunlin demo` with the given arguments.
//!
//! If the demo shows tasks, the command also builds the Python package, because Python programs submit and run these
//! tasks.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{data, python, workspace};

/// The options of `dunlin demo`, which `dunlin demo --help` explains.
#[derive(clap::Args)]
pub struct Options {
    /// Arguments for `dunlin demo`, such as --once or --speed 10x; `--only PART` runs one part: feed, nodes, tasks
    /// or space [default: all parts together]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// The part of the demo to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DemoPart {
    /// All parts of the demo, on one cluster.
    Together,
    Feed,
    Nodes,
    Tasks,
    Space,
}

impl Options {
    /// Returns the options with which the demo runs all parts once, and ends after it has printed the final tables.
    pub fn once() -> Options {
        Options::from_arguments(&["--once"])
    }

    /// Returns the options with which the demo runs only the feeds, at full speed. Some subscribers of the feeds are
    /// slow, some start late, and some are killed.
    pub fn feeds() -> Options {
        Options::from_arguments(&["--only", "feed", "--once", "--speed", "max"])
    }

    fn from_arguments(arguments: &[&str]) -> Options {
        Options { arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect() }
    }

    /// Returns the part of the demo to run, and the arguments for `dunlin demo`.
    fn parse(&self) -> Result<(DemoPart, Vec<String>)> {
        let (mut part, mut words) = (None, Vec::new());
        let mut remaining = self.arguments.iter();
        while let Some(word) = remaining.next() {
            let only = match word.strip_prefix("--only") {
                Some("") => Some(remaining.next().map(String::as_str).unwrap_or_default()),
                Some(name) => name.strip_prefix('='),
                None => None,
            };
            match (only, word.as_str()) {
                (Some(name), _) => part = Some(DemoPart::from_name(name)?),
                (None, "--tasks") => part = Some(DemoPart::Tasks),
                _ => words.push(word.clone()),
            }
        }
        let has = |option: &str| words.iter().any(|word| word.split('=').next() == Some(option));
        let implied =
            [("--space", DemoPart::Space), ("--nodes", DemoPart::Nodes), ("--kills", DemoPart::Nodes)];
        let implied = implied.into_iter().find(|(option, _)| has(option)).map(|(_, part)| part);
        let part = part.or(implied).unwrap_or(DemoPart::Together);
        match part {
            DemoPart::Space if !has("--space") => words.push("--space".to_owned()),
            DemoPart::Nodes if !has("--nodes") => words.extend(["--nodes", "3"].map(str::to_owned)),
            DemoPart::Together if !has("--together") => words.push("--together".to_owned()),
            _ => {}
        }
        Ok((part, words))
    }
}

impl DemoPart {
    fn from_name(name: &str) -> Result<DemoPart> {
        match name {
            "feed" => Ok(DemoPart::Feed),
            "nodes" => Ok(DemoPart::Nodes),
            "tasks" => Ok(DemoPart::Tasks),
            "space" => Ok(DemoPart::Space),
            _ => bail!("--only {name}: expected feed, nodes, tasks or space"),
        }
    }
}

/// Prepares and runs the demo.
pub fn run(options: &Options) -> Result<()> {
    exec(prepare(options)?)
}

/// Downloads the recordings and builds the programs. Returns the command that runs the demo.
pub fn prepare(options: &Options) -> Result<Command> {
    let (part, words) = options.parse()?;
    if let Err(error) = data::run() {
        if part == DemoPart::Tasks || !words.iter().any(|word| word == "--allow-generated") {
            return Err(error.context(
                "cannot get the recordings (--allow-generated uses generated data instead, except in the tasks demo)",
            ));
        }
        eprintln!(
            "demo: using generated data (--allow-generated), because recordings are missing: {error:#}"
        );
    }
    let mut dunlin = workspace::build_dunlin()?;
    if part == DemoPart::Tasks {
        let mut demo = Command::new(python::prepare()?);
        demo.arg(python::examples().join("recordings.py")).args(&words);
        demo.env("DUNLIN_BINARY", dunlin.get_program()).env("DUNLIN_DATA", data::directory());
        demo.env("PYTHONDONTWRITEBYTECODE", "1");
        return Ok(demo);
    }
    dunlin.arg("demo").arg("--data").arg(data::directory()).args(&words);
    if part == DemoPart::Together {
        dunlin.arg("--python").arg(python::prepare()?).arg("--work").arg(python::examples());
        dunlin.env("PYTHONDONTWRITEBYTECODE", "1");
    }
    Ok(dunlin)
}

/// Replaces this process by the process of the demo. The demo therefore receives Ctrl-C directly, and its exit code is
/// the exit code of this command.
#[cfg(unix)]
fn exec(mut command: Command) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", command.get_program().display()))
}

#[cfg(not(unix))]
fn exec(mut command: Command) -> Result<()> {
    let status = command.status()?;
    std::process::exit(status.code().unwrap_or(2));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> (DemoPart, String) {
        let (part, words) = Options::from_arguments(words).parse().unwrap();
        (part, words.join(" "))
    }

    #[test]
    fn demo_runs_all_parts_unless_an_option_names_one() {
        assert_eq!(parse(&[]), (DemoPart::Together, "--together".into()));
        assert_eq!(parse(&["--once"]), (DemoPart::Together, "--once --together".into()));
        assert_eq!(parse(&["--once", "--only", "feed"]), (DemoPart::Feed, "--once".into()));
        assert_eq!(parse(&["--only=space", "--flock", "9"]), (DemoPart::Space, "--flock 9 --space".into()));
        assert_eq!(parse(&["--nodes=5"]), (DemoPart::Nodes, "--nodes=5".into()));
        assert_eq!(parse(&["--kills", "3"]), (DemoPart::Nodes, "--kills 3 --nodes 3".into()));
        assert_eq!(parse(&["--once", "--tasks"]), (DemoPart::Tasks, "--once".into()));
        assert!(Options::from_arguments(&["--only", "birds"]).parse().is_err());
        assert!(Options::from_arguments(&["--only"]).parse().is_err());
    }
}
