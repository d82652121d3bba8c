//! Runs a command of the user for each record. The command receives the payload on standard input, and the other values
//! of the record in environment variables.

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;

use anyhow::{Context, Result};
use dunlin_topic::Record;

use crate::outcome::CommandRefusal;

/// A command of the user with its arguments, which runs once for each record.
#[derive(Debug, Clone)]
pub struct ExternalProgram {
    name: String,
    arguments: Vec<String>,
}

impl ExternalProgram {
    /// Takes the first word as the program and the others as its arguments. Returns `None` if there are no words.
    pub fn new(words: &[String]) -> Option<ExternalProgram> {
        let (name, arguments) = words.split_first()?;
        Some(ExternalProgram { name: name.clone(), arguments: arguments.to_vec() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns an error if the command cannot be run. A caller uses this check before it receives the first record.
    pub fn check(&self) -> Result<()> {
        match self.unrunnable_reason() {
            Some(why) => Err(CommandRefusal(format!("{why}; no record was read")).into()),
            None => Ok(()),
        }
    }

    /// Returns the reason why the command cannot be run, as far as the file system shows it.
    pub fn unrunnable_reason(&self) -> Option<String> {
        let found = match self.name.contains('/') {
            true => is_command(Path::new(&self.name)),
            false => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                std::env::split_paths(&path).any(|dir| is_command(&dir.join(&self.name)))
            }
        };
        if found {
            return None;
        }
        let why = match Path::new(&self.name).exists() && self.name.contains('/') {
            true => "the file exists, but is not executable (chmod +x?)",
            false => "the command was not found",
        };
        Some(format!("cannot run {}: {why}", self.name))
    }

    /// Runs the command until it ends. The command writes to the standard output of this process.
    pub fn run(&self, record: &Record<'_>, attempt: u32) -> Result<ExitStatus> {
        let mut command = self.command(record);
        command.env("DUNLIN_ATTEMPT", attempt.to_string());
        self.run_with_payload(command, record, |mut child| child.wait())
    }

    /// Runs the command until it ends, and returns its output.
    pub fn output(&self, record: &Record<'_>) -> Result<Output> {
        let mut command = self.command(record);
        command.stdout(Stdio::piped());
        self.run_with_payload(command, record, Child::wait_with_output)
    }

    fn command(&self, record: &Record<'_>) -> Command {
        let mut command = Command::new(&self.name);
        command.args(&self.arguments).stdin(Stdio::piped());
        command.env("DUNLIN_SUBJECT", record.subject());
        command.env("DUNLIN_POSITION", record.position.to_string());
        if let Some(key) = record.frame.key() {
            command.env("DUNLIN_KEY", printable(key));
        }
        for (name, value) in record.frame.headers() {
            command.env(variable(name), printable(value));
        }
        command
    }

    fn run_with_payload<T>(
        &self,
        mut command: Command,
        record: &Record<'_>,
        wait: impl FnOnce(Child) -> io::Result<T>,
    ) -> Result<T> {
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.name))?;
        let input = child.stdin.take();
        // A thread writes the input, because the command may fill its output pipe before it has read the whole input.
        let outcome = thread::scope(|scope| {
            // The write fails if the command closes its input early. This is not an error.
            scope.spawn(|| input.map(|mut input| input.write_all(record.payload())));
            wait(child)
        });
        outcome.with_context(|| format!("cannot wait for {}", self.name))
    }
}

/// Whether `path` is a file that can be executed.
pub fn is_command(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Converts to text without NUL bytes, which environment variables cannot contain.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "")
}

/// Returns the name of the environment variable for a header: `trace-id` becomes `DUNLIN_HEADER_TRACE_ID`.
fn variable(header: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("DUNLIN_HEADER_{}", header.chars().map(plain).collect::<String>())
}
