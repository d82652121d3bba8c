//! The command `dunlin kv`, for keys and values that all nodes of a cluster agree on.

mod show;
mod txn;

use std::io::Write;

use anyhow::{Context, Result, bail};
use dunlin_client::state::prefix_end;
use dunlin_client::{Client, Kv, KvEntry, WatchError, WatchFrom, WriteResult};
use dunlin_topic::{Position, SubscribeError};
use serde_json::json;

use crate::arguments::GlobalOptions;
use crate::connect::connect;
use crate::console::Console;
use crate::format::text::payload;
use crate::input::read_all;
use crate::outage::OutageReport;
use crate::outcome::CommandRefusal;
use crate::signals::StopFlag;
pub use show::{line, to_json};

/// Arguments of `dunlin kv`, which reads, writes and watches keys.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Print the value of a key
    #[command(after_help = "\
Examples:
  dunlin kv get config/limit
  dunlin kv get config/limit --json     with its revisions, as JSON")]
    Get {
        /// Key to read
        key: String,
        /// Read the node's own copy without asking the leader; the value may be old
        #[arg(long)]
        stale: bool,
    },
    /// Write a key
    #[command(after_help = "\
Examples:
  dunlin kv put config/limit 100
  dunlin kv put config/page - < page.html")]
    Put {
        /// Key to write
        key: String,
        /// Value to write; `-` is standard input
        value: String,
        /// Number of the lease; the key is deleted when the lease ends [default: no lease]
        #[arg(long, default_value_t, hide_default_value = true)]
        lease: u64,
    },
    /// Delete a key, or all keys with a prefix
    #[command(after_help = "\
Examples:
  dunlin kv del config/limit
  dunlin kv del config/limit --if 42    only if revision 42 changed it last
  dunlin kv del sessions/ --prefix      all keys that start with sessions/")]
    Del {
        /// Key to delete
        key: String,
        /// Delete all keys that start with KEY
        #[arg(long, conflicts_with = "revision")]
        prefix: bool,
        /// Delete the key only if this revision changed it last
        #[arg(long = "if", value_name = "REVISION")]
        revision: Option<u64>,
    },
    /// Write a key if its revision is unchanged (compare and swap)
    #[command(after_help = "\
Examples:
  dunlin kv cas config/limit 42 200     only if revision 42 changed it last
  dunlin kv cas config/limit 0 100      only if the key does not exist

Exit code 1 means that another revision changed the key; the error shows it.")]
    Cas {
        /// Key to write
        key: String,
        /// Revision that changed the key last; 0 means that the key must not exist
        revision: u64,
        /// Value to write; `-` is standard input
        value: String,
    },
    /// Run a transaction: compare keys, then write, delete and read keys in one revision
    #[command(after_help = txn::EXAMPLES)]
    Txn(txn::Arguments),
    /// List keys and their values, in the order of the keys' bytes
    #[command(after_help = "\
Examples:
  dunlin kv range                       all keys, except system keys ($…)
  dunlin kv range config/               keys that start with config/
  dunlin kv range a --end b --limit 10  keys from a to b, b excluded")]
    Range {
        /// Prefix of the keys; with --end, the first key [default: all keys]
        #[arg(default_value = "", hide_default_value = true)]
        start: String,
        /// First key after the range
        #[arg(long)]
        end: Option<String>,
        /// Maximum number of keys [default: all]
        #[arg(long, short = 'n')]
        limit: Option<usize>,
        /// Print only the keys, without values
        #[arg(long)]
        keys: bool,
        /// Include system keys, which start with `$`; implied if START begins with `$`
        #[arg(long)]
        system: bool,
        /// Read the node's own copy without asking the leader; the keys may be old
        #[arg(long)]
        stale: bool,
    },
    /// Print changes of keys, revision by revision
    #[command(after_help = "\
Examples:
  dunlin kv watch                       changes of all keys, from now on
  dunlin kv watch config/ --from 74-42  changes under config/, from revision 42 of epoch 74
  dunlin kv watch --from oldest --json  all retained changes, with epoch and revision

Exit code 1 means that revisions from --from on are no longer retained, or that revisions restarted in another epoch.
The error shows the oldest retained revision.")]
    Watch {
        /// Prefix of the keys [default: all keys]
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
        /// First revision: EPOCH-REVISION, `oldest` or `now`
        #[arg(long, default_value = "now", value_parser = parse_start)]
        from: WatchStart,
        /// End after this number of revisions [default: no end]
        #[arg(long, short = 'n', value_name = "COUNT")]
        count: Option<usize>,
    },
}

/// The revision at which a watch begins, parsed from what the user typed.
#[derive(Debug, Clone, Copy)]
enum WatchStart {
    Complete(WatchFrom),
    /// A revision number without the epoch to which it belongs.
    WithoutEpoch(u64),
}

fn parse_start(text: &str) -> Result<WatchStart, String> {
    match text {
        "now" => return Ok(WatchStart::Complete(WatchFrom::Now)),
        "oldest" => return Ok(WatchStart::Complete(WatchFrom::Oldest)),
        _ => {}
    }
    if let Ok(revision) = text.parse() {
        return Ok(WatchStart::WithoutEpoch(revision));
    }
    let position = text.parse::<Position>();
    let Position { epoch, seq: revision } =
        position.map_err(|_| "expected EPOCH-REVISION, like 74-42, `oldest` or `now`".to_owned())?;
    Ok(WatchStart::Complete(WatchFrom::Revision { epoch, revision }))
}

/// Returns the start of a watch. Fails if `from` has no epoch, because each epoch numbers its revisions from 1; the
/// error names the present epoch.
fn watch_start(client: &Client, from: WatchStart) -> Result<WatchFrom> {
    match from {
        WatchStart::Complete(from) => Ok(from),
        WatchStart::WithoutEpoch(revision) => {
            let (epoch, _) = client.kv().revision()?;
            bail!(
                "--from {revision} has no epoch: use --from {epoch}-{revision} if the revision is of the present epoch. Revisions \
                 of earlier epochs are gone: read the keys, then watch from now on"
            )
        }
    }
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let client = connect(global, "dunlin kv")?;
    let kv = client.kv();
    let kv_for = |stale: bool| if stale { kv.stale() } else { kv.clone() };
    match &arguments.subcommand {
        Subcommand::Get { key, stale } => get(&kv_for(*stale), key, console),
        Subcommand::Put { key, value, lease } => {
            let revision = kv.put_with_lease(key, read_value(value)?, *lease)?;
            print_result(WriteResult { revision, keys: 1 }, console)
        }
        Subcommand::Cas { key, revision, value } => {
            let revision = kv.cas(key, *revision, read_value(value)?)?;
            print_result(WriteResult { revision, keys: 1 }, console)
        }
        Subcommand::Del { key, prefix: true, .. } => delete_all(&kv, key, console),
        Subcommand::Del { key, revision: Some(revision), .. } => {
            print_result(kv.delete_if(key, *revision)?, console)
        }
        Subcommand::Del { key, .. } => print_result(kv.delete(key)?, console),
        Subcommand::Txn(txn) => txn::run(txn, &kv, console),
        Subcommand::Range { start, end, limit, keys, system, stale } => {
            let end =
                end.as_ref().map_or_else(|| prefix_end(start.as_bytes()), |end| end.clone().into_bytes());
            let all = *system || start.starts_with(SYSTEM_PREFIX);
            let show = RangeOptions { limit: limit.unwrap_or(usize::MAX), keys: *keys, all };
            range(&kv_for(*stale), start, &end, &show, console)
        }
        Subcommand::Watch { prefix, from, count } => {
            let stop = StopFlag::on_signal()?;
            stop.set_when_stdout_closes();
            let ended = stop.run_interruptible(|| watch(&client, prefix, *from, *count, &stop, console))?;
            ended.map_or(Ok(()), Ok)
        }
    }
}

/// Returns the text of the argument, or all of standard input if the argument is `-`.
pub(super) fn read_value(value: &str) -> Result<Vec<u8>> {
    if value != "-" {
        return Ok(value.as_bytes().to_vec());
    }
    read_all(std::io::stdin().lock()).context("cannot read standard input")
}

fn get(kv: &Kv, key: &str, console: &Console) -> Result<()> {
    let entry = kv.get(key)?.ok_or_else(|| CommandRefusal(format!("key {key:?} does not exist")))?;
    let mut out = console.out();
    if console.json {
        writeln!(out, "{}", show::entry(&entry))?;
    } else {
        payload(&entry.value, console.is_terminal, &mut out)?;
        if console.is_terminal && !entry.value.ends_with(b"\n") {
            writeln!(out)?;
        }
    }
    Ok(out.flush()?)
}

fn print_result(written: WriteResult, console: &Console) -> Result<()> {
    let WriteResult { revision, keys } = written;
    let mut out = console.out();
    match (console.json, keys) {
        (true, _) => writeln!(out, "{}", json!({"revision": revision, "keys": keys}))?,
        (false, 0) => writeln!(out, "nothing to change; the last revision is {revision}")?,
        (false, 1) => writeln!(out, "revision {revision}")?,
        (false, _) => writeln!(out, "revision {revision}: {keys} keys")?,
    }
    Ok(out.flush()?)
}

/// Deletes all keys with a prefix. Uses several requests, because the cluster limits the number of keys that one
/// request deletes.
fn delete_all(kv: &Kv, prefix: &str, console: &Console) -> Result<()> {
    let (mut all, end) = (WriteResult { revision: 0, keys: 0 }, prefix_end(prefix.as_bytes()));
    loop {
        let deleted = kv.delete_range(prefix, &end)?;
        all = WriteResult { revision: deleted.revision, keys: all.keys + deleted.keys };
        if deleted.keys == 0 {
            return print_result(all, console);
        }
    }
}

/// The options of `dunlin kv range` that select the keys to print.
struct RangeOptions {
    /// Maximum number of keys.
    limit: usize,
    /// Whether to print only the keys, without values.
    keys: bool,
    /// Whether to include system keys.
    all: bool,
}

/// The first character of all system keys.
const SYSTEM_PREFIX: char = '$';

fn range(kv: &Kv, start: &str, end: &[u8], show: &RangeOptions, console: &Console) -> Result<()> {
    let (mut start, mut remaining, keys) = (start.as_bytes().to_vec(), show.limit, show.keys);
    let mut out = console.out();
    while remaining > 0 {
        let page = kv.range(&start, end, u32::try_from(remaining).unwrap_or(u32::MAX))?;
        let shown = |entry: &&KvEntry| show.all || entry.key.first() != Some(&(SYSTEM_PREFIX as u8));
        for entry in page.entries.iter().filter(shown) {
            remaining -= 1;
            match (console.json, keys) {
                (true, false) => writeln!(out, "{}", show::entry(entry))?,
                (true, true) => writeln!(out, "{}", json!({"key": show::to_json(&entry.key)}))?,
                (false, true) => writeln!(out, "{}", show::line(&entry.key))?,
                (false, false) => {
                    writeln!(out, "{}\t{}", show::line(&entry.key), show::line(&entry.value))?;
                }
            }
        }
        match page.entries.last() {
            // System keys are adjacent in the order of keys. If this page ends with a system key that is not shown, the
            // next page starts after the last possible system key.
            Some(last) if page.more && !shown(&last) => start = vec![SYSTEM_PREFIX as u8 + 1],
            Some(last) if page.more => start = [&last.key[..], &[0]].concat(),
            _ => break,
        }
    }
    Ok(out.flush()?)
}

fn watch(
    client: &Client,
    prefix: &str,
    from: WatchStart,
    count: Option<usize>,
    stop: &StopFlag,
    console: &Console,
) -> Result<()> {
    let mut watch = client.kv().watch(prefix, watch_start(client, from)?)?;
    let (mut out, mut remaining, mut outage) =
        (console.out(), count.unwrap_or(usize::MAX), OutageReport::default());
    while remaining > 0 && !stop.is_set() {
        outage.check_connection(client, console.errors)?;
        let change = match watch.next_timeout(POLL_INTERVAL) {
            Ok(Some(change)) => change,
            Ok(None) => continue,
            // Once the node is reachable again, the watch continues where it stopped.
            Err(WatchError::Subscribe(error @ SubscribeError::Connection(_))) => {
                outage.handle_error(error, console.errors)?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        show::change(&change, console, &mut out)?;
        out.flush()?;
        remaining -= 1;
    }
    Ok(())
}

/// The interval at which a watch checks whether to end.
const POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);
