//! Checks that two generated parts of the repository are up to date. The first part is the Rust code that is generated
//! from the protobuf files; this code is committed, so that users need no protobuf compiler. The second part is the
//! page `docs/renames.md`.
//!
//! `cargo xtask fix` generates both parts.

use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;

/// If this environment variable is set, the tests write the generated files instead of comparing them.
const UPDATE: &str = "DUNLIN_UPDATE_GENERATED";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Checks that each file of `generated` equals the file with the same name in `committed`.
fn compare(generated: &Path, committed: &Path) {
    for entry in fs::read_dir(generated).expect("the folder of the new code") {
        let new = entry.expect("an entry of the folder").path();
        let old = committed.join(new.file_name().expect("a file's name"));
        let bytes = fs::read(&new).expect("the new code");
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&old, bytes).expect("the folder of the kept code can be written");
        } else {
            let is_current = fs::read(&old).is_ok_and(|committed| committed == bytes);
            assert!(
                is_current,
                "{} is not what its protobuf file says: run `cargo xtask fix`",
                old.display()
            );
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
        // The client code is generated too, because tests use it.
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

/// The tables of `docs/renames.md`. Each entry has a table's heading, and two lists that select rows of
/// `docs/renames.tsv` for the table: the kinds of rows, and the areas of rows. An empty list of areas selects all
/// areas.
const RENAMES: [(&str, &[&str], &[&str]); 4] = [
    ("Command line", &["option", "output"], &[]),
    (
        "JSON, protocols, metrics",
        &["key", "error", "label", "metric", "alert", "protobuf", "path", "thread"],
        &[],
    ),
    ("Python", &["python"], &[]),
    ("Rust client", &["type", "trait", "fn", "variant"], &["crates/client"]),
];

#[test]
fn page_of_renames_matches_its_table() {
    let docs = repository().join("docs");
    let table = fs::read_to_string(docs.join("renames.tsv")).expect("the table of renames");
    let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    let mut page = "# Changed names\n\nThis page lists the names that users meet and that have changed since commit \
                    c3f2e9c of 2026-11-25. There are no aliases. `docs/renames.tsv` lists all names, including\n\
                    those of private Rust items; `cargo xtask fix` writes this page from it.\n"
        .to_owned();
    for (heading, kinds, areas) in RENAMES {
        page += &format!("\n## {heading}\n\n| before | now |\n|---|---|\n");
        for row in &rows {
            let [area, old, new, kind] = row[..] else { panic!("four fields are expected: {row:?}") };
            if kinds.contains(&kind) && (areas.is_empty() || areas.contains(&area)) {
                let escaped = |name: &str| name.replace('|', "\\|");
                page += &format!("| `{}` | `{}` |\n", escaped(old), escaped(new));
            }
        }
    }
    let out = tempfile::tempdir().expect("a folder");
    fs::write(out.path().join("renames.md"), page).expect("room on the disk");
    compare(out.path(), &docs);
}
