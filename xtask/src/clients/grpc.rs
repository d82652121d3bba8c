//! Clients of the gRPC listener; their programs are in `tests/clients/grpc`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Client, ClientPaths, is_made, made, quietly};
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
/// The Go package of the code that is generated from these files.
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

    /// Returns the command of the protobuf compiler of grpcio-tools.
    fn protoc(&self) -> Command {
        let mut protoc = Command::new(self.python().join("bin/python"));
        protoc.args(["-m", "grpc_tools.protoc", "-I"]).arg(&self.protos);
        protoc
    }
}

fn python(place: &ClientPaths) -> Result<()> {
    let requirements = place.source("python/requirements.txt");
    let of: Vec<_> = [requirements.clone()].into_iter().chain(place.proto_files()).collect();
    let stamp = place.python().join("made");
    if is_made(&stamp, &of) {
        return Ok(());
    }
    println!("-- installing grpcio");
    quietly(Command::new("python3").args(["-m", "venv"]).arg(place.python()))?;
    let mut pip = Command::new(place.python().join("bin/pip"));
    quietly(pip.args(["install", "--quiet", "--requirement"]).arg(&requirements))?;
    let generated = place.python().join("generated");
    std::fs::create_dir_all(&generated)?;
    let out = |kind: &str| format!("--{kind}={}", generated.display());
    quietly(place.protoc().args([out("python_out"), out("grpc_python_out")]).args(PROTOS))?;
    made(&stamp, &of)
}

fn run_python(place: &ClientPaths, address: &str) -> Result<()> {
    for program in ["python/dunlin_client.py", "python/ratatoskr_client.py"] {
        let mut client = Command::new(place.python().join("bin/python"));
        client.env("PYTHONPATH", place.python().join("generated"));
        process::run(client.arg(place.source(program)).arg(address))?;
    }
    Ok(())
}

/// Copies the Go module and adds the generated code.
fn go_module(place: &ClientPaths) -> Result<Vec<PathBuf>> {
    let module = place.go();
    std::fs::create_dir_all(module.join("gen"))?;
    let mut files = Vec::new();
    for file in ["go.mod", "go.sum", "main.go"] {
        let source = place.source("go").join(file);
        std::fs::copy(&source, module.join(file)).with_context(|| format!("cannot copy {file}"))?;
        files.push(source);
    }
    Ok(files)
}

fn go_build(place: &ClientPaths, package: &str, name: &str) -> Result<PathBuf> {
    let program = place.go().join("bin").join(name);
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(package).current_dir(place.go());
    quietly(&mut build)?;
    Ok(program)
}

fn go(place: &ClientPaths) -> Result<()> {
    python(place)?;
    let of: Vec<_> = go_module(place)?.into_iter().chain(place.proto_files()).collect();
    let stamp = place.go().join("made");
    if is_made(&stamp, &of) {
        return Ok(());
    }
    println!("-- building the client of grpc-go");
    let mut protoc = place.protoc();
    for (package, name, out) in [
        ("google.golang.org/protobuf/cmd/protoc-gen-go", "protoc-gen-go", "go"),
        ("google.golang.org/grpc/cmd/protoc-gen-go-grpc", "protoc-gen-go-grpc", "go-grpc"),
    ] {
        let plugin = go_build(place, package, name)?;
        protoc.arg(format!("--plugin={name}={}", plugin.display()));
        protoc.arg(format!("--{out}_out={}", place.go().join("gen").display()));
        protoc.arg(format!("--{out}_opt=paths=source_relative"));
        protoc.args(GO_PROTOS.map(|file| format!("--{out}_opt=M{file}={GO_PACKAGE}")));
    }
    quietly(protoc.args(GO_PROTOS))?;
    go_build(place, ".", "client")?;
    made(&stamp, &of)
}

fn run_go(place: &ClientPaths, address: &str) -> Result<()> {
    process::run(Command::new(place.go().join("bin/client")).arg(address))
}

fn node(place: &ClientPaths) -> Result<()> {
    let package = place.source("node/package.json");
    let stamp = place.node().join("made");
    if is_made(&stamp, std::slice::from_ref(&package)) {
        return Ok(());
    }
    println!("-- installing grpc-js");
    std::fs::create_dir_all(place.node())?;
    std::fs::copy(&package, place.node().join("package.json"))?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund"]).current_dir(place.node());
    quietly(&mut npm)?;
    made(&stamp, std::slice::from_ref(&package))
}

fn run_node(place: &ClientPaths, address: &str) -> Result<()> {
    let mut client = Command::new("node");
    client.env("NODE_PATH", place.node().join("node_modules"));
    process::run(client.arg(place.source("node/client.js")).arg(address).arg(&place.protos))
}

fn grpcurl(place: &ClientPaths) -> Result<()> {
    let of = go_module(place)?;
    let stamp = place.go().join("grpcurl-made");
    if is_made(&stamp, &of) {
        return Ok(());
    }
    println!("-- building grpcurl");
    go_build(place, "github.com/fullstorydev/grpcurl/cmd/grpcurl", "grpcurl")?;
    made(&stamp, &of)
}

fn run_grpcurl(place: &ClientPaths, address: &str) -> Result<()> {
    let mut check = Command::new("sh");
    check.arg(place.source("grpcurl/check.sh")).arg(place.go().join("bin/grpcurl")).arg(address);
    process::run(&mut check)
}
