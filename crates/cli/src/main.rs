//! The program `dunlin`: see the library beside this file.

use std::process::ExitCode;

fn main() -> ExitCode {
    dunlin_cli::main()
}
