//! Runs the program `dunlin` and starts nodes with it, for the other tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use dunlin_chaos::port;
use dunlin_chaos::process::bind_to_this_thread;
use dunlin_wait::{find, until};

/// Returns a command that runs `dunlin`, without any `DUNLIN_` variable that this process has.
pub fn dunlin(arguments: &[&str]) -> Command {
    prepared(Command::new(env!("CARGO_BIN_EXE_dunlin")), arguments)
}

/// Like [`dunlin`], but the process may have at most `files_max` files open. The soft limit of the process, which the
/// process may raise, is half of `files_max`.
pub fn dunlin_with_files(files_max: u32, arguments: &[&str]) -> Command {
    let soft = files_max / 2;
    let script = format!("ulimit -S -n {soft} && ulimit -H -n {files_max} && exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_dunlin"));
    prepared(shell, arguments)
}

fn prepared(mut command: Command, arguments: &[&str]) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("DUNLIN_") {
            command.env_remove(name);
        }
    }
    command.env("NO_COLOR", "1").args(arguments).stdin(Stdio::null());
    bind_to_this_thread(&mut command);
    command
}

/// Runs a command with `input` as its standard input, and waits until the command ends.
pub fn run_with(mut command: Command, input: &[u8]) -> Outcome {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    // A thread writes the input, because the command may fill its output pipe before it has read the whole input.
    let writer = thread::spawn(move || stdin.write_all(&input));
    let outcome = Outcome::of(child);
    // The write fails if the child ends before it has read all input.
    let _ = writer.join();
    outcome
}

pub fn run(arguments: &[&str]) -> Outcome {
    run_with(dunlin(arguments), b"")
}

/// Reads standard error up to and including this text. Later output is not read.
///
/// # Panics
/// If the program ends without printing the text.
#[track_caller]
pub fn read_stderr_until(child: &mut Child, text: &str) {
    let errors = child.stderr.as_mut().expect("a pipe");
    let mut output = Vec::new();
    while !output.ends_with(text.as_bytes()) {
        let mut byte = [0];
        assert_eq!(errors.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&output));
        output.push(byte[0]);
    }
}

/// Runs `dunlin feed record` until the recording satisfies `done`, and returns the outcome of `dunlin feed record`. The
/// argument of `done` is the JSON object that `dunlin feed verify` prints about the first recorded topic.
#[track_caller]
pub fn record_until(
    url: &str,
    pattern: &str,
    out: &Path,
    mut done: impl FnMut(&serde_json::Value) -> bool,
) -> Outcome {
    let folder = out.to_str().expect("a path in UTF-8");
    let mut command = dunlin(&["feed", "record", pattern, "--out", folder, "--url", url]);
    let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let recorder = RunningProgram::from(spawned.expect("the program starts"));
    until("the recording has enough records", || {
        let verified = run(&["feed", "verify", folder, "--json"]);
        let object =
            verified.out.lines().next().and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        verified.code == Some(0) && object.is_some_and(|object| done(&object))
    });
    signal("INT", recorder.id());
    let recorded = Outcome::of(recorder);
    assert_eq!(recorded.code, Some(0), "{recorded:?}");
    recorded
}

/// The result of a program that has ended.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// A running program, which is killed when the value is dropped.
pub struct RunningProgram(Child);

impl From<Child> for RunningProgram {
    fn from(child: Child) -> RunningProgram {
        RunningProgram(child)
    }
}

impl Deref for RunningProgram {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for RunningProgram {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // The call fails only if the program has ended already.
        let _ = self.kill();
        let _ = self.wait();
    }
}

impl Outcome {
    /// Waits, without a time limit, until the program ends.
    pub fn of(program: impl Into<RunningProgram>) -> Outcome {
        let mut child = program.into();
        let out = child.stdout.take().map(|pipe| thread::spawn(move || read_all(pipe)));
        let err = child.stderr.take().map(|pipe| thread::spawn(move || read_all(pipe)));
        let status = child.wait().expect("wait for the program");
        let text =
            |reader: Option<thread::JoinHandle<String>>| reader.map_or(String::new(), |r| r.join().unwrap());
        Outcome { code: status.code(), out: text(out), err: text(err) }
    }

    /// Returns the standard output. Panics unless the program succeeded.
    #[track_caller]
    pub fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }
}

fn read_all(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).expect("a pipe can be read");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A node on a free port, which is killed when the value is dropped.
pub struct Node {
    child: RunningProgram,
    pub ready: String,
    pub url: String,
}

impl Node {
    pub fn start() -> Node {
        Node::start_with(&[])
    }

    pub fn start_with(arguments: &[&str]) -> Node {
        // No other test receives this port, so that a later node of this test may use it again.
        let address = port::free([127, 0, 0, 1].into()).to_string();
        let listen: &[&str] = if arguments.contains(&"--listen") { &[] } else { &["--listen", &address] };
        let arguments = [&["serve"], listen, arguments].concat();
        Node::start_command(dunlin(&arguments))
    }

    /// Runs a command that starts a node, and waits for the READY line.
    pub fn start_command(mut command: Command) -> Node {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut ready = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut ready).expect("the READY line");
        let tcp = ready.split_whitespace().find_map(|word| word.strip_prefix("tcp=")).expect("READY tcp=…");
        Node { url: format!("dunlin://{tcp}"), ready, child: child.into() }
    }

    /// Returns the value of a field in the READY line. `name` is the field's name with `=` at its end, such as `http=`.
    pub fn ready_field(&self, name: &str) -> &str {
        let field = self.ready.split_whitespace().find_map(|word| word.strip_prefix(name));
        field.unwrap_or_else(|| panic!("no {name} in {}", self.ready))
    }

    /// Returns a command that connects to this node.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = dunlin(arguments);
        command.env("DUNLIN_URL", &self.url);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Outcome {
        self.run_with(arguments, b"")
    }

    pub fn run_with(&self, arguments: &[&str], input: &[u8]) -> Outcome {
        run_with(self.command(arguments), input)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the node with SIGKILL.
    pub fn kill(self) {}

    /// Ends the node with SIGTERM. Returns its exit code.
    pub fn stop(self) -> Option<i32> {
        signal("TERM", self.child.id());
        self.wait()
    }

    /// Waits until the node has ended, and returns its exit code.
    pub fn wait(mut self) -> Option<i32> {
        find("the node stops", || self.child.try_wait().expect("wait for the program")).code()
    }
}

pub fn signal(name: &str, pid: u32) {
    let status = Command::new("kill").args(["-s", name, &pid.to_string()]).status().expect("kill is there");
    assert!(status.success());
}
