//! Finds and runs `dunlin-bench`, the separate program for `bench`, `report`, `demo` and `scale`.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};

use crate::program::is_command;

const NAME: &str = "dunlin-bench";
const INSTALL: &str = "cargo install --path crates/bench-cli";

/// Replaces this process by `dunlin-bench` with the same arguments. `dunlin-bench` then receives the signals and
/// determines the exit code. Returns only if `dunlin-bench` cannot be run.
pub fn exec(command: &str) -> Result<()> {
    let own_path = env::current_exe().context("cannot find this program's own file")?;
    let folder = own_path.parent().unwrap_or(Path::new("."));
    let program = find(folder).ok_or_else(|| {
        anyhow!(
            "`dunlin {command}` needs the program {NAME}, which is neither in {} nor on PATH: \
             install it with `{INSTALL}` in Dunlin's repository",
            folder.display()
        )
    })?;
    let error = Command::new(&program).args(env::args_os().skip(1)).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// Finds `dunlin-bench` in `folder`, the directory of this program, or in PATH.
fn find(folder: &Path) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = [folder.to_owned()].into_iter().chain(env::split_paths(&path));
    folders.map(|folder| folder.join(NAME)).find(|file| is_command(file))
}
