//! A subscriber of the demo in a child process. The child process runs this program again, and receives commands
//! through a pipe.
//!
//! When this process ends, the child's standard input closes, and the child ends too. [`DemoProcess::kill`] returns
//! after all reports of the killed process have been read.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::reader::DemoReader;
use super::report::{ChildCommand, ChildReport};

/// How long a new process may take until it has subscribed.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// A child process with a subscriber of the demo, controlled by pipes.
#[derive(Debug)]
pub struct DemoProcess {
    child: Child,
    commands: Option<ChildStdin>,
    listener: Option<JoinHandle<()>>,
    ready: Receiver<()>,
}

impl DemoProcess {
    /// Starts the process. The process's reports are added to the accounts of `reader`.
    pub fn start(
        url: &str,
        name: &str,
        commands: &[ChildCommand],
        reader: &Arc<DemoReader>,
    ) -> Result<DemoProcess> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        command.args(["demo-child", "--url", url, "--name", name]);
        if let Some(sleep) = reader.sleep {
            command.args(["--sleep", &humantime::format_duration(sleep).to_string()]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a subscriber's process")?;
        let (ready_sender, ready) = channel();
        let listener = child.stdout.take().map(|reports| {
            let reader = Arc::clone(reader);
            thread::spawn(move || listen(reports, &reader, &ready_sender))
        });
        let mut process = DemoProcess { commands: child.stdin.take(), child, listener, ready };
        process.send(commands.iter().chain([&ChildCommand::Start]));
        Ok(process)
    }

    /// Waits until the process has subscribed.
    pub fn wait_ready(&self) -> Result<()> {
        if self.ready.recv_timeout(READY_TIMEOUT).is_err() {
            bail!("the subscriber process (pid {}) did not become ready", self.child.id());
        }
        Ok(())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends the process the position of each topic's last record, and then closes the process's standard input.
    pub fn end(&mut self, ends: impl Iterator<Item = ChildCommand>) {
        let ends: Vec<ChildCommand> = ends.collect();
        self.send(ends.iter());
        self.commands = None;
    }

    /// Kills the process with SIGKILL, and reads its remaining reports.
    pub fn kill(mut self) {
        self.finish();
    }

    fn send<'a>(&mut self, commands: impl Iterator<Item = &'a ChildCommand>) {
        let text: String = commands.map(|command| format!("{command}\n")).collect();
        if let Some(pipe) = &mut self.commands {
            // A failure means that the process has ended. The failure is ignored here, because the demo fails anyway:
            // the reports of the process are missing.
            let _ = pipe.write_all(text.as_bytes()).and_then(|()| pipe.flush());
        }
    }

    fn finish(&mut self) {
        self.commands = None;
        // `kill` fails only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

impl Drop for DemoProcess {
    fn drop(&mut self) {
        self.finish();
    }
}

fn listen(reports: ChildStdout, reader: &DemoReader, ready: &Sender<()>) {
    let mut reports = BufReader::new(reports);
    let mut line = String::new();
    // A process that is killed while it writes a line leaves a line without a line break. The loop ignores this line.
    while reports.read_line(&mut line).is_ok_and(|bytes| bytes > 0) && line.ends_with('\n') {
        match line.trim_end().parse() {
            Ok(ChildReport::Ready) => drop(ready.send(())),
            Ok(ChildReport::At { topic, account_line }) => {
                account_line.apply(reader.accounts().entry(topic).or_default());
            }
            Ok(ChildReport::Fault { topic, text }) => reader.fault(&[topic], &text),
            Ok(ChildReport::Finished) => {}
            Err(error) => reader.fault(&["?".to_owned()], &error.to_string()),
        }
        line.clear();
    }
}
