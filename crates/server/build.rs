//! Build script: writes a list of the dashboard's files, which are compiled into the server.

#[path = "build/page.rs"]
mod page;

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    page::write(&out)
}
