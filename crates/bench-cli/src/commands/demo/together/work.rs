//! Runs the Python program `recordings.py`, in which four tenants submit tasks that parse the recordings. Python
//! workers, which the nodes start, run the tasks. `recordings.py` checks each result, and prints its own table.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use dunlin_cli::signals::StopFlag;

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long the tenants submit tasks at a steady rate in each round, in seconds.
const STEADY: &str = "30";
/// The number of tasks that one tenant submits at once in each round, when the steady load has ended.
const SPIKE: &str = "500";
/// The number of workers that the program kills after the steady load.
const KILLS: &str = "2";
/// The time from the start of one round to the start of the next, in seconds. Every round has the same load, so the
/// nodes can forecast the load.
const ROUND_INTERVAL: &str = "60";

/// The Python program that submits the demo's tasks, and the interpreter that runs the program.
#[derive(Debug)]
pub struct TaskDemoProgram {
    /// The path of a Python interpreter that has the package `dunlin`.
    pub python: PathBuf,
    /// The directory that contains `recordings.py` and `recordings_worker.py`.
    pub directory: PathBuf,
}

/// The running Python program that submits the demo's tasks. Dropping the handle kills the program.
pub struct TaskDemoProcess {
    child: Child,
    lines: Receiver<String>,
}

impl TaskDemoProgram {
    /// Returns the command line with which a node starts a worker.
    pub fn workers(&self) -> Result<String> {
        let worker = self.directory.join("recordings_worker.py");
        let arguments = [self.python.to_str(), worker.to_str()];
        let arguments = arguments.map(|argument| {
            argument.context("the path of Python or of the workers' program is not valid UTF-8")
        });
        let arguments = arguments.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(shlex::try_join(arguments)?)
    }

    /// Starts the program on a cluster. `scale` contains the smallest and the largest number of workers in the cluster,
    /// such as `3..6`.
    pub fn start(&self, url: &str, data: &Path, scale: &str, once: bool) -> Result<TaskDemoProcess> {
        let mut command = Command::new(&self.python);
        command.arg("-u").arg(self.directory.join("recordings.py"));
        command.args(["--url", url, "--scale", scale, "--data"]).arg(data);
        command.args(["--steady", STEADY, "--spike", SPIKE, "--kills", KILLS, "--every", ROUND_INTERVAL]);
        if once {
            command.arg("--once");
        }
        // The Python program has its own process group, so Ctrl-C reaches only this process. This process then ends the
        // Python program. If this process is killed, the Python program's standard input closes, and the Python program
        // ends.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let spawned = command.spawn();
        let mut child = spawned.with_context(|| format!("cannot start {}", self.python.display()))?;
        let out = child.stdout.take().context("the program's standard output is not piped")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(TaskDemoProcess { child, lines })
    }
}

impl TaskDemoProcess {
    /// Prints the program's lines until the program ends. The lines after the first empty line are the program's final
    /// table; this function returns them. Returns `None` if the demo is interrupted.
    pub fn follow(
        &mut self,
        stop: &StopFlag,
        mut print_line: impl FnMut(&str) -> Result<()>,
    ) -> Result<Option<String>> {
        let mut closing = String::new();
        loop {
            match self.lines.recv_timeout(POLL_INTERVAL) {
                _ if stop.is_set() => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Ok(line) if closing.is_empty() && !line.is_empty() => print_line(&line)?,
                Ok(line) => closing.extend([line.as_str(), "\n"]),
            }
        }
        let status = self.child.wait()?;
        ensure!(status.success(), "the program that submits the tasks ended with {status}\n{closing}");
        Ok(Some(closing))
    }
}

impl Drop for TaskDemoProcess {
    fn drop(&mut self) {
        // If the program has already ended, `kill` fails, and `wait` only collects the exit status.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
