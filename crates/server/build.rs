//! Lists the files of the dashboard for the compilation.

#[path = "build/page.rs"]
mod page;

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    page::write(&out)
}
