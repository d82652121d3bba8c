//! A process beside a worker that outlives it when it is killed, and then kills what its commands left running.
//!
//! ```text
//!   worker ──── pipe: (+ or -, process group i32) … ────► warden: at the pipe's end kills the groups that are left
//! ```
//! A worker that is asked to end sees to its commands itself. To one that is killed nothing is left to say: the kernel closes its end of the
//! pipe. The signal that a process may have the kernel send it at its parent's death would reach the command alone, and not what that has started.
//!
//! Invariant: the warden is of no group that is killed along with the worker, and holds none of its outputs open.

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

const BEGUN: u8 = b'+';
const ENDED: u8 = b'-';
const WORD_BYTES: usize = 5;

/// The worker's end. Dropped, the warden is told to end, and waited for.
#[derive(Debug)]
pub struct Warden {
    pipe: Mutex<Option<ChildStdin>>,
    child: Child,
}

impl Warden {
    /// Starts it: this program, as `task warden`.
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

    /// This command has begun, in a process group of its own.
    pub fn begun(&self, command: &Child) {
        self.say(BEGUN, command);
    }

    /// It has ended; its number may be another's as soon as it is waited for, so this comes first.
    pub fn ended(&self, command: &Child) {
        self.say(ENDED, command);
    }

    fn say(&self, what: u8, command: &Child) {
        let [a, b, c, d] = command.id().to_le_bytes();
        if let Some(pipe) = &mut *self.pipe.lock().unwrap_or_else(PoisonError::into_inner) {
            // Who has killed the warden has chosen to go without.
            let _ = pipe.write_all(&[what, a, b, c, d]);
        }
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        *self.pipe.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let _ = self.child.wait();
    }
}

/// The warden itself: hears what runs until nobody is left to say more, and kills it.
pub fn run() {
    for group in left(&mut io::stdin().lock()) {
        // It may have ended meanwhile.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// What had begun and not ended when the pipe did.
fn left(from: &mut impl Read) -> HashSet<Pid> {
    let (mut groups, mut word) = (HashSet::new(), [0; WORD_BYTES]);
    while from.read_exact(&mut word).is_ok() {
        let [what, a, b, c, d] = word;
        // Neither everybody (-1) nor the group that asks (0), whatever the pipe says.
        let Some(group) = Pid::from_raw(i32::from_le_bytes([a, b, c, d])).filter(|pid| !pid.is_init()) else {
            continue;
        };
        match what {
            BEGUN => groups.insert(group),
            _ => groups.remove(&group),
        };
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unended_processes_remain_and_a_cut_message_is_ignored() {
        let word = |what: u8, pid: i32| [&[what][..], &pid.to_le_bytes()].concat();
        let said = [word(BEGUN, 7), word(BEGUN, 8), word(BEGUN, 1), word(BEGUN, 0), word(ENDED, 7)].concat();
        let cut = [said, word(BEGUN, 9)[..3].to_vec()].concat();
        assert_eq!(left(&mut cut.as_slice()), HashSet::from_iter(Pid::from_raw(8)));
    }
}
