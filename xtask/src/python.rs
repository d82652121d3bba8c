//! `python`: builds the wheel of the Python package. This module also serves `cargo xtask test`, which tests the
//! package in the source tree with the extension module from the workspace's build. `cargo xtask test --all` tests the
//! wheel too.
//!
//! `target/python` contains a virtual environment with tools at pinned versions, the release build, and the wheel.
//! Existing files are not made again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace;

/// The tools that build and test the wheel, each with its pinned version.
const TOOLS: [&str; 6] = [
    "maturin==1.16.0",
    "pytest==9.2.0",
    "mypy==2.4.1",
    "numpy==2.4.6",
    "nats-py==2.16.0",
    "websockets==17.4",
];
/// The oldest Python version that the package supports, as `pyproject.toml` states it.
const OLDEST: (u32, u32) = (3, 11);
/// The path of the manifest of the package's Rust crate.
const MANIFEST: &str = "clients/python/Cargo.toml";

/// The option of the command: whether to test the package too.
#[derive(clap::Args)]
pub struct Options {
    /// Check the package's types and run its tests, too
    #[arg(long)]
    test: bool,
}

/// Builds the wheel and prints its path. With the option to test, tests the wheel instead.
pub fn run(options: &Options) -> Result<()> {
    if options.test {
        return test_wheel();
    }
    let wheel = build()?;
    println!("python: {}", wheel.display());
    println!("python: pip install {}", wheel.display());
    Ok(())
}

/// Checks the types of the package in the tree and runs its tests, with the extension module from the workspace's
/// build.
pub fn test() -> Result<()> {
    try_package(&prepare()?)
}

/// Builds the wheel and installs it in a new virtual environment. There, checks the package's types and runs its tests.
pub fn test_wheel() -> Result<()> {
    let wheel = build()?;
    let tools = Tools::prepare()?;
    let environment = tools.folder.join("installed");
    process::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
    let installed = environment.join("bin/python");
    let mut install = Command::new(&installed);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    process::run(install.args(&TOOLS[1..]).arg(&wheel))?;
    try_package(&installed)
}

fn try_package(python: &Path) -> Result<()> {
    let dunlin = workspace::build_dunlin()?;
    let module = |name: &str| {
        let mut command = Command::new(python);
        command.args(["-m", name]).current_dir(package()).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    let mut types = module("mypy");
    types.args(["--strict", "--cache-dir"]).arg(workspace::target_directory()?.join("python/mypy"));
    process::run(types.args(["python/dunlin", "tests", "examples"]))?;
    process::run(module("pytest").args(["-p", "no:cacheprovider"]).env("DUNLIN_BINARY", dunlin.get_program()))
}

/// Returns the path of a Python interpreter that imports the package from the tree. The package's extension module
/// comes from the workspace's build.
pub fn prepare() -> Result<PathBuf> {
    workspace::build()?;
    let built = workspace::target_directory()?.join("debug/libdunlin_python.so");
    let extension = package().join("python/dunlin/_dunlin.abi3.so");
    // Replaces the file instead of overwriting it, because running programs may still use its old contents.
    let fresh = extension.with_extension("new");
    fs::copy(&built, &fresh).with_context(|| format!("cannot copy {}", built.display()))?;
    fs::rename(&fresh, &extension).with_context(|| format!("cannot create {}", extension.display()))?;
    let tools = Tools::prepare()?;
    let find = "import site, sys; print(site.getsitepackages()[0])";
    let folder = process::text(Command::new(&tools.program).args(["-c", find]))?;
    let path = format!("{}\n", package().join("python").display());
    fs::write(Path::new(folder.trim()).join("dunlin.pth"), path)?;
    Ok(tools.program)
}

/// Returns the directory that contains the package's examples.
pub fn examples() -> PathBuf {
    package().join("examples")
}

fn package() -> PathBuf {
    workspace::root().join("clients/python")
}

fn build() -> Result<PathBuf> {
    let python = Tools::prepare()?;
    let wheels = python.folder.join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels).with_context(|| format!("cannot empty {}", wheels.display()))?;
    }
    println!("python: building the wheel; the first time takes a minute or two …");
    let mut maturin = python.module("maturin");
    maturin.args(["build", "--profile", "wheel", "--manifest-path", MANIFEST, "--interpreter"]);
    maturin.arg(&python.program).arg("--out").arg(&wheels).current_dir(workspace::root());
    process::run(python.with_build_environment(&mut maturin))?;
    let mut built = fs::read_dir(&wheels).with_context(|| format!("cannot read {}", wheels.display()))?;
    let wheel = built.next().context("maturin built no wheel")??;
    Ok(wheel.path())
}

/// The virtual environment that contains the tools.
struct Tools {
    folder: PathBuf,
    program: PathBuf,
}

impl Tools {
    /// Creates the virtual environment. Does nothing if the environment already exists and contains exactly these
    /// tools.
    fn prepare() -> Result<Tools> {
        let folder = workspace::target_directory()?.join("python");
        let environment = folder.join("environment");
        let tools = Tools { program: environment.join("bin/python"), folder };
        let mark = environment.join("tools.txt");
        let expected = format!("{}\n{}\n", version()?, TOOLS.join("\n"));
        if fs::read_to_string(&mark).is_ok_and(|existing| existing == expected) && tools.program.exists() {
            return Ok(tools);
        }
        println!("python: fetching {} …", TOOLS.join(", "));
        process::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))
            .context("python3 with venv is needed (Debian: python3-venv)")?;
        let mut install = tools.pip();
        process::run(install.args(["install", "--quiet", "--only-binary", ":all:"]).args(TOOLS)).context(
            "cannot install the tools from the Python package index: check the network and pip's settings (`python3 -m pip config list`, PIP_INDEX_URL)",
        )?;
        fs::write(&mark, expected).with_context(|| format!("cannot write {}", mark.display()))?;
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

    /// Makes a command build into a separate target directory, so that its build does not invalidate other builds.
    fn with_build_environment<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("CARGO_TARGET_DIR", self.folder.join("build")).env("PYO3_PYTHON", &self.program)
    }
}

/// Returns the version of `python3`. Fails if the package does not support this version.
fn version() -> Result<String> {
    let script = "import sys; print(*sys.version_info[:3], sep='.')";
    let output = process::text(Command::new("python3").args(["-c", script])).context("python3 is needed")?;
    let version = output.trim().to_owned();
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
    fn oldest_supported_python_matches_the_package_metadata() {
        let read = |path: &str| fs::read_to_string(package().join(path)).unwrap();
        let (major, minor) = OLDEST;
        assert!(read("pyproject.toml").contains(&format!("requires-python = \">={major}.{minor}\"")));
        assert!(read("Cargo.toml").contains(&format!("abi3-py{major}{minor}")));
    }
}
