//! The gRPC clients to test. The test programs in `tests/clients/grpc` use these clients.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Client, ClientPaths, is_up_to_date, run_quietly, write_stamp};
use crate::process;

pub(super) const CLIENTS: &[Client] = &[
    Client { name: "grpcio", needs: &["python3"], install: python, run: run_python },
    Client { name: "grpc-go", needs: &["python3", "go"], install: go, run: run_go },
    Client { name: "grpc-js", needs: &["node", "npm"], install: node, run: run_node },
    Client { name: "grpcurl", needs: &["sh", "go"], install: grpcurl, run: run_grpcurl },
];

const PROTOS: [&str; 3] = ["dunlin/v1/dunlin.proto", "dunlin/v1/kv.proto", "ratatoskr/ratatoskr.proto"];
/// The proto files that the Go client needs.
const GO_PROTOS: [&str; 2] = [PROTOS[0], PROTOS[1]];
/// The Go package of the code that is generated from [`GO_PROTOS`].
const GO_PACKAGE: &str = "dunlin.example/client/gen/dunlin/v1";

impl ClientPaths {
    fn source(&self, path: &str) -> PathBuf {
        self.sources.join("grpc").join(path)
    }

    fn python(&self) -> PathBuf {
        self.installed.join("python")
    }

    fn go(&self) -> PathBuf {
        self.installed.join("go")
    }

    fn node(&self) -> PathBuf {
        self.installed.join("node")
    }

    fn proto_files(&self) -> impl Iterator<Item = PathBuf> {
        PROTOS.iter().map(|file| self.protos.join(file))
    }

    /// Returns a command that runs the protobuf compiler of the package grpcio-tools.
    fn protoc(&self) -> Command {
        let mut protoc = Command::new(self.python().join("bin/python"));
        protoc.args(["-m", "grpc_tools.protoc", "-I"]).arg(&self.protos);
        protoc
    }
}

fn python(paths: &ClientPaths) -> Result<()> {
    let requirements = paths.source("python/requirements.txt");
    let inputs: Vec<_> = [requirements.clone()].into_iter().chain(paths.proto_files()).collect();
    let stamp = paths.python().join("made");
    if is_up_to_date(&stamp, &inputs) {
        return Ok(());
    }
    println!("-- installing grpcio");
    run_quietly(Command::new("python3").args(["-m", "venv"]).arg(paths.python()))?;
    let mut pip = Command::new(paths.python().join("bin/pip"));
    run_quietly(pip.args(["install", "--quiet", "--requirement"]).arg(&requirements))?;
    let generated = paths.python().join("generated");
    std::fs::create_dir_all(&generated)?;
    let out = |kind: &str| format!("--{kind}={}", generated.display());
    run_quietly(paths.protoc().args([out("python_out"), out("grpc_python_out")]).args(PROTOS))?;
    write_stamp(&stamp, &inputs)
}

fn run_python(paths: &ClientPaths, address: &str) -> Result<()> {
    for program in ["python/dunlin_client.py", "python/ratatoskr_client.py"] {
        let mut client = Command::new(paths.python().join("bin/python"));
        client.env("PYTHONPATH", paths.python().join("generated"));
        process::run(client.arg(paths.source(program)).arg(address))?;
    }
    Ok(())
}

/// Copies the Go module of the test, and creates the directory for the generated code. Returns the module's original
/// files.
fn copy_go_module(paths: &ClientPaths) -> Result<Vec<PathBuf>> {
    let module = paths.go();
    std::fs::create_dir_all(module.join("gen"))?;
    let mut files = Vec::new();
    for file in ["go.mod", "go.sum", "main.go"] {
        let source = paths.source("go").join(file);
        std::fs::copy(&source, module.join(file)).with_context(|| format!("cannot copy {file}"))?;
        files.push(source);
    }
    Ok(files)
}

fn build_go(paths: &ClientPaths, package: &str, name: &str) -> Result<PathBuf> {
    let program = paths.go().join("bin").join(name);
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(package).current_dir(paths.go());
    run_quietly(&mut build)?;
    Ok(program)
}

fn go(paths: &ClientPaths) -> Result<()> {
    python(paths)?;
    let inputs: Vec<_> = copy_go_module(paths)?.into_iter().chain(paths.proto_files()).collect();
    let stamp = paths.go().join("made");
    if is_up_to_date(&stamp, &inputs) {
        return Ok(());
    }
    println!("-- building the client of grpc-go");
    let mut protoc = paths.protoc();
    for (package, name, out) in [
        ("google.golang.org/protobuf/cmd/protoc-gen-go", "protoc-gen-go", "go"),
        ("google.golang.org/grpc/cmd/protoc-gen-go-grpc", "protoc-gen-go-grpc", "go-grpc"),
    ] {
        let plugin = build_go(paths, package, name)?;
        protoc.arg(format!("--plugin={name}={}", plugin.display()));
        protoc.arg(format!("--{out}_out={}", paths.go().join("gen").display()));
        protoc.arg(format!("--{out}_opt=paths=source_relative"));
        protoc.args(GO_PROTOS.map(|file| format!("--{out}_opt=M{file}={GO_PACKAGE}")));
    }
    run_quietly(protoc.args(GO_PROTOS))?;
    build_go(paths, ".", "client")?;
    write_stamp(&stamp, &inputs)
}

fn run_go(paths: &ClientPaths, address: &str) -> Result<()> {
    process::run(Command::new(paths.go().join("bin/client")).arg(address))
}

fn node(paths: &ClientPaths) -> Result<()> {
    let package = paths.source("node/package.json");
    let stamp = paths.node().join("made");
    if is_up_to_date(&stamp, std::slice::from_ref(&package)) {
        return Ok(());
    }
    println!("-- installing grpc-js");
    std::fs::create_dir_all(paths.node())?;
    std::fs::copy(&package, paths.node().join("package.json"))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund"]).current_dir(paths.node());
    run_quietly(&mut npm)?;
    write_stamp(&stamp, std::slice::from_ref(&package))
}

fn run_node(paths: &ClientPaths, address: &str) -> Result<()> {
    let mut client = Command::new("node");
    client.env("NODE_PATH", paths.node().join("node_modules"));
    process::run(client.arg(paths.source("node/client.js")).arg(address).arg(&paths.protos))
}

fn grpcurl(paths: &ClientPaths) -> Result<()> {
    let inputs = copy_go_module(paths)?;
    let stamp = paths.go().join("grpcurl-made");
    if is_up_to_date(&stamp, &inputs) {
        return Ok(());
    }
    println!("-- building grpcurl");
    build_go(paths, "github.com/fullstorydev/grpcurl/cmd/grpcurl", "grpcurl")?;
    write_stamp(&stamp, &inputs)
}

fn run_grpcurl(paths: &ClientPaths, address: &str) -> Result<()> {
    let mut check = Command::new("sh");
    check.arg(paths.source("grpcurl/check.sh")).arg(paths.go().join("bin/grpcurl")).arg(address);
    process::run(&mut check)
}
