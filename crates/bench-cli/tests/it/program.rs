//! Runs the program `dunlin-bench`, and returns its exit status and output.

use std::path::Path;
use std::process::{Command, Stdio};

/// The exit status and the output of a program that has ended.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Outcome {
    /// Returns the standard output. Panics if the program failed.
    #[track_caller]
    pub fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }
}

/// Runs the program and waits until it ends. Environment variables whose names begin with `DUNLIN_` are not passed to
/// the program.
pub fn run(arguments: &[&str]) -> Outcome {
    run_in(Path::new("."), arguments)
}

/// Like [`run`], but in the working directory `folder`.
pub fn run_in(folder: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dunlin-bench"));
    let names = std::env::vars_os().map(|(name, _)| name);
    names.filter(|name| name.to_string_lossy().starts_with("DUNLIN_")).for_each(|name| {
        command.env_remove(name);
    });
    command.env("NO_COLOR", "1").args(arguments).current_dir(folder).stdin(Stdio::null());
    let output = command.output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Outcome { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}
