//! `image`: builds the static binary of `deploy/Containerfile` without a container. Then tests the binary as an
//! unprivileged user, in a root directory with only a few files: the node must resolve a name, and must shut down in
//! order.
//!
//! The command needs root for `chroot`. It is not part of `cargo xtask test`, because it builds all code for another
//! target.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::process::{self, cargo};
use crate::{sizes, workspace};

/// The id of the user under which the Containerfile runs the node.
const USER: u32 = 65532;
/// The path of the node's data directory, relative to the container's root directory.
const DATA: &str = "var/lib/dunlin";

pub fn run() -> Result<()> {
    let binary = build()?;
    sizes::print(&binary)?;
    let linked = process::output(Command::new("ldd").arg(&binary))?;
    let output = [linked.stdout, linked.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    ensure!(
        ["statically linked", "not a dynamic executable"].iter().any(|words| output.contains(words)),
        "{} needs libraries: {output}",
        binary.display()
    );
    let root = workspace::target_directory()?.join("image");
    create_root(&root, &binary)?;
    let node = ContainerProcess(
        chroot_command(&root)
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir", &format!("/{DATA}")])
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the node in the image's root directory")?,
    );
    try_node(&root, node)?;
    println!("{}: static, and serves alone in an empty root as user {USER}", binary.display());
    Ok(())
}

fn build() -> Result<PathBuf> {
    let about = process::text(Command::new("rustc").arg("-vV"))?;
    let host =
        about.lines().find_map(|line| line.strip_prefix("host: ")).context("`rustc -vV` prints no host")?;
    let mut command = cargo(&["build", "--locked", "--release", "--package", "dunlin-cli", "--target", host]);
    process::run(command.env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    Ok(workspace::target_directory()?.join(host).join("release/dunlin"))
}

/// Creates a root directory like that of the container: the contents of the image, and the file `/etc/hosts`. In a
/// container, the container runtime adds this file.
fn create_root(root: &Path, binary: &Path) -> Result<()> {
    if root.exists() {
        fs::remove_dir_all(root)?;
    }
    fs::create_dir_all(root.join(DATA))?;
    fs::create_dir_all(root.join("etc"))?;
    fs::write(root.join("etc/hosts"), "127.0.0.1 dunlin.test\n")?;
    fs::copy(binary, root.join("dunlin"))?;
    std::os::unix::fs::chown(root.join(DATA), Some(USER), Some(USER))?;
    // The node runs as another user, who must be able to enter the directory.
    fs::set_permissions(root, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    Ok(())
}

fn chroot_command(root: &Path) -> Command {
    let mut command = Command::new("chroot");
    command.arg(format!("--userspec={USER}:{USER}")).arg(root).arg("/dunlin").stdin(Stdio::null());
    command
}

/// Tests the running node: connects to it by its host name, publishes a record to a durable topic, reads the record
/// back, and ends the node.
fn try_node(root: &Path, mut node: ContainerProcess) -> Result<()> {
    let mut ready = String::new();
    BufReader::new(node.0.stdout.take().context("standard output is not piped")?).read_line(&mut ready)?;
    let address = ready.split_whitespace().find_map(|word| word.strip_prefix("tcp=127.0.0.1:"));
    let port = address.with_context(|| format!("expected READY from the node, read {ready:?}"))?;
    let url = format!("dunlin://dunlin.test:{port}");
    let run_client = |words: &[&str]| process::text(chroot_command(root).args(["--url", &url]).args(words));
    run_client(&["topics", "create", "kept", "--durable"])?;
    run_client(&["pub", "kept", "hello"])?;
    let read = run_client(&["sub", "kept", "--from", "earliest", "--count", "1"])?;
    ensure!(read.contains("hello"), "the node did not return the published record: {read:?}");
    process::run(Command::new("kill").args(["-TERM", &node.0.id().to_string()]))?;
    let status = node.0.wait()?;
    ensure!(status.success(), "the node ended with {status}");
    Ok(())
}

/// A process of the test. Dropping the value kills the process.
struct ContainerProcess(Child);

impl Drop for ContainerProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
