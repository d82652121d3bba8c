//! Reads and writes the pipes of a task's command, on the thread that runs the task.
//!
//! A pipe ends when every process that holds it has closed it. The command may have started processes that hold the
//! pipe and run long after the command. This module therefore never waits for the end of a pipe. It also uses no reader
//! threads, because such a thread could outlive the task.
//!
//! Invariants:
//! - No call waits longer than the time that its caller allows.
//! - All output is read, so that the command does not block. Bytes beyond the limit for kept output are counted and
//!   dropped.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio, read, write};

/// The largest number of bytes that one system call reads.
const CHUNK_BYTES: usize = 64 << 10;

/// The output that a command wrote to one pipe: its first bytes, and its total size.
#[derive(Debug, Default)]
pub struct PipeOutput {
    /// The first bytes of the output.
    pub kept: Vec<u8>,
    /// The total number of bytes, including those that were dropped.
    pub bytes: u64,
}

/// The pipes of a command that runs for a task: its standard input, standard output and standard error.
#[derive(Debug)]
pub struct Pipes<'p> {
    stdin: Option<OwnedFd>,
    payload: &'p [u8],
    stdout: Output,
    stderr: Output,
    chunk: Vec<u8>,
}

#[derive(Debug)]
struct Output {
    /// The reading end of the pipe; `None` once the pipe has ended.
    pipe: Option<OwnedFd>,
    /// The maximum number of bytes of the output to keep.
    bytes_max: usize,
    written: PipeOutput,
}

impl<'p> Pipes<'p> {
    /// Takes the pipes of the process `child`. [`transfer`](Self::transfer) writes `payload` to the process's standard
    /// input, and keeps at most `stdout_bytes_max` bytes of its standard output and `stderr_bytes_max` bytes of its
    /// standard error.
    pub fn of(
        child: &mut Child,
        payload: &'p [u8],
        stdout_bytes_max: usize,
        stderr_bytes_max: usize,
    ) -> io::Result<Pipes<'p>> {
        let stdin = child.stdin.take().map(OwnedFd::from);
        let stdout = Output::of(child.stdout.take().map(OwnedFd::from), stdout_bytes_max);
        let stderr = Output::of(child.stderr.take().map(OwnedFd::from), stderr_bytes_max);
        for pipe in [&stdin, &stdout.pipe, &stderr.pipe].into_iter().flatten() {
            // Non-blocking mode applies only to this process's end of the pipe.
            ioctl_fionbio(pipe, true)?;
        }
        Ok(Pipes { stdin, payload, stdout, stderr, chunk: vec![0; CHUNK_BYTES] })
    }

    /// Waits at most `longest` until a pipe can be read or written, and then reads from and writes to the pipes that
    /// are ready.
    pub fn transfer(&mut self, longest: Duration) {
        let Pipes { stdin, payload, stdout, stderr, chunk } = self;
        if payload.is_empty() {
            // The whole payload is written. Closing the pipe tells the command that its input has ended.
            *stdin = None;
        }
        let of = |pipe, flags| Option::as_ref(pipe).map(|pipe: &OwnedFd| PollFd::new(pipe, flags));
        let pipes =
            [of(&*stdin, PollFlags::OUT), of(&stdout.pipe, PollFlags::IN), of(&stderr.pipe, PollFlags::IN)];
        let mut pipes: Vec<PollFd<'_>> = pipes.into_iter().flatten().collect();
        let longest = Timespec::try_from(longest).ok();
        // If a signal interrupts the wait, nothing is transferred, and the caller calls `transfer` again.
        if !matches!(poll(&mut pipes, longest.as_ref()), Ok(1..)) {
            return;
        }
        if let Some(pipe) = stdin {
            match write(&*pipe, payload) {
                Ok(bytes) => *payload = payload.get(bytes..).unwrap_or_default(),
                Err(Errno::AGAIN | Errno::INTR) => {}
                // The command has closed its input, possibly before it has read the whole payload. This is not an
                // error.
                Err(_) => *stdin = None,
            }
        }
        stdout.read(chunk);
        stderr.read(chunk);
    }

    /// Whether standard output and standard error have both ended, so that no more bytes can arrive.
    pub fn are_drained(&self) -> bool {
        self.stdout.pipe.is_none() && self.stderr.pipe.is_none()
    }

    /// Returns what the command wrote to standard output and to standard error.
    pub fn into_output(self) -> (PipeOutput, PipeOutput) {
        (self.stdout.written, self.stderr.written)
    }
}

impl Output {
    fn of(pipe: Option<OwnedFd>, bytes_max: usize) -> Output {
        Output { pipe, bytes_max, written: PipeOutput::default() }
    }

    /// Reads the available bytes.
    fn read(&mut self, chunk: &mut [u8]) {
        let Some(pipe) = &self.pipe else { return };
        match read(pipe, &mut *chunk) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(0) | Err(_) => self.pipe = None,
            Ok(bytes) => {
                let kept = bytes.min(self.bytes_max.saturating_sub(self.written.kept.len()));
                self.written.kept.extend_from_slice(&chunk[..kept]);
                self.written.bytes += bytes as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn run(script: &str, payload: &[u8], bytes_max: usize) -> (PipeOutput, PipeOutput) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pipes = Pipes::of(&mut child, payload, bytes_max, bytes_max).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while !pipes.are_drained() {
            assert!(Instant::now() < deadline);
            pipes.transfer(PATIENCE);
        }
        child.wait().unwrap();
        pipes.into_output()
    }

    #[test]
    fn payload_larger_than_a_pipe_passes_through_a_command() {
        let payload: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
        let (out, err) = run("cat; echo said >&2", &payload, usize::MAX);
        assert_eq!((out.bytes, out.kept == payload), (1_000_000, true));
        assert_eq!(err.kept, b"said\n");
    }

    #[test]
    fn output_beyond_the_limit_is_counted_but_not_kept() {
        let (out, err) = run("head -c 300000 /dev/zero; echo abcdef >&2", b"not read", 5);
        assert_eq!((out.kept.len(), out.bytes), (5, 300_000));
        assert_eq!((err.kept.as_slice(), err.bytes), (&b"abcde"[..], 7));
    }

    #[test]
    fn transfer_to_a_command_that_reads_nothing_does_not_block() {
        let mut command = Command::new("sleep");
        command.arg("600").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let payload = vec![0; 1 << 20];
        let mut pipes = Pipes::of(&mut child, &payload, 1, 1).unwrap();
        // No call blocks, although the payload's pipe is full and the other pipes are silent.
        (0..100).for_each(|_| pipes.transfer(Duration::from_millis(1)));
        assert!(!pipes.are_drained());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
