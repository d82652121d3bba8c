//! `python`: builds the Python package's wheel, and, as a step of `test`, tries it.
//!
//! Everything lies in `target/python`: an environment of its own with the tools, whose versions are pinned here, what
//! cargo builds (other profile and features than the product's), and the wheel. What is there already is kept.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{self, cargo};
use crate::workspace;

/// What the wheel is built and tried with.
const TOOLS: [&str; 4] = ["maturin==1.16.0", "pytest==9.2.0", "mypy==2.4.1", "numpy==2.4.6"];
/// The oldest Python that the package takes, which its `pyproject.toml` says too.
const OLDEST: (u32, u32) = (3, 11);
/// Of the package's crate, which is not of the workspace.
pub const MANIFEST: &str = "clients/python/Cargo.toml";

/// What to run.
#[derive(clap::Args)]
pub struct Options {
    /// Try it too: lints, types, and its tests against the real binary, as `cargo xtask test` does
    #[arg(long)]
    test: bool,
}

/// Builds the wheel and says where it is.
pub fn run(options: &Options) -> Result<()> {
    if options.test {
        return test();
    }
    let wheel = build()?;
    println!("python: {}", wheel.display());
    println!("python: pip install {}", wheel.display());
    Ok(())
}

/// Lints, the wheel, its types, and its tests against the real binary.
pub fn test() -> Result<()> {
    let wheel = build()?;
    let python = Tools::ready()?;
    let mut lints = cargo(&["clippy", "--release", "--manifest-path", MANIFEST, "--", "-D", "warnings"]);
    // In a folder of its own: maturin asks pyo3 for other features, and each would undo what the other built.
    process::run(python.building(&mut lints).env("CARGO_TARGET_DIR", python.folder.join("lints")))?;
    let mut install = python.pip();
    process::run(install.args(["install", "--quiet", "--no-deps", "--force-reinstall"]).arg(&wheel))?;
    process::run(&mut cargo(&["build", "-p", "dunlin-cli"]))?;
    let package = package();
    let mut types = python.module("mypy");
    types.args(["--strict", "--cache-dir"]).arg(python.folder.join("mypy"));
    process::run(types.args(["python/dunlin", "tests", "examples"]).current_dir(&package))?;
    let mut tests = python.module("pytest");
    tests.args(["-p", "no:cacheprovider"]).current_dir(&package).env("PYTHONDONTWRITEBYTECODE", "1");
    process::run(tests.env("DUNLIN_BINARY", workspace::target_directory()?.join("debug/dunlin")))
}

/// A Python in which the package is installed, freshly built.
pub fn ready() -> Result<PathBuf> {
    let wheel = build()?;
    let python = Tools::ready()?;
    let mut install = python.pip();
    process::run(install.args(["install", "--quiet", "--no-deps", "--force-reinstall"]).arg(&wheel))?;
    Ok(python.program)
}

/// Where the package's examples are.
pub fn examples() -> PathBuf {
    package().join("examples")
}

/// The package is formatted, which cargo's look at the workspace does not see.
pub fn format() -> Result<()> {
    process::run(&mut cargo(&["fmt", "--manifest-path", MANIFEST, "--check"]))
}

fn package() -> PathBuf {
    workspace::root().join("clients/python")
}

fn build() -> Result<PathBuf> {
    let python = Tools::ready()?;
    let wheels = python.folder.join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels).with_context(|| format!("cannot empty {}", wheels.display()))?;
    }
    println!("python: building the wheel; the first time takes a minute or two …");
    let mut maturin = python.module("maturin");
    maturin.args(["build", "--release", "--manifest-path", MANIFEST, "--interpreter"]);
    maturin.arg(&python.program).arg("--out").arg(&wheels).current_dir(workspace::root());
    process::run(python.building(&mut maturin))?;
    let mut built = fs::read_dir(&wheels).with_context(|| format!("cannot read {}", wheels.display()))?;
    let wheel = built.next().context("maturin left no wheel")??;
    Ok(wheel.path())
}

/// The environment with the tools.
struct Tools {
    folder: PathBuf,
    program: PathBuf,
}

impl Tools {
    /// Makes it, unless it is there with these very tools.
    fn ready() -> Result<Tools> {
        let folder = workspace::target_directory()?.join("python");
        let environment = folder.join("environment");
        let tools = Tools { program: environment.join("bin/python"), folder };
        let mark = environment.join("tools.txt");
        let wanted = format!("{}\n{}\n", version()?, TOOLS.join("\n"));
        if fs::read_to_string(&mark).is_ok_and(|there| there == wanted) && tools.program.exists() {
            return Ok(tools);
        }
        println!("python: fetching {} …", TOOLS.join(", "));
        process::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))
            .context("python3 with venv is needed (Debian: python3-venv)")?;
        let mut install = tools.pip();
        process::run(install.args(["install", "--quiet", "--only-binary", ":all:"]).args(TOOLS)).context(
            "the tools come from the Python package index: look at the network and at pip's settings \
             (`python3 -m pip config list`, PIP_INDEX_URL)",
        )?;
        fs::write(&mark, wanted).with_context(|| format!("cannot write {}", mark.display()))?;
        Ok(tools)
    }

    fn module(&self, name: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-m", name]);
        command
    }

    fn pip(&self) -> Command {
        let mut command = self.module("pip");
        command.arg("--disable-pip-version-check");
        command
    }

    /// What cargo builds for Python does not displace what it builds for the product.
    fn building<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("CARGO_TARGET_DIR", self.folder.join("build")).env("PYO3_PYTHON", &self.program)
    }
}

/// The version of `python3`, if the package takes it.
fn version() -> Result<String> {
    let ask = "import sys; print(*sys.version_info[:3], sep='.')";
    let said = process::text(Command::new("python3").args(["-c", ask])).context("python3 is needed")?;
    let version = said.trim().to_owned();
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < OLDEST {
        bail!("`python3` is {version}: the package needs {}.{} or later", OLDEST.0, OLDEST.1);
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_python_is_what_the_package_says() {
        let read = |path: &str| fs::read_to_string(package().join(path)).unwrap();
        let (major, minor) = OLDEST;
        assert!(read("pyproject.toml").contains(&format!("requires-python = \">={major}.{minor}\"")));
        assert!(read("Cargo.toml").contains(&format!("abi3-py{major}{minor}")));
    }
}
