//! The command `report`: writes a page with the results of stored benchmark runs.

use std::io::Write;

use anyhow::Result;
use dunlin_cli::commands::report::Arguments;
use dunlin_cli::console::Console;
use dunlin_cli::outcome::CommandRefusal;

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    let runs = arguments.runs.display();
    if !arguments.runs.is_dir() {
        let message = format!(
            "the directory {runs} does not exist: run `dunlin bench` first, or name another directory with --runs"
        );
        return Err(CommandRefusal(message).into());
    }
    let report = dunlin_bench::report::write(&arguments.runs, &arguments.out)?;
    for refused in report.refused {
        writeln!(std::io::stderr(), "{} {refused}", console.errors.warning("left out:"))?;
    }
    writeln!(std::io::stdout(), "{}", arguments.out.display())?;
    Ok(())
}
