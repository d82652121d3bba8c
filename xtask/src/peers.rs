//! `cargo xtask peers`: builds programs of other systems into `peers/build/`. The command `dunlin bench peers` measures
//! these programs for comparison with Dunlin.
//!
//! A program that is newer than its source is not built again. libzmq and Redis come from Debian's packages.
//! nats-server, nats.go, asynq, etcd and etcd's client come from the Go module proxy; the `go.mod` and `go.sum` of each
//! module pin their versions. Celery and HyperQueue come from PyPI. krABMaga, rstar and kiddo come from crates.io;
//! `peers/space` pins their versions. The product itself uses none of these programs and libraries.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process;
use crate::workspace;

/// Builds every program that is missing or older than its source.
pub fn run() -> Result<()> {
    let peers = workspace::root().join("peers");
    let build = peers.join("build");
    std::fs::create_dir_all(&build).with_context(|| format!("cannot create {}", build.display()))?;
    build_libzmq(&peers, &build)?;
    build_go(&peers.join("nats"), &build, "nats-server", "github.com/nats-io/nats-server/v2")?;
    build_go(&peers.join("nats"), &build, "nats_load", "./load")?;
    build_go(&peers.join("kv"), &build, "etcd", "go.etcd.io/etcd/server/v3")?;
    build_go(&peers.join("kv"), &build, "kv_load", "./load")?;
    build_go(&peers.join("tasks"), &build, "asynq_load", "./load")?;
    install_python(&peers.join("tasks"), &build)?;
    link_redis(&build)?;
    build_rust(&peers.join("space"), &build, "space_peer")?;
    println!("The peers are in {}; `dunlin bench peers <suite>` runs them.", build.display());
    Ok(())
}

fn build_libzmq(peers: &Path, build: &Path) -> Result<()> {
    let (source, program) = (peers.join("zmq/zmq_peer.c"), build.join("zmq_peer"));
    if is_newer(&program, &source) {
        return print_existing(&program);
    }
    require_program("cc", "install a C compiler, such as Debian's gcc")?;
    if !has_zmq_header() {
        install_libzmq()?;
    }
    let mut compile = Command::new("cc");
    compile.args(["-std=gnu11", "-O3", "-Wall", "-Wextra", "-o"]).arg(&program).arg(&source);
    process::run(compile.args(["-lzmq", "-lpthread"])).context("cannot compile the libzmq peer")
}

/// Whether the compiler finds the header `zmq.h` of libzmq. Systems have this header in different directories.
fn has_zmq_header() -> bool {
    let mut probe = Command::new("cc");
    probe.args(["-E", "-include", "zmq.h", "-x", "c", "/dev/null"]);
    process::output(&mut probe).is_ok_and(|output| output.status.success())
}

fn install_libzmq() -> Result<()> {
    install("libzmq3-dev", "install libzmq's headers by hand (Debian: libzmq3-dev)")
}

/// Makes the program `redis-server` available. In Debian, `redis-server` is a link to `redis-check-rdb`, which is in
/// the package `redis-tools`. This function installs only `redis-tools`, because the package `redis-server` would start
/// a service.
fn link_redis(build: &Path) -> Result<()> {
    let (server, tool) = (build.join("redis-server"), Path::new("/usr/bin/redis-check-rdb"));
    if server.exists() {
        return print_existing(&server);
    }
    if !tool.exists() {
        install(
            "redis-tools",
            "install Redis by hand (Debian: redis-tools) and link its server into peers/build",
        )?;
    }
    std::os::unix::fs::symlink(tool, &server).with_context(|| format!("cannot link {}", server.display()))
}

fn install(package: &str, advice: &'static str) -> Result<()> {
    require_program("apt-get", advice)?;
    let root = process::text(Command::new("id").arg("-u"))?.trim() == "0";
    let apt = |arguments: &[&str]| {
        let mut command = if root { Command::new("apt-get") } else { Command::new("sudo") };
        if !root {
            command.args(["--non-interactive", "apt-get"]);
        }
        process::run(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive")).context(advice)
    };
    apt(&["update", "--quiet"])?;
    apt(&["install", "--quiet", "--yes", "--no-install-recommends", package])
}

/// Builds the Go package `package` in the directory `module`, and stores the program under `name` in `build`. The
/// package is a pinned dependency of the module or, if it begins with `.`, a part of the module.
fn build_go(module: &Path, build: &Path, name: &str, package: &str) -> Result<()> {
    let program = build.join(name);
    let mut sources = vec![module.join("go.mod")];
    if package.starts_with('.') {
        let folder = module.join(package);
        let files =
            std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        sources.extend(files.filter_map(|file| Some(file.ok()?.path())));
    }
    if sources.iter().all(|source| is_newer(&program, source)) {
        return print_existing(&program);
    }
    require_program("go", "install Go 1.26 or later")?;
    let mut compile = Command::new("go");
    compile.args(["build", "-o"]).arg(&program).arg(package).current_dir(module);
    process::run(&mut compile).with_context(|| format!("cannot build {name} from the Go module proxy"))
}

/// Installs Celery and HyperQueue in a virtual environment, and copies the programs that use them to `build`.
fn install_python(module: &Path, build: &Path) -> Result<()> {
    let (pins, environment) = (module.join("requirements.txt"), build.join("tasks_python"));
    for program in ["celery_load.py", "hyperqueue_load.py"] {
        let (from, to) = (module.join(program), build.join(program));
        std::fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
    }
    let done = environment.join("installed");
    if is_newer(&done, &pins) {
        return print_existing(&environment.join("bin/python"));
    }
    require_program("python3", "install Python 3, such as Debian's python3-venv")?;
    process::run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    let mut install = Command::new(environment.join("bin/pip"));
    install.args(["install", "--quiet", "--disable-pip-version-check", "--requirement"]).arg(&pins);
    process::run(&mut install).context("cannot install Celery and HyperQueue with pip")?;
    std::fs::write(&done, "").with_context(|| format!("cannot write {}", done.display()))
}

/// Builds the Rust program in `crate_dir`, which has its own lock file. Copies the program to `build`.
fn build_rust(crate_dir: &Path, build: &Path, name: &str) -> Result<()> {
    let program = build.join(name);
    let sources =
        ["Cargo.toml", "Cargo.lock", "src/main.rs", "src/flock.rs"].map(|file| crate_dir.join(file));
    if sources.iter().all(|source| is_newer(&program, source)) {
        return print_existing(&program);
    }
    let mut compile = Command::new("cargo");
    compile
        .args(["build", "--release", "--locked", "--quiet"])
        .current_dir(crate_dir)
        .env_remove("CARGO_TARGET_DIR");
    process::run(&mut compile).with_context(|| format!("cannot build {name}"))?;
    let built = crate_dir.join("target/release").join(name);
    std::fs::copy(&built, &program).with_context(|| format!("cannot copy {}", built.display())).map(drop)
}

/// Whether a program was built after its source was last changed, judged by the files' times.
fn is_newer(program: &Path, source: &Path) -> bool {
    let written = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    written(program).zip(written(source)).is_some_and(|(program, source)| program >= source)
}

fn print_existing(program: &Path) -> Result<()> {
    println!("{} is there", program.display());
    Ok(())
}

fn require_program(program: &str, advice: &str) -> Result<()> {
    let found = std::env::var_os("PATH")
        .is_some_and(|paths| std::env::split_paths(&paths).any(|folder| folder.join(program).is_file()));
    if !found {
        bail!("`{program}` is not in a directory of PATH: {advice}");
    }
    Ok(())
}
