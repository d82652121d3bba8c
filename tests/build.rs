//! Extracts the Rust example program from the README. This program, which subscribes to a topic, becomes the source of
//! the program `readme-rust`, which a test runs.

use std::path::Path;
use std::{env, fs};

const README: &str = "../README.md";
/// The node's address in the README's program. In the extracted program, `URL_ARGUMENT` replaces this address.
const ADDRESS: &str = "\"dunlin://127.0.0.1:4220\"";
/// A Rust expression for the program's first argument, which is the address of a node.
const URL_ARGUMENT: &str = "&std::env::args().nth(1).ok_or(\"a URL is to be given\")?";

fn main() {
    println!("cargo::rerun-if-changed={README}");
    println!("cargo::rerun-if-changed=build.rs");
    let page = fs::read_to_string(README).expect("the README can be read");
    let chapter =
        page.split("## In your language").nth(1).expect("the README has the chapter `In your language`");
    let program = chapter.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next());
    let program = program.expect("the chapter has a program in Rust");
    assert!(program.contains(ADDRESS), "the example connects to {ADDRESS}");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("subscribe.rs"), program.replace(ADDRESS, URL_ARGUMENT))
        .expect("the file can be written");
}
