//! The command `dunlin kv txn`, which runs a transaction that its options describe.

use std::io::Write;

use anyhow::Result;
use dunlin_client::state::{ComparedProperty, Comparison, KeyOperation};
use dunlin_client::{Kv, Transaction};
use serde_json::json;

use super::show;
use crate::console::Console;
use crate::outcome::CommandRefusal;

pub const EXAMPLES: &str = "\
Examples:
  dunlin kv txn --if-revision a=42 --put a=2 --put b=3
  dunlin kv txn --if-value state=open --put state=closed --else-get state
  dunlin kv txn --if-revision a=0 --put a=1     only if key a does not exist

If all conditions hold, the command does --put, --del and --get, in this order; otherwise --else-put, --else-del and
--else-get.
Exit code 1 means that a condition did not hold.";

/// Arguments of `dunlin kv txn`, which runs a transaction on keys.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Arguments {
    /// Condition: this revision changed the key last; 0 means that the key does not exist
    #[arg(long, value_name = "KEY=REVISION", value_parser = revision)]
    if_revision: Vec<(String, u64)>,
    /// Condition: the key has this value
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    if_value: Vec<(String, String)>,
    /// Key to write if all conditions hold
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    put: Vec<(String, String)>,
    /// Key to delete if all conditions hold
    #[arg(long, value_name = "KEY")]
    del: Vec<String>,
    /// Key to read if all conditions hold
    #[arg(long, value_name = "KEY")]
    get: Vec<String>,
    /// Key to write if a condition does not hold
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    else_put: Vec<(String, String)>,
    /// Key to delete if a condition does not hold
    #[arg(long, value_name = "KEY")]
    else_del: Vec<String>,
    /// Key to read if a condition does not hold
    #[arg(long, value_name = "KEY")]
    else_get: Vec<String>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn revision(text: &str) -> Result<(String, u64), String> {
    let (key, revision) = pair(text)?;
    Ok((key, revision.parse().map_err(|_| "expected KEY=REVISION".to_owned())?))
}

fn operations<'a>(
    puts: &'a [(String, String)],
    dels: &'a [String],
    gets: &'a [String],
) -> impl Iterator<Item = KeyOperation<'a>> {
    let put = |(key, value): &'a (String, String)| KeyOperation::Put {
        key: key.as_bytes(),
        value: value.as_bytes(),
        lease: 0,
    };
    let del = |key: &'a String| KeyOperation::Delete { key: key.as_bytes() };
    let get = |key: &'a String| KeyOperation::Get { key: key.as_bytes() };
    puts.iter().map(put).chain(dels.iter().map(del)).chain(gets.iter().map(get))
}

pub fn run(arguments: &Arguments, kv: &Kv, console: &Console) -> Result<()> {
    let Arguments { if_revision, if_value, put, del, get, else_put, else_del, else_get } = arguments;
    let mut transaction = Transaction::new();
    for (key, revision) in if_revision {
        transaction = transaction.if_modified_at(key.as_bytes(), *revision);
    }
    for (key, value) in if_value {
        let target = ComparedProperty::Value { value: value.as_bytes() };
        transaction = transaction.compare(key.as_bytes(), Comparison::Equal, target);
    }
    transaction = operations(put, del, get).fold(transaction, Transaction::then);
    transaction = operations(else_put, else_del, else_get).fold(transaction, Transaction::otherwise);
    let done = kv.transact(&transaction)?;
    let mut out = console.out();
    if console.json {
        let results = done.results.iter().map(|result| match result {
            Ok(keys) => json!({ "keys": keys }),
            Err((entries, more)) => {
                json!({"entries": entries.iter().map(show::entry).collect::<Vec<_>>(), "more": more})
            }
        });
        let results: Vec<_> = results.collect();
        let object = json!({"revision": done.revision, "succeeded": done.succeeded, "results": results});
        writeln!(out, "{object}")?;
    } else {
        writeln!(out, "revision {}", done.revision)?;
        for entry in done.results.iter().filter_map(|result| result.as_ref().err()).flat_map(|(all, _)| all) {
            writeln!(out, "{}\t{}", show::line(&entry.key), show::line(&entry.value))?;
        }
    }
    out.flush()?;
    if done.succeeded {
        Ok(())
    } else {
        Err(CommandRefusal("a condition of the transaction does not hold".to_owned()).into())
    }
}
