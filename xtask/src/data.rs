//! `data`: downloads recordings of markets and other real data into `data/`. The recordings are parts of packages on
//! PyPI.
//!
//! - Every file in `data/` is complete and has its pinned checksum. For this purpose, new files are written and
//!   verified in `data/.fetch`, and only verified files are moved to `data/`. If a run is interrupted, the next run
//!   removes the files in `data/.fetch`.
//! - pip verifies an archive's checksum before it runs any code of the archive.
//! - Only one run downloads at a time: each run first takes a lock on `data/.lock`.
//!
//! A Python program unpacks archives and computes checksums. Python is needed for pip anyway, and its use saves four
//! Rust crates.

mod recordings;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{process, workspace};
use recordings::{PACKAGES, PypiPackage, RecordingFile};

const ARCHIVE_PY: &str = include_str!("data/archive.py");

/// Returns the directory that contains the recordings.
pub fn directory() -> PathBuf {
    workspace::root().join("data")
}

/// Downloads the recordings that are missing or damaged. Does nothing if all recordings are present.
pub fn run() -> Result<()> {
    let data = directory();
    fs::create_dir_all(&data).with_context(|| format!("cannot create {}", data.display()))?;
    let lock = File::create(data.join(".lock")).context("cannot create data/.lock")?;
    lock.lock().context("cannot lock data/.lock")?;
    for package in PACKAGES {
        if is_intact(&data, package.recordings)? {
            println!("data: {} {}: in data/, checksums match", package.name, package.version);
        } else {
            fetch(package, &data).with_context(|| advice(package))?;
        }
    }
    Ok(())
}

fn advice(package: &PypiPackage) -> String {
    let files: Vec<_> = package.recordings.iter().map(|recording| recording.file).collect();
    format!(
        "cannot fetch {} {} from the Python package index; look at the network and at pip's settings (`python3 -m pip \
         config list`, PIP_INDEX_URL), or copy {} into {} from a machine that has them",
        package.name,
        package.version,
        files.join(", "),
        directory().display()
    )
}

fn fetch(package: &PypiPackage, data: &Path) -> Result<()> {
    println!("data: {} {}: fetching from the Python package index …", package.name, package.version);
    let staging = Staging::new(data)?;
    download(package, &staging.0)?;
    println!("data: {} {}: unpacking {}", package.name, package.version, package.archive);
    unpack(&staging.0.join(package.archive), package.recordings, &staging.0)?;
    install(package.recordings, &staging.0, data)
}

/// Downloads a package. With the option `--require-hashes`, pip verifies the archive before it reads the package's
/// metadata. The verification must come first, because pip runs code of the package to read the metadata.
fn download(package: &PypiPackage, staging: &Path) -> Result<()> {
    let requirement = format!("{}=={} --hash=sha256:{}\n", package.name, package.version, package.sha256);
    fs::write(staging.join("requirements.txt"), requirement).context("cannot write requirements.txt")?;
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "--quiet",
        "--no-deps",
        "--require-hashes",
    ])
    .args(["--ignore-requires-python", "--retries", "2", "--timeout", "20"])
    .args(["-r", "requirements.txt", "-d", "."])
    .current_dir(staging);
    if package.source_only {
        pip.args(["--no-binary", package.name]);
    } else {
        pip.args(["--only-binary", package.name]);
    }
    if let Some((python, platform)) = package.wheel_of {
        pip.args(["--implementation", "cp", "--python-version", python, "--platform", platform]);
    }
    let output = process::output(&mut pip).context("python3 with pip is needed")?;
    if !output.status.success() {
        bail!("pip failed:\n  {}", pip_error(&output.stderr));
    }
    Ok(())
}

/// Returns the error messages in `stderr`, pip's standard error. If pip has retried, the reason for its last retry
/// comes first. If `stderr` contains no error message and no retry, returns all of `stderr`.
fn pip_error(stderr: &[u8]) -> String {
    let stderr = String::from_utf8_lossy(stderr);
    let errors: Vec<_> = stderr.lines().filter(|line| line.starts_with("ERROR:")).collect();
    let retry =
        stderr.lines().rfind(|line| line.contains("Retrying (")).and_then(|line| line.split("after ").nth(1));
    let lines = retry.into_iter().chain(errors).map(str::to_owned).collect::<Vec<_>>();
    if lines.is_empty() { stderr.trim_end().to_owned() } else { lines.join("\n  ") }
}

fn unpack(archive: &Path, recordings: &[RecordingFile], directory: &Path) -> Result<()> {
    let mut python = archive_command("unpack");
    python.arg(archive);
    for recording in recordings {
        python.arg(recording.member).arg(directory.join(recording.file));
    }
    process::text(&mut python).map(drop)
}

/// Verifies the checksums of these recordings in the directory `from`. If all are right, moves the recordings to
/// `data`.
fn install(recordings: &[RecordingFile], from: &Path, data: &Path) -> Result<()> {
    for (recording, checksum) in recordings.iter().zip(checksums(from, recordings)?) {
        if checksum != recording.sha256 {
            bail!("{} has SHA-256 {checksum}, not {}", recording.member, recording.sha256);
        }
    }
    for recording in recordings {
        let target = data.join(recording.file);
        fs::rename(from.join(recording.file), &target)
            .with_context(|| format!("cannot move a recording to {}", target.display()))?;
        println!("data: {}: fetched and verified", recording.file);
    }
    Ok(())
}

fn is_intact(data: &Path, recordings: &[RecordingFile]) -> Result<bool> {
    let checksums = checksums(data, recordings)?;
    Ok(recordings.iter().zip(checksums).all(|(recording, checksum)| checksum == recording.sha256))
}

fn checksums(directory: &Path, recordings: &[RecordingFile]) -> Result<Vec<String>> {
    let mut python = archive_command("sums");
    python.args(recordings.iter().map(|recording| directory.join(recording.file)));
    let text = process::text(&mut python)?;
    Ok(text.lines().map(str::to_owned).collect())
}

fn archive_command(verb: &str) -> Command {
    let mut python = Command::new("python3");
    python.args(["-c", ARCHIVE_PY, verb]);
    python
}

/// A directory for files that are not verified yet. Dropping the value removes the directory.
struct Staging(PathBuf);

impl Staging {
    fn new(data: &Path) -> Result<Staging> {
        let staging = data.join(".fetch");
        if staging.exists() {
            fs::remove_dir_all(&staging).with_context(|| format!("cannot remove {}", staging.display()))?;
        }
        fs::create_dir(&staging).with_context(|| format!("cannot create {}", staging.display()))?;
        Ok(Staging(staging))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Ignores the error, because the next run removes the directory if it still exists.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The SHA-256 checksum of "abc".
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn recording(file: &'static str, sha256: &'static str) -> RecordingFile {
        RecordingFile { member: file, file, sha256 }
    }

    /// Creates a directory like `data/`, and a staging directory in it, for a test.
    fn test_directories(test: &str) -> (PathBuf, Staging) {
        let data = std::env::temp_dir().join(format!("dunlin-xtask-{test}-{}", std::process::id()));
        fs::create_dir_all(&data).unwrap();
        let staging = Staging::new(&data).unwrap();
        (data, staging)
    }

    #[test]
    fn damaged_data_file_prevents_installing_any_file() {
        let (data, staging) = test_directories("damaged");
        fs::write(staging.0.join("good"), "abc").unwrap();
        fs::write(staging.0.join("bad"), "abd").unwrap();
        let both = [recording("good", ABC), recording("bad", ABC)];
        let error = install(&both, &staging.0, &data).unwrap_err().to_string();
        assert!(error.starts_with("bad has SHA-256 "), "{error}");
        assert!(!data.join("good").exists());

        fs::write(staging.0.join("bad"), "abc").unwrap();
        install(&both, &staging.0, &data).unwrap();
        assert!(is_intact(&data, &both).unwrap());
        fs::write(data.join("good"), "ab").unwrap();
        assert!(!is_intact(&data, &both).unwrap(), "a file cut short must be fetched again");
        fs::remove_dir_all(&data).unwrap();
    }

    #[test]
    fn files_of_wheels_and_source_archives_are_decompressed() {
        let (data, staging) = test_directories("unpack");
        let script = "import gzip, tarfile, zipfile\n\
                    open('plain', 'w').write('abc')\n\
                    tarfile.open('source.tar.gz', 'w:gz').add('plain')\n\
                    zipfile.ZipFile('wheel.whl', 'w').writestr('packed.gz', gzip.compress(b'abc'))\n";
        process::text(Command::new("python3").args(["-c", script]).current_dir(&staging.0)).unwrap();
        let plain = [recording("plain", ABC)];
        let packed = [RecordingFile { member: "packed.gz", file: "packed", sha256: ABC }];
        unpack(&staging.0.join("source.tar.gz"), &plain, &data).unwrap();
        unpack(&staging.0.join("wheel.whl"), &packed, &data).unwrap();
        assert!(is_intact(&data, &plain).unwrap() && is_intact(&data, &packed).unwrap());
        fs::remove_dir_all(&data).unwrap();
    }
}
