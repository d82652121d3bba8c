//! Checks that the committed Rust code of the protobuf files is current. Users therefore need no protobuf
//! compiler.
//!
//! `cargo xtask fix` generates it.

use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;

/// If this variable is set, the tests write the code instead of comparing it.
const UPDATE: &str = "DUNLIN_UPDATE_GENERATED";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Compares each file of `made` with the file of the same name in `kept`.
fn compare(made: &Path, kept: &Path) {
    for entry in fs::read_dir(made).expect("the folder of the new code") {
        let new = entry.expect("an entry of the folder").path();
        let old = kept.join(new.file_name().expect("a file's name"));
        let bytes = fs::read(&new).expect("the new code");
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&old, bytes).expect("the folder of the kept code can be written");
        } else {
            let same = fs::read(&old).is_ok_and(|kept| kept == bytes);
            assert!(same, "{} is not what its protobuf file says: run `cargo xtask fix`", old.display());
        }
    }
}

#[test]
fn generated_server_code_matches_its_protobuf_files() {
    let folder = repository().join("crates/server");
    let files = [
        "dunlin/v1/dunlin.proto",
        "dunlin/v1/kv.proto",
        "dunlin/v1/tasks.proto",
        "ratatoskr/ratatoskr.proto",
    ];
    let descriptors = protox::compile(files, [folder.join("proto")]).expect("valid protobuf files");
    let out = tempfile::tempdir().expect("a folder");
    fs::write(out.path().join("descriptors.bin"), descriptors.encode_to_vec()).expect("room on the disk");
    tonic_prost_build::configure()
        // The tests use the client code.
        .build_client(true)
        .build_transport(false)
        .bytes(".")
        .out_dir(out.path())
        .compile_fds(descriptors)
        .expect("code of the descriptors");
    compare(out.path(), &folder.join("src/grpc/generated"));
}

#[test]
fn generated_benchmark_code_matches_its_protobuf_file() {
    let folder = repository().join("crates/bench");
    let descriptors = protox::compile(["echo.proto"], [folder.join("proto")]).expect("a valid protobuf file");
    let out = tempfile::tempdir().expect("a folder");
    tonic_prost_build::configure()
        .bytes(".")
        .out_dir(out.path())
        .compile_fds(descriptors)
        .expect("code of the descriptors");
    compare(out.path(), &folder.join("src/grpc/generated"));
}
