//! Runs the tests of `dunlin-topic` under sanitizers.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::target_directory;
use crate::process;
use crate::workspace;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs the tests under each sanitizer that is installed, and reports which sanitizers are missing.
pub fn run() -> Result<()> {
    let nightly = nightly_sysroot();
    let mut ran = false;
    match &nightly {
        Some(_) => {
            run_with_sanitizer("address", &[])?;
            ran = true;
        }
        None => println!("address sanitizer: SKIPPED: `rustup toolchain install nightly` first"),
    }
    match &nightly {
        // The thread sanitizer needs the source of the standard library, and builds the library with the sanitizer.
        // With the prebuilt library, it would report false races in the library's locks.
        Some(sysroot) if sysroot.join("lib/rustlib/src/rust/library").is_dir() => {
            run_with_sanitizer("thread", &["-Zbuild-std"])?;
            ran = true;
        }
        Some(_) => println!("thread sanitizer: SKIPPED: `rustup +nightly component add rust-src` first"),
        None => println!("thread sanitizer: SKIPPED: `rustup toolchain install nightly` first"),
    }
    if ran { Ok(()) } else { valgrind() }
}

/// Returns the directory of the nightly toolchain; `None` if it is missing or cannot run the sanitizers.
fn nightly_sysroot() -> Option<PathBuf> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return None;
    }
    let sysroot =
        process::text(Command::new("rustup").args(["run", "nightly", "rustc", "--print", "sysroot"]));
    Some(PathBuf::from(sysroot.ok()?.trim()))
}

fn run_with_sanitizer(sanitizer: &str, more: &[&str]) -> Result<()> {
    println!("{sanitizer} sanitizer:");
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "test", "--quiet", "--target", TARGET]).args(more);
    command.args(["-p", "dunlin-topic", "--lib", "--tests"]).current_dir(workspace::root());
    command.env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"));
    // Removes variables that the stable cargo has set for this process. With these variables, the nightly cargo would
    // use the stable compiler.
    for inherited in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(inherited);
    }
    process::remove_package_variables(&mut command);
    process::run(command.env("CARGO_TARGET_DIR", target_directory(sanitizer)?))
}

/// Runs the quick tests under valgrind. Valgrind is much slower than the sanitizers and detects no races, so it is used
/// only if no sanitizer can run.
fn valgrind() -> Result<()> {
    if process::output(Command::new("valgrind").arg("--version")).is_err() {
        println!("valgrind: SKIPPED: not installed");
        return Ok(());
    }
    println!("valgrind, by-reference payloads and gaps only:");
    let mut command = process::cargo(&["test", "--quiet", "-p", "dunlin-topic", "--test", "it", "--"]);
    command.args(["by_ref::", "gaps::", "memory::"]);
    command.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", "valgrind --quiet --error-exitcode=1");
    process::run(&mut command)
}
