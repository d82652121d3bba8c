//! `sizes`: prints the sizes of the built programs. Fails if `dunlin` is larger than allowed.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::{process, workspace};

/// The largest allowed size of the program `dunlin`, in bytes.
const DUNLIN_MAX: u64 = 40_000_000;

/// The options of the command, such as the profile of the programs.
#[derive(clap::Args)]
pub struct Options {
    /// Cargo profile of the programs
    #[arg(long, value_name = "PROFILE", default_value = "release")]
    profile: String,
    /// Install `dunlin` with cargo into an empty target directory, and print its size and the build time
    #[arg(long, conflicts_with = "profile")]
    install: bool,
}

/// Prints the size of each program that has been built. With the option `install`, installs `dunlin` first and prints
/// only the size of `dunlin`.
pub fn run(options: &Options) -> Result<()> {
    if options.install {
        return install();
    }
    let folder = workspace::target_directory()?.join(&options.profile);
    let built: Vec<_> =
        workspace::PROGRAMS.iter().map(|name| folder.join(name)).filter(|file| file.is_file()).collect();
    ensure!(
        !built.is_empty(),
        "{} has no program: run `cargo build --profile {} -p dunlin-cli -p dunlin-bench-cli`",
        folder.display(),
        options.profile
    );
    built.iter().try_for_each(|file| print(file))
}

fn install() -> Result<()> {
    let root = workspace::target_directory()?.join("install");
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("cannot remove {}", root.display()))?;
    }
    let start = Instant::now();
    let mut cargo = process::cargo(&["install", "--quiet", "--locked", "--path", "crates/cli", "--root"]);
    process::run(cargo.arg(&root).arg("--target-dir").arg(root.join("build")))?;
    println!("{:>7.1} min", start.elapsed().as_secs_f64() / 60.0);
    print(&root.join("bin").join(workspace::PROGRAMS[0]))
}

/// Prints the size of one program. Fails if the program is `dunlin` and larger than allowed.
pub fn print(file: &Path) -> Result<()> {
    let bytes = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len();
    println!("{:>7.1} MB  {}", bytes as f64 / 1e6, file.display());
    let is_dunlin = file.file_name().is_some_and(|name| name == "dunlin");
    ensure!(
        !is_dunlin || bytes <= DUNLIN_MAX,
        "{} has {bytes} bytes, over the limit of {DUNLIN_MAX}: `cargo tree -p dunlin-cli -e normal` lists its dependencies",
        file.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_check_refuses_a_program_over_the_limit() {
        let folder = std::env::temp_dir().join(format!("xtask-sizes-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = |name: &str, bytes: u64| {
            let path = folder.join(name);
            fs::File::create(&path).unwrap().set_len(bytes).unwrap();
            path
        };
        assert!(print(&file("dunlin", DUNLIN_MAX)).is_ok());
        assert!(print(&file("dunlin", DUNLIN_MAX + 1)).is_err());
        assert!(print(&file("dunlin-bench", DUNLIN_MAX + 1)).is_ok());
        fs::remove_dir_all(&folder).unwrap();
    }
}
