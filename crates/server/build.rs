//! Compiles the protobuf files of door `grpc`, for which no protoc is needed, and lists the files of the dashboard.

#[path = "build/page.rs"]
mod page;

use std::path::PathBuf;

use prost::Message;

const FILES: [&str; 4] =
    ["dunlin/v1/dunlin.proto", "dunlin/v1/kv.proto", "dunlin/v1/tasks.proto", "ratatoskr/ratatoskr.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("grpc.descriptors"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        // Tests are clients.
        .build_client(true)
        .build_transport(false)
        .bytes(".")
        .compile_fds(descriptors)?;
    page::write(&out)
}
