//! Generates `page.rs` at build time. The generated file has a table of the built dashboard's files
//! (`web/dashboard/dist`), each with its plain and its compressed bytes.
//!
//! If that directory does not exist, the table is empty, and nodes serve a short text at `/`. `cargo build` thus needs
//! neither Node.js nor a built dashboard.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

const DIST: &str = "../../web/dashboard/dist";

/// Writes `page.rs` into the directory `out`.
pub fn write(out: &Path) -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=build/page.rs");
    println!("cargo:rerun-if-changed={DIST}");
    let mut files = Vec::new();
    gather(Path::new(DIST), &mut files)?;
    files.sort();
    let mut table = String::from("&[\n");
    for (number, file) in files.iter().enumerate() {
        // The generated code includes a copy of the file, because a build of the dashboard may delete the file while
        // the server is compiled.
        let (plain, compressed) = (format!("page.{number}"), format!("page.{number}.gz"));
        let bytes = fs::read(file)?;
        fs::write(out.join(&plain), &bytes)?;
        let mut gzip = GzEncoder::new(fs::File::create(out.join(&compressed))?, Compression::best());
        gzip.write_all(&bytes)?;
        gzip.finish()?;
        let path = file.strip_prefix(DIST)?.to_str().ok_or("a name that is not UTF-8")?.replace('\\', "/");
        writeln!(
            table,
            "File {{ path: {:?}, plain: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{plain}\")), \
             gzip: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{compressed}\")) }},",
            format!("/{path}"),
        )?;
    }
    table.push_str("]\n");
    fs::write(out.join("page.rs"), table)?;
    Ok(())
}

fn gather(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            // A directory's modification time does not change when a file in a subdirectory changes, so Cargo must
            // watch each directory.
            println!("cargo:rerun-if-changed={}", path.display());
            gather(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
