//! Starts and ends the child processes of a measurement, and exchanges JSON lines with them.
//!
//! Invariants: a child is killed and reaped when its handle is dropped, and its temporary files are removed. If this
//! process ends without dropping the handle, the kernel kills the child. Waiting for a child always ends at a deadline.
//!
//! Other systems' programs are started through the command `bench-child bound PROGRAM`. The process of this command
//! first asks the kernel for a kill signal at the end of its parent, and then replaces itself with PROGRAM. This extra
//! step is needed, because no safe code can run between fork and exec.
//!
//! The kernel kills a child when the thread that started the child ends. Therefore, start children from a thread that
//! lives longer than the children, such as the runner's thread.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::sockets;

/// The default time limit when waiting for a child, for example for the child's next line.
pub const TIMEOUT: Duration = Duration::from_secs(60);

const STDERR_BYTES_MAX: usize = 8 * 1024;

/// The command with which this process starts a child process. The executable is this process's own, or another one
/// that supports the roles of [`crate::child_main`].
#[derive(Clone, Debug)]
pub struct ChildProgram {
    program: PathBuf,
    leading_args: Vec<OsString>,
}

impl ChildProgram {
    /// Returns the command that starts this process's own executable with the argument `bench-child`.
    pub fn current() -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        Ok(Self::at(program))
    }

    /// Returns the command that starts the executable `program` with the argument `bench-child`. When the executable's
    /// first argument is `bench-child`, it must pass all further arguments to [`crate::child_main`].
    pub fn at(program: PathBuf) -> Self {
        Self { program, leading_args: vec!["bench-child".into()] }
    }

    /// Returns the command line that starts a child in a role. A caller needs the command line if it starts the process
    /// itself. A role names what the child does, such as `control-node`.
    pub fn command_line(&self, role: &str) -> Vec<String> {
        let args =
            [self.program.as_os_str()].into_iter().chain(self.leading_args.iter().map(OsString::as_os_str));
        args.map(|arg| arg.to_string_lossy().into_owned()).chain([role.to_owned()]).collect()
    }

    /// Starts a child process in a role, such as `control-node`, with arguments for the role.
    pub fn start(&self, role: &str, args: &[(&str, String)]) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(&self.leading_args).arg(role);
        for (name, value) in args {
            command.arg(format!("--{name}={value}"));
        }
        Child::start(command, role)
    }

    /// Starts the program of another system. If this process ends, the kernel kills the program.
    pub fn start_program(&self, program: &Path, args: &[String]) -> Result<Child> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut command = Command::new(&self.program);
        command.args(&self.leading_args).arg("bound").arg(program).args(args);
        Child::start(command, &name)
    }
}

/// A running child process of a measurement. Dropping the handle kills the process.
#[derive(Debug)]
pub struct Child {
    name: String,
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Arc<Mutex<Vec<u8>>>,
    /// The thread that collects the child's standard error until the child ends.
    stderr_reader: Option<thread::JoinHandle<()>>,
}

impl Child {
    fn start(mut command: Command, name: &str) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let stdin = process.stdin.take();
        let (sender, lines) = channel();
        if let Some(stdout) = process.stdout.take() {
            thread::spawn(move || {
                let printed = BufReader::new(stdout).lines().map_while(Result::ok);
                printed.for_each(|line| drop(sender.send(line)));
            });
        }
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let stderr_reader = process.stderr.take().map(|pipe| {
            let text = Arc::clone(&stderr);
            thread::spawn(move || collect_stderr(pipe, &text))
        });
        Ok(Self { name: name.to_owned(), process, stdin, lines, stderr, stderr_reader })
    }

    /// Returns the id of the child's process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Writes a value to the child's standard input, as one line of JSON.
    pub fn write_line(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let stdin =
            self.stdin.as_mut().with_context(|| format!("process {} has no standard input", self.name))?;
        stdin.write_all(&text).with_context(|| format!("cannot write to process {}", self.name))
    }

    /// Waits at most `timeout` for the child's next line, and parses the line as JSON.
    pub fn read_line<T: DeserializeOwned>(&mut self, timeout: Duration) -> Result<T> {
        let line = self.read_text_line(timeout)?;
        serde_json::from_str(&line)
            .with_context(|| format!("process {} printed a malformed line: {line}", self.name))
    }

    /// Waits at most `timeout` for the child's next line, and returns it as text.
    pub fn read_text_line(&mut self, timeout: Duration) -> Result<String> {
        match self.lines.recv_timeout(timeout) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                bail!("process {} printed nothing within {timeout:?}{}", self.name, self.stderr_text())
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.wait(Duration::from_secs(1))?;
                // The child has ended, so the thread that reads its standard error reaches the end of the text and ends
                // soon.
                if let Some(stderr_reader) = self.stderr_reader.take() {
                    let _ = stderr_reader.join();
                }
                bail!("process {} ended ({status}) without a result{}", self.name, self.stderr_text())
            }
        }
    }

    /// Returns the lines that the child has printed, except for lines that an earlier call has returned.
    pub fn available_lines(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Waits until the child has ended. Returns the lines that the child has printed, except for lines that an earlier
    /// call has returned.
    pub fn remaining_lines(&self) -> Vec<String> {
        self.lines.iter().collect()
    }

    /// Waits at most `timeout` until the child ends by itself. Returns the child's exit status.
    pub fn wait(&mut self, timeout: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                bail!("process {} did not end within {timeout:?}", self.name);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns the child's exit status; `None` if the child still runs.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.process
            .try_wait()
            .with_context(|| format!("cannot read the exit status of process {}", self.name))
    }

    /// Kills the child, and waits until it has ended.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill().with_context(|| format!("cannot kill process {}", self.name))?;
        self.process.wait().map(drop).with_context(|| format!("cannot wait for process {}", self.name))
    }

    /// Returns a field of the file `/proc/PID/status` of the child, such as `VmRSS`, in bytes.
    pub fn memory(&self, field: &str) -> Result<u64> {
        let path = format!("/proc/{}/status", self.id());
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        Ok(kib.with_context(|| format!("{path} has no {field}"))? * 1024)
    }

    /// Returns the last lines of the child's standard error for an error message: at most `STDERR_BYTES_MAX` bytes.
    pub fn stderr_text(&self) -> String {
        let text = self.stderr.lock().map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
        match text {
            Ok(text) if !text.is_empty() => format!(":\n{text}"),
            _ => String::new(),
        }
    }
}

fn collect_stderr(mut pipe: impl Read, text: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 1024];
    while let Ok(read @ 1..) = pipe.read(&mut chunk) {
        let Ok(mut text) = text.lock() else { return };
        text.extend_from_slice(&chunk[..read]);
        remove_oldest_lines(&mut text);
    }
}

/// Removes lines from the beginning until the text has at most `STDERR_BYTES_MAX` bytes. If the last line alone is
/// longer, removes the beginning of that line.
fn remove_oldest_lines(text: &mut Vec<u8>) {
    let excess = text.len().saturating_sub(STDERR_BYTES_MAX);
    if excess == 0 {
        return;
    }
    let rest = text[excess - 1..].iter().position(|byte| *byte == b'\n');
    let line_start = rest.map(|at| excess + at).filter(|start| *start < text.len());
    text.drain(..line_start.unwrap_or(excess));
}

impl Drop for Child {
    fn drop(&mut self) {
        // If the child has ended already, `kill` fails; `wait` collects the exit status in any case.
        let _ = self.process.kill();
        let _ = self.process.wait();
        sockets::remove_files_of(self.process.id());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(printed: &str) -> String {
        let text = Mutex::default();
        collect_stderr(printed.as_bytes(), &text);
        String::from_utf8(text.into_inner().unwrap()).unwrap()
    }

    #[test]
    fn last_lines_of_standard_error_are_kept() {
        let printed: String = (0..2_000).map(|line| format!("line {line}\n")).collect();
        let kept = collected(&printed);
        assert!(printed.ends_with(&format!("\n{kept}")), "{kept}");
        assert!((STDERR_BYTES_MAX - 20..=STDERR_BYTES_MAX).contains(&kept.len()), "{} bytes", kept.len());
    }

    #[test]
    fn end_of_a_long_line_of_standard_error_is_kept() {
        let printed = format!("{}the reason\n", "x".repeat(2 * STDERR_BYTES_MAX));
        assert_eq!(collected(&printed), printed[printed.len() - STDERR_BYTES_MAX..]);
    }
}
