//! Build script: writes a Rust file with a table of the dashboard's files. The server includes this table in its
//! binary.

#[path = "build/page.rs"]
mod page;

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    page::write(&out)
}
