//! Runs programs. If a program fails, the error contains its command line. The programs have no standard input, so that
//! none of them waits for input in CI.

use std::ffi::OsString;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Returns a command that runs cargo in the repository's root. If cargo started this process, the command runs this
/// cargo; otherwise, it runs the cargo in PATH.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(workspace::root());
    remove_package_variables(&mut command);
    command
}

/// Removes the environment variables in which cargo describes the package that it runs. Some build scripts, such as
/// ring's, run again when these variables change. Without this removal, they would run again whenever a user calls
/// cargo after this program did, and the other way round.
pub fn remove_package_variables(command: &mut Command) {
    let is_package_variable = |name: &str| {
        let has_prefix = ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.starts_with(start));
        has_prefix || ["CARGO_BIN_NAME", "CARGO_CRATE_NAME", "CARGO_PRIMARY_PACKAGE"].contains(&name)
    };
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_package_variable) {
            command.env_remove(name);
        }
    }
}

/// Runs a command, whose output the user sees. Fails if the command's exit code is not 0.
pub fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    println!("$ {line}");
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Runs a command and returns its output. An exit code other than 0 is not an error.
pub fn output(command: &mut Command) -> Result<Output> {
    let line = command_line(command);
    command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{line}`"))
}

/// Runs a command and returns its standard output. If the command fails, the error contains the command's standard
/// error.
pub fn text(command: &mut Command) -> Result<String> {
    let line = command_line(command);
    let output = output(command)?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` failed: {}\n{}", output.status, stderr.trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of `{line}` is not valid UTF-8"))
}

/// Returns the command line as a user would type it. Long arguments are shortened.
fn command_line(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| shorten(word.to_os_string())).collect::<Vec<_>>().join(" ")
}

fn shorten(word: OsString) -> String {
    let word = word.to_string_lossy();
    if word.contains('\n') { "…".to_owned() } else { word.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_subprocess_gets_no_package_variables() {
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some(), "cargo runs this test");
        let environment = text(Command::new("env").envs(std::env::vars_os())).unwrap();
        assert!(environment.contains("CARGO_PKG_NAME="));
        let mut command = Command::new("env");
        remove_package_variables(&mut command);
        let environment = text(&mut command).unwrap();
        assert!(
            !environment.contains("CARGO_PKG_") && !environment.contains("CARGO_MANIFEST_"),
            "{environment}"
        );
        assert!(environment.contains("PATH="), "all else stays: {environment}");
    }
}
