//! The command `dunlin errors`, which explains the error codes. All protocols share these codes.

use std::io::Write;

use anyhow::Result;
use dunlin_wire::{CODES, CodeRow};
use serde_json::json;

use crate::config::nearest;
use crate::console::Console;
use crate::outcome::CommandRefusal;
use crate::table::TextTable;

/// Arguments of `dunlin errors`, which explains error codes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin errors              list all error codes
  dunlin errors SEQ_MOVED    explain one
  dunlin errors 47")]
pub struct Arguments {
    /// Name or number of an error code [default: all]
    code: Option<String>,
}

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    let mut out = console.out();
    match &arguments.code {
        Some(wanted) => explain(find(wanted)?, console, &mut out)?,
        None if console.json => CODES.iter().try_for_each(|row| writeln!(out, "{}", code_object(row)))?,
        None => {
            let mut table = TextTable::new(&["NUMBER", "NAME", "RETRY", "HTTP", "GRPC", "WHAT TO DO"]);
            for row in CODES {
                let (number, retry) = (row.code.number().to_string(), row.retry.to_string());
                let (http, grpc) = (row.http.to_string(), row.grpc.name().to_owned());
                table.row([number, row.name.to_owned(), retry, http, grpc, row.advice.to_owned()]);
            }
            table.write(&mut out, console.paint)?;
        }
    }
    Ok(out.flush()?)
}

fn find(wanted: &str) -> Result<&'static CodeRow> {
    let name = wanted.to_uppercase().replace('-', "_");
    let has_name_or_number = |row: &&CodeRow| row.name == name || row.code.number().to_string() == name;
    CODES.iter().find(has_name_or_number).ok_or_else(|| {
        let suggestion = nearest(&name, CODES.iter().map(|row| row.name.to_owned()));
        let all = || "; `dunlin errors` lists them all".to_owned();
        let hint = suggestion.map_or_else(all, |suggestion| format!("; did you mean {suggestion}?"));
        CommandRefusal(format!("there is no error code {wanted}{hint}")).into()
    })
}

fn explain(row: &CodeRow, console: &Console, out: &mut impl Write) -> Result<()> {
    if console.json {
        return Ok(writeln!(out, "{}", code_object(row))?);
    }
    let retry_text = match row.retry.to_string().as_str() {
        "no" => "no: do not send the same request again",
        "later" => "later: the same request may be accepted then",
        _ => "connect again, then resume",
    };
    writeln!(out, "{} ({})", console.paint.strong(row.name), row.code.number())?;
    writeln!(out, "  what to do  {}", row.advice)?;
    writeln!(out, "  try again   {retry_text}")?;
    if !row.carries.is_empty() {
        writeln!(out, "  details     {}", row.carries)?;
    }
    writeln!(out, "  HTTP        {}", row.http)?;
    writeln!(out, "  gRPC        {} ({})", row.grpc.name(), row.grpc.number())?;
    Ok(())
}

fn code_object(row: &CodeRow) -> serde_json::Value {
    json!({
        "number": row.code.number(), "name": row.name, "try_again": row.retry.to_string(),
        "http": row.http, "grpc": row.grpc.name(), "carries": row.carries, "advice": row.advice,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_code_is_found_by_name_and_by_number() {
        assert_eq!(find("seq-moved").unwrap().name, "SEQ_MOVED");
        assert_eq!(find("47").unwrap().name, "FULL");
        assert!(find("nope").unwrap_err().to_string().ends_with("`dunlin errors` lists them all"));
        assert!(find("SEQ_MOVD").unwrap_err().to_string().ends_with("did you mean SEQ_MOVED?"));
    }
}
