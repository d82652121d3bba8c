//! The warden of `dunlin task worker`: a process that outlives the worker if the worker is killed, and then kills the
//! commands that the worker left behind.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

const STARTED: u8 = b'+';
const ENDED: u8 = b'-';
const MESSAGE_BYTES: usize = 5;

/// A handle to the warden process, which kills a worker's commands if the worker dies. Dropping the handle ends the
/// process.
#[derive(Debug)]
pub struct Warden {
    pipe: Mutex<Option<ChildStdin>>,
    child: Child,
}

impl Warden {
    /// Starts the warden: this program with the command `task warden`.
    pub fn start() -> io::Result<Warden> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["task", "warden"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = Mutex::new(child.stdin.take());
        Ok(Warden { pipe, child })
    }

    /// Tells the warden that a command has started in a process group of its own.
    pub fn report_start(&self, command: &Child) {
        self.send(STARTED, command);
    }

    /// Tells the warden that a command has ended. Call this method before the command is reaped: after that, another
    /// process may receive the command's process number.
    pub fn report_end(&self, command: &Child) {
        self.send(ENDED, command);
    }

    fn send(&self, event: u8, command: &Child) {
        let [a, b, c, d] = command.id().to_le_bytes();
        if let Some(pipe) = &mut *self.pipe.lock().unwrap_or_else(PoisonError::into_inner) {
            // The write fails if the warden was killed.
            let _ = pipe.write_all(&[event, a, b, c, d]);
        }
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        *self.pipe.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let _ = self.child.wait();
    }
}

/// Runs the warden process. It reads reports until the pipe ends, and then kills the process groups whose end was not
/// reported.
pub fn run() {
    for group in remaining_groups(&mut io::stdin().lock()) {
        // The call fails if the processes of the group have already ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Reads the reports until the pipe ends. Returns the process groups whose start was reported, but not their end.
fn remaining_groups(from: &mut impl Read) -> HashSet<Pid> {
    let (mut groups, mut message) = (HashSet::new(), [0; MESSAGE_BYTES]);
    while from.read_exact(&mut message).is_ok() {
        let [event, a, b, c, d] = message;
        // Ignores the numbers that would make the signal reach all processes (-1) or this process's own group (0).
        let Some(group) = Pid::from_raw(i32::from_le_bytes([a, b, c, d])).filter(|pid| !pid.is_init()) else {
            continue;
        };
        match event {
            STARTED => groups.insert(group),
            _ => groups.remove(&group),
        };
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_live_processes_survives_a_truncated_last_message() {
        let message = |event: u8, pid: i32| [&[event][..], &pid.to_le_bytes()].concat();
        let messages = [
            message(STARTED, 7),
            message(STARTED, 8),
            message(STARTED, 1),
            message(STARTED, 0),
            message(ENDED, 7),
        ]
        .concat();
        let cut = [messages, message(STARTED, 9)[..3].to_vec()].concat();
        assert_eq!(remaining_groups(&mut cut.as_slice()), HashSet::from_iter(Pid::from_raw(8)));
    }
}
