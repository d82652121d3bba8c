//! The command `dunlin config`. It prints the values that a node would use and the source of each value, or an example
//! of a configuration file.

use std::io::Write;

use anyhow::Result;
use serde_json::json;

use crate::config::{ConfigFlags, NodeConfig, RawConfig, ValueOrigin};
use crate::console::Console;
use crate::table::TextTable;

/// Arguments of `dunlin config`, which prints a node's configuration.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Print each value and its source: a flag, a variable, a line of the file, or the default
    #[command(after_help = "\
Examples:
  dunlin config show --config node.toml
  DUNLIN_LISTEN=127.0.0.1:0 dunlin config show --retention-bytes 1GiB
  dunlin config show --json | jq -r 'select(.origin != \"default\") | .key'")]
    Show(ConfigFlags),
    /// Print a configuration file with every key at its default
    #[command(after_help = "\
Examples:
  dunlin config example > node.toml
  dunlin serve --config node.toml")]
    Example,
}

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    let flags = match &arguments.subcommand {
        Subcommand::Show(flags) => flags,
        Subcommand::Example => return Ok(std::io::stdout().write_all(crate::config::example().as_bytes())?),
    };
    let (raw, warnings) = flags.gather()?;
    show(&raw, console)?;
    for warning in warnings {
        writeln!(std::io::stderr(), "{} {warning}", console.errors.warning("warning:"))?;
    }
    // The values are checked only after they were printed, so that the user can find an invalid value in the output.
    NodeConfig::try_from(&raw).map(drop)
}

fn show(raw: &RawConfig, console: &Console) -> Result<()> {
    let mut out = console.out();
    if console.json {
        for (key, setting) in raw.iter() {
            let origin = setting.origin.to_string();
            let object = json!({
                "key": key.name, "value": setting.text, "origin": origin,
                "default": key.default, "flag": format!("--{}", key.flag()), "variable": key.variable(),
            });
            writeln!(out, "{object}")?;
        }
    } else {
        let mut table = TextTable::new(&["KEY", "VALUE", "SOURCE"]);
        for (key, setting) in raw.iter() {
            let source = match &setting.origin {
                ValueOrigin::Default => console.paint.faint("default"),
                other => console.paint.strong(&other.to_string()),
            };
            table.row([key.name.to_owned(), setting.text.clone(), source]);
        }
        table.write(&mut out, console.paint)?;
    }
    Ok(out.flush()?)
}
