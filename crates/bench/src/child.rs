//! Child processes of a measurement: starting them, exchanging JSON lines with them, and ending them.
//!
//! Invariants: a child is killed and reaped when its handle is dropped, and its temporary files are removed. If this
//! process dies without dropping the handle, the kernel kills the child. Every wait for a child has a deadline. Other
//! systems' programs are started through `bench-child bound`. This command asks the kernel to kill it when its
//! parent dies, and then executes the program, because no safe code can run between fork and exec.
//!
//! Start children from a thread that lives longer than they do, such as the runner's: the kernel kills a child when the
//! thread that started it ends.

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

/// The default limit of a wait for a child's next line.
pub const PATIENCE: Duration = Duration::from_secs(60);

const STDERR_KEPT_BYTES: u64 = 8 * 1024;

/// The command that starts this program again as a child process.
#[derive(Clone, Debug)]
pub struct ChildProgram {
    program: PathBuf,
    before: Vec<OsString>,
}

impl ChildProgram {
    /// Starts this executable, with the arguments `bench-child` and the role.
    pub fn current() -> Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        Ok(Self::at(program))
    }

    /// Uses the executable at `program`, which must pass `bench-child …` to [`crate::child_main`].
    pub fn at(program: PathBuf) -> Self {
        Self { program, before: vec!["bench-child".into()] }
    }

    /// Returns the command words for a role, for a caller that starts the process itself.
    pub fn words(&self, role: &str) -> Vec<String> {
        let words = [self.program.as_os_str()].into_iter().chain(self.before.iter().map(OsString::as_os_str));
        words.map(|word| word.to_string_lossy().into_owned()).chain([role.to_owned()]).collect()
    }

    /// Starts this program as a child process with a role.
    pub fn start(&self, role: &str, args: &[(&str, String)]) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(&self.before).arg(role);
        for (name, value) in args {
            command.arg(format!("--{name}={value}"));
        }
        Child::start(command, role)
    }

    /// Starts another program. The kernel kills it if this process ends.
    pub fn start_program(&self, program: &Path, args: &[String]) -> Result<Child> {
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut command = Command::new(&self.program);
        command.args(&self.before).arg("bound").arg(program).args(args);
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
    complaints: Arc<Mutex<Vec<u8>>>,
    /// The thread that reads the child's standard error until the child ends.
    complaining: Option<thread::JoinHandle<()>>,
}

impl Child {
    fn start(mut command: Command, name: &str) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let stdin = process.stdin.take();
        let (sender, lines) = channel();
        if let Some(stdout) = process.stdout.take() {
            thread::spawn(move || {
                let said = BufReader::new(stdout).lines().map_while(Result::ok);
                said.for_each(|line| drop(sender.send(line)));
            });
        }
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let complaining = process.stderr.take().map(|stderr| {
            let kept = Arc::clone(&complaints);
            thread::spawn(move || keep_complaints(stderr, &kept))
        });
        Ok(Self { name: name.to_owned(), process, stdin, lines, complaints, complaining })
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Writes a value as a line of JSON to the child's standard input.
    pub fn tell(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        let stdin =
            self.stdin.as_mut().with_context(|| format!("process {} has no standard input", self.name))?;
        stdin.write_all(&text).with_context(|| format!("cannot write to process {}", self.name))
    }

    /// Reads the child's next line as JSON.
    pub fn line<T: DeserializeOwned>(&mut self, patience: Duration) -> Result<T> {
        let line = self.text_line(patience)?;
        serde_json::from_str(&line)
            .with_context(|| format!("process {} printed a malformed line: {line}", self.name))
    }

    /// Reads the child's next line as text.
    pub fn text_line(&mut self, patience: Duration) -> Result<String> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                bail!("process {} printed nothing within {patience:?}{}", self.name, self.last_words())
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.wait(Duration::from_secs(1))?;
                // The child's standard error closes when the child ends, so the thread that reads it soon
                // ends.
                if let Some(complaining) = self.complaining.take() {
                    let _ = complaining.join();
                }
                bail!("process {} ended ({status}) without a result{}", self.name, self.last_words())
            }
        }
    }

    /// Returns all lines that the child has printed and that were not read yet.
    pub fn said(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Returns all remaining lines of a child that has ended.
    pub fn rest(&self) -> Vec<String> {
        self.lines.iter().collect()
    }

    /// Waits until the child ends by itself.
    pub fn wait(&mut self, patience: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                bail!("process {} did not end within {patience:?}", self.name);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns the exit status if the child has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.process
            .try_wait()
            .with_context(|| format!("cannot read the exit status of process {}", self.name))
    }

    /// Kills the child and waits for its end.
    pub fn kill(&mut self) -> Result<()> {
        self.process.kill().with_context(|| format!("cannot kill process {}", self.name))?;
        self.process.wait().map(drop).with_context(|| format!("cannot wait for process {}", self.name))
    }

    /// Returns a field of the process's memory as the kernel reports it, such as `VmRSS`, in bytes.
    pub fn memory(&self, field: &str) -> Result<u64> {
        let path = format!("/proc/{}/status", self.id());
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        Ok(kib.with_context(|| format!("{path} has no {field}"))? * 1024)
    }

    /// Returns the end of the child's standard error, for error messages.
    pub fn last_words(&self) -> String {
        let words = self.complaints.lock().map(|words| String::from_utf8_lossy(&words).trim().to_owned());
        match words {
            Ok(words) if !words.is_empty() => format!(":\n{words}"),
            _ => String::new(),
        }
    }
}

fn keep_complaints(mut stderr: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut chunk = [0; 1024];
    while let Ok(read @ 1..) = stderr.read(&mut chunk) {
        let Ok(mut kept) = kept.lock() else { return };
        let room = (STDERR_KEPT_BYTES as usize).saturating_sub(kept.len());
        kept.extend_from_slice(&chunk[..read.min(room)]);
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The child may have ended already; `wait` collects its exit status in any case.
        let _ = self.process.kill();
        let _ = self.process.wait();
        sockets::remove_files_of(self.process.id());
    }
}
