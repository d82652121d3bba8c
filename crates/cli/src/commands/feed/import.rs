//! The command `dunlin feed import`, which publishes recordings of exchanges as order books.

mod target;

use std::fs::{File, Metadata};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use dunlin_feed::recording::{Recording, RecordingFormat, RecordingItem, RecordingOptions};
use serde_json::{Value, json};

use super::recording;
use crate::arguments::GlobalOptions;
use crate::config::ByteSize;
use crate::connect::connect;
use crate::console::{Console, TextPainter, grouped};
use crate::input::{Chunk, Input};
use crate::outcome::CommandRefusal;
use crate::progress::TransferProgress;
use crate::signals::{GRACE, StopFlag};
use target::{DryRunTarget, ImportTarget, NodeTarget, RecordingFolder};

/// The maximum number of defects that are printed for each file. Further defects are only counted.
const DEFECTS_PRINTED: u64 = 20;

/// Arguments of `dunlin feed import`, which publishes an exchange's recordings as order books.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin feed import data/SELF-1.181223994 data/orders.csv    publish to a node
  gzip -dc orders.csv.gz | dunlin feed import - --market ethusd
  dunlin feed import --check data/*                           read the files without publishing
  dunlin feed import --out rec/ data/*                        write a recording for `dunlin feed replay rec/`

The first line of a file shows its format:
  Betfair Exchange Stream   JSON lines; each runner becomes topic md.<market>.<runner>
  Bitstamp orders           comma-separated values; topic md.bitstamp.<market>

The command skips unusable lines and prints a warning with their numbers. The event time of each record is the exchange's
time. See docs/feeds.md.")]
pub struct Arguments {
    /// Recordings to import; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Read the files and print what they contain, without publishing
    #[arg(long)]
    check: bool,
    /// Market name for files that contain none
    #[arg(long, default_value = "btcusd", value_name = "NAME")]
    market: String,
    /// Write a recording to this new directory instead of publishing; `dunlin feed verify`, `dunlin feed replay` and
    /// `dunlin log dump` read it
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "check")]
    out: Option<PathBuf>,
    /// Delete phantom orders from the books; a phantom is an order that, according to later lines, the exchange had
    /// already removed
    #[arg(long)]
    evict_phantoms: bool,
    /// Bytes of history that each topic keeps, such as 64MiB [default: the node's setting]
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["check", "out"])]
    retention_bytes: Option<ByteSize>,
    /// End with exit code 1 if any line was skipped
    #[arg(long)]
    strict: bool,
}

/// The result of reading one file: its format, the number of each kind of content in the file, and how long the import
/// took.
#[derive(Debug)]
struct Summary {
    format: RecordingFormat,
    counts: Vec<(&'static str, u64)>,
    books: usize,
    defects: u64,
    stored: Option<u64>,
    duration: Duration,
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let stop = StopFlag::on_signal()?;
    let defects = match (&arguments.out, arguments.check) {
        (Some(out), _) => import_to_directory(arguments, out, &stop, console)?,
        (None, true) => import_all(arguments, &mut DryRunTarget, &stop, console)?,
        (None, false) => {
            let client = connect(global, "dunlin feed import")?;
            let bytes = arguments.retention_bytes.map_or(0, |size| size.0);
            let mut node = NodeTarget::new(&client, bytes, stop.clone(), console.errors);
            let imported = || import_all(arguments, &mut node, &stop, console);
            let imported = stop.run_interruptible_after(GRACE, imported)?;
            imported.context("interrupted before the node acknowledged all records")?
        }
    };
    if arguments.strict && defects > 0 {
        return Err(
            CommandRefusal(format!("{} lines or parts of lines were left out", grouped(defects))).into()
        );
    }
    Ok(())
}

fn import_to_directory(arguments: &Arguments, out: &Path, stop: &StopFlag, console: &Console) -> Result<u64> {
    recording::create_dir(out)?;
    let mut directory = RecordingFolder::new(out);
    let outcome = import_all(arguments, &mut directory, stop, console);
    // Close the recording even after an error, so that the written records stay readable.
    let topics = directory.topics();
    let closed = directory.close();
    let printed =
        closed.and_then(|(counts, bytes)| recording::print_counts(counts, topics, bytes, "", console));
    // If both the import and the closing fail, the import's error is returned, because it most likely caused the
    // closing to fail.
    outcome.and_then(|defects| printed.map(|()| defects))
}

/// Imports all files into the target. Returns the number of defects that the files have.
fn import_all(
    arguments: &Arguments,
    target: &mut dyn ImportTarget,
    stop: &StopFlag,
    console: &Console,
) -> Result<u64> {
    let mut defects = 0;
    for path in &arguments.files {
        let name = path.display().to_string();
        let summary = import(path, arguments, target, stop, console);
        let summary = summary.with_context(|| name.clone())?;
        print_summary(&name, &summary, arguments.out.is_some(), console)?;
        defects += summary.defects;
        if stop.is_set() {
            break;
        }
    }
    Ok(defects)
}

fn import(
    path: &Path,
    arguments: &Arguments,
    target: &mut dyn ImportTarget,
    stop: &StopFlag,
    console: &Console,
) -> Result<Summary> {
    let start = Instant::now();
    let (input, bytes) = open(path, stop)?;
    let mut head = Vec::new();
    let format = detect_format(&input, &mut head).map_err(|error| match stop.is_set() {
        true => anyhow!("interrupted before the file's format was known"),
        false => error,
    })?;
    let options =
        RecordingOptions { market: arguments.market.clone(), evict_phantoms: arguments.evict_phantoms };
    let mut recording = Recording::new(format, &options);
    let file = path.display().to_string();
    let progress = TransferProgress::of_bytes(&file, bytes);
    let mut report = FileReport { file, paint: console.errors, defects: 0, progress: &progress };
    import_chunk(target, &mut report, |sink| recording.push(&head, sink))?;
    progress.add(head.len() as u64);
    while let Chunk::Bytes(bytes) = input.next().context("cannot read the rest of the file")? {
        import_chunk(target, &mut report, |sink| recording.push(&bytes, sink))?;
        progress.add(bytes.len() as u64);
    }
    if !stop.is_set() {
        import_chunk(target, &mut report, |sink| recording.end(sink))?;
    }
    if recording.is_foreign() {
        return Err(unsupported_format(&format!("the file's format is not {format}")));
    }
    let stored = target.finish()?;
    Ok(Summary {
        format,
        counts: recording.rows(),
        books: recording.books().len(),
        defects: report.defects,
        stored,
        duration: start.elapsed(),
    })
}

/// Opens a file, and returns its length if known.
fn open(path: &Path, stop: &StopFlag) -> Result<(Input, Option<u64>)> {
    if path.as_os_str() == "-" {
        return Ok((Input::new(std::io::stdin(), stop.clone()), None));
    }
    let file = File::open(path).context("cannot open the file")?;
    let bytes = file.metadata().ok().filter(Metadata::is_file).map(|metadata| metadata.len());
    Ok((Input::new(file, stop.clone()), bytes))
}

/// Reads the beginning of the file until its format is known.
fn detect_format(input: &Input, head: &mut Vec<u8>) -> Result<RecordingFormat> {
    const HEAD_BYTES_MAX: usize = 4 << 10;
    while head.len() < HEAD_BYTES_MAX && !head.contains(&b'\n') {
        match input.next().context("cannot read the file")? {
            Chunk::Bytes(bytes) => head.extend_from_slice(&bytes),
            Chunk::None | Chunk::End => break,
        }
    }
    let compressed_error = |program: &str| {
        CommandRefusal(format!("the file is compressed: use `{program} -dc FILE | dunlin feed import -`"))
    };
    match head.as_slice() {
        [] => Err(CommandRefusal("the file is empty".to_owned()).into()),
        [0x1f, 0x8b, ..] => Err(compressed_error("gzip").into()),
        [b'B', b'Z', b'h', ..] => Err(compressed_error("bzip2").into()),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Err(compressed_error("zstd").into()),
        text => RecordingFormat::of(text).ok_or_else(|| unsupported_format("the file's format is unknown")),
    }
}

fn unsupported_format(what: &str) -> anyhow::Error {
    let formats = "a Betfair stream (lines of JSON, each with `op`) and Bitstamp orders (comma-separated, a heading first)";
    CommandRefusal(format!(
        "{what}: the supported formats are {formats}. docs/feeds.md describes how to publish other feeds"
    ))
    .into()
}

/// Prints messages about one file on standard error.
struct FileReport<'a> {
    file: String,
    progress: &'a TransferProgress,
    paint: TextPainter,
    defects: u64,
}

/// Calls `read`, and passes each record that `read` finds to the target. Stops at the first error.
fn import_chunk(
    target: &mut dyn ImportTarget,
    report: &mut FileReport<'_>,
    mut read: impl FnMut(&mut dyn FnMut(RecordingItem<'_>)),
) -> Result<()> {
    let mut outcome = Ok(());
    read(&mut |item| {
        if outcome.is_ok() {
            outcome = import_item(item, target, report);
        }
    });
    outcome
}

fn import_item(
    item: RecordingItem<'_>,
    target: &mut dyn ImportTarget,
    report: &mut FileReport<'_>,
) -> Result<()> {
    match item {
        RecordingItem::Book { recorded, .. } => target.book(recorded),
        RecordingItem::Record { book, event_time_ns, payload } => target.record(book, event_time_ns, payload),
        RecordingItem::Defect(defect) => report.defect(&defect.to_string()),
        RecordingItem::Phantom(phantom) => report.print_warning(&phantom.to_string()),
        _ => Ok(()),
    }
}

impl FileReport<'_> {
    fn defect(&mut self, text: &str) -> Result<()> {
        self.defects += 1;
        match self.defects {
            1..=DEFECTS_PRINTED => self.print_warning(&format!("{text}; left out")),
            more if more == DEFECTS_PRINTED + 1 => self.print_warning(
                "further lines are left out without a warning; the summary counts them as defects",
            ),
            _ => Ok(()),
        }
    }

    fn print_warning(&self, text: &str) -> Result<()> {
        let FileReport { file, paint, progress, .. } = self;
        let line = format!("{} {file}: {text}", paint.warning("warning:"));
        Ok(progress.suspend(|| writeln!(std::io::stderr(), "{line}"))?)
    }
}

fn print_summary(file: &str, summary: &Summary, is_recorded: bool, console: &Console) -> Result<()> {
    let mut out = console.out();
    let Summary { format, counts, books, stored, duration, .. } = summary;
    let verb = if is_recorded { "recorded" } else { "published" };
    if console.json {
        let counts: serde_json::Map<String, Value> = counts
            .iter()
            .map(|(name, count)| (name.replace([' ', ','], "_").replace("__", "_"), (*count).into()))
            .collect();
        let object = json!({
            "file": file, "format": format.to_string(), "counts": counts, "topics": books,
            verb: stored, "seconds": duration.as_secs_f64(),
        });
        writeln!(out, "{object}")?;
        return Ok(out.flush()?);
    }
    writeln!(out, "{}", console.paint.strong(&format!("{file}: {format}")))?;
    let width = counts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, count) in counts {
        writeln!(out, "  {name:<width$}  {:>11}", grouped(*count))?;
    }
    if let Some(stored) = stored {
        let records = grouped(*stored);
        let mark = console.paint.good(verb);
        let topics = if *books == 1 { "topic" } else { "topics" };
        writeln!(out, "  {mark} {records} records to {books} {topics} in {:.1} s", duration.as_secs_f64())?;
    }
    Ok(out.flush()?)
}
