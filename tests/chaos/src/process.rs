//! Processes that a test starts, stops and kills. When the test ends, its processes end too.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};

/// The longest time that a test waits for any event. This time is long because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Changes the command: the kernel will kill the started process when the present thread ends. A test that is killed
/// therefore leaves no processes behind.
pub fn bind_to_this_thread(command: &mut Command) -> &mut Command {
    let parent = getpid();
    let bind = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the parent ended before this process requested the signal, the kernel never sends the signal. In this
        // case, the start fails.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(bind) }
}

/// A running process. Dropping the value kills the process.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Arc<Mutex<String>>,
    stderr_reader: Option<JoinHandle<()>>,
    /// Whether the process has reported that it is ready.
    pub is_ready: bool,
}

impl Process {
    /// Starts `program` with these arguments.
    pub fn start(name: &str, program: &str, arguments: &[String]) -> Process {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = bind_to_this_thread(&mut command)
            .env("RUST_BACKTRACE", "1")
            .spawn()
            .expect("the process can be started");
        let stdout = child.stdout.take().expect("the stream is a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let errors = Arc::new(Mutex::new(String::new()));
        let mut stderr = child.stderr.take().expect("the stream is a pipe");
        let captured = Arc::clone(&errors);
        let stderr_reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stderr.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..read]);
                captured.lock().expect("the lock is not poisoned").push_str(&text);
            }
        });
        let stdin = child.stdin.take();
        Process {
            name: name.to_owned(),
            child,
            stdin,
            lines,
            errors,
            stderr_reader: Some(stderr_reader),
            is_ready: false,
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next line of output, or `None` after the end of the process.
    ///
    /// # Panics
    ///
    /// If no line arrives within `timeout`.
    pub fn line_within(&mut self, timeout: Duration) -> Option<String> {
        match self.lines.recv_timeout(timeout) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                panic!("{} printed nothing for {timeout:?}; standard error: {}", self.name, self.errors())
            }
        }
    }

    /// Returns the lines of output that have arrived, except for lines that an earlier call has returned.
    pub fn lines_so_far(&mut self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Skips lines until one begins with `start`. Returns the rest of that line.
    ///
    /// # Panics
    /// If the process ends, or [`PATIENCE`] passes, before there is such a line.
    pub fn read_until(&mut self, start: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        while let Some(line) = self.line_within(deadline.saturating_duration_since(Instant::now())) {
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim().to_owned();
            }
        }
        panic!("{} ended before printing {start:?}; standard error: {}", self.name, self.errors())
    }

    /// Writes a line to the process's standard input.
    pub fn write_line(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            // An error means that the process has ended. It is ignored here, because later reads report this end.
            let _ = writeln!(stdin, "{line}");
        }
    }

    /// Reads the output until the process ends by itself, and returns the lines.
    ///
    /// # Panics
    ///
    /// If the process does not end within `timeout`.
    pub fn finish(&mut self, timeout: Duration) -> Vec<String> {
        let deadline = Instant::now() + timeout;
        let mut all = Vec::new();
        while let Some(line) = self.line_within(deadline.saturating_duration_since(Instant::now())) {
            all.push(line);
        }
        all
    }

    /// Waits for the end of the process.
    pub fn wait(&mut self) -> ExitStatus {
        let status = self.child.wait().expect("the child can be waited for");
        if let Some(stderr_reader) = self.stderr_reader.take() {
            stderr_reader.join().expect("the reading thread does not panic");
        }
        status
    }

    /// The exit status, if the process has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().expect("the child can be waited for")?;
        if let Some(stderr_reader) = self.stderr_reader.take() {
            stderr_reader.join().expect("the reading thread does not panic");
        }
        Some(status)
    }

    /// Everything that the process has written to standard error so far.
    pub fn errors(&self) -> String {
        self.errors.lock().expect("the lock is not poisoned").clone()
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Sends SIGSTOP.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Sends SIGCONT, so that a stopped process continues.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("the process has an id");
        // Ignores the error, which means that the process has already ended.
        let _ = kill_process(pid, signal);
    }

    /// The resident memory of the process in bytes.
    pub fn rss_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kib.expect("a running process has a memory size") << 10
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("-- errors of {}:\n{}", self.name, self.errors());
        }
    }
}
