//! `feed import`: recordings of exchanges become topics with order books.

mod outlet;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dunlin_feed::recording::{Item, Layout, Recording, RecordingOptions};
use serde_json::{Value, json};

use crate::arguments::Global;
use crate::config::Size;
use crate::connect::connect;
use crate::console::{Console, Paint, grouped};
use crate::input::{Chunk, Input};
use crate::outcome::Refusal;
use crate::signals::Stop;
use outlet::{Node, Nowhere, Outlet};

/// Defects of a file that are told one by one; the rest are counted.
const DEFECTS_TOLD: u64 = 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin feed import data/SELF-1.181223994 data/orders.csv    into the node of --url
  gzip -dc orders.csv.gz | dunlin feed import - --market ethusd
  dunlin feed import --check data/*                           only read, and say what is in them

Formats, known by their first line: the Betfair Exchange Stream (JSON lines; each runner becomes the topic
md.<market>.<runner>) and Bitstamp's orders (comma-separated; md.bitstamp.<market>). What cannot be used is told with its
line and left out. Records keep the exchange's time as their event time. See docs/feeds.md.")]
pub struct Arguments {
    /// Recordings; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Only read the files, and say what is in them
    #[arg(long)]
    check: bool,
    /// The market of files that do not name theirs
    #[arg(long, default_value = "btcusd", value_name = "NAME")]
    market: String,
    /// Delete orders that are proven not to be there from their book, too
    #[arg(long)]
    evict_phantoms: bool,
    /// History each topic keeps, bytes [default: the node's]
    #[arg(long, value_name = "SIZE", conflicts_with = "check")]
    retention_bytes: Option<Size>,
    /// End with exit code 1 when anything was left out
    #[arg(long)]
    strict: bool,
}

/// What is known of a file when it has been read.
#[derive(Debug)]
struct Summary {
    layout: Layout,
    counts: Vec<(&'static str, u64)>,
    books: usize,
    defects: u64,
    published: Option<u64>,
    took: Duration,
}

pub fn run(arguments: &Arguments, global: &Global, console: &Console) -> Result<()> {
    let stop = Stop::on_signal()?;
    let client = if arguments.check { None } else { Some(connect(global, "dunlin feed import")?) };
    let mut defects = 0;
    for path in &arguments.files {
        let mut outlet: Box<dyn Outlet> = match &client {
            Some(client) => {
                let bytes = arguments.retention_bytes.map_or(0, |size| size.0);
                Box::new(Node::new(client, bytes, stop.clone(), console.errors))
            }
            None => Box::new(Nowhere),
        };
        let name = path.display().to_string();
        let summary = import(path, arguments, &mut *outlet, &stop, console);
        let summary = summary.with_context(|| name.clone())?;
        tell(&name, &summary, console)?;
        defects += summary.defects;
        if stop.is_set() {
            return Ok(());
        }
    }
    if arguments.strict && defects > 0 {
        return Err(
            Refusal(format!("left out: {} (each line or part of one counts)", grouped(defects))).into()
        );
    }
    Ok(())
}

fn import(
    path: &Path,
    arguments: &Arguments,
    outlet: &mut dyn Outlet,
    stop: &Stop,
    console: &Console,
) -> Result<Summary> {
    let start = Instant::now();
    let input = open(path, stop)?;
    let mut beginning = Vec::new();
    let layout = layout(&input, &mut beginning)?;
    let options =
        RecordingOptions { market: arguments.market.clone(), evict_phantoms: arguments.evict_phantoms };
    let mut recording = Recording::new(layout, &options);
    let mut told = Told { file: path.display().to_string(), paint: console.errors, defects: 0 };
    take_in(outlet, &mut told, |sink| recording.push(&beginning, sink))?;
    while let Chunk::Bytes(bytes) = input.next().context("cannot read on")? {
        take_in(outlet, &mut told, |sink| recording.push(&bytes, sink))?;
    }
    if !stop.is_set() {
        take_in(outlet, &mut told, |sink| recording.end(sink))?;
    }
    let published = outlet.finish()?;
    Ok(Summary {
        layout,
        counts: recording.rows(),
        books: recording.books().len(),
        defects: told.defects,
        published,
        took: start.elapsed(),
    })
}

fn open(path: &Path, stop: &Stop) -> Result<Input> {
    if path.as_os_str() == "-" {
        return Ok(Input::new(std::io::stdin(), stop.clone()));
    }
    Ok(Input::new(File::open(path).context("cannot open it")?, stop.clone()))
}

/// Reads as much as it takes to know the format.
fn layout(input: &Input, beginning: &mut Vec<u8>) -> Result<Layout> {
    const ENOUGH: usize = 4 << 10;
    while beginning.len() < ENOUGH && !beginning.contains(&b'\n') {
        match input.next().context("cannot read it")? {
            Chunk::Bytes(bytes) => beginning.extend_from_slice(&bytes),
            Chunk::None | Chunk::End => break,
        }
    }
    let unpack = |program: &str| {
        Refusal(format!("it is compressed; `{program} -dc FILE | dunlin feed import -` reads it"))
    };
    match beginning.as_slice() {
        [] => Err(Refusal("it is empty".to_owned()).into()),
        [0x1f, 0x8b, ..] => Err(unpack("gzip").into()),
        [b'B', b'Z', b'h', ..] => Err(unpack("bzip2").into()),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Err(unpack("zstd").into()),
        text => Layout::of(text).ok_or_else(|| {
            let formats =
                "a Betfair stream (lines of JSON) nor Bitstamp orders (comma-separated, a heading first)";
            Refusal(format!("its first line is neither of {formats}")).into()
        }),
    }
}

/// What was said of a file on standard error.
struct Told {
    file: String,
    paint: Paint,
    defects: u64,
}

/// Hands on what comes of some bytes; the first thing that fails ends it.
fn take_in(
    outlet: &mut dyn Outlet,
    told: &mut Told,
    mut read: impl FnMut(&mut dyn FnMut(Item<'_>)),
) -> Result<()> {
    let mut outcome = Ok(());
    read(&mut |item| {
        if outcome.is_ok() {
            outcome = hand_on(item, outlet, told);
        }
    });
    outcome
}

fn hand_on(item: Item<'_>, outlet: &mut dyn Outlet, told: &mut Told) -> Result<()> {
    match item {
        Item::Book { recorded, .. } => outlet.book(recorded),
        Item::Record { book, event_time_ns, payload } => outlet.record(book, event_time_ns, payload),
        Item::Defect(defect) => told.defect(&defect.to_string()),
        Item::Phantom(phantom) => told.say(&phantom.to_string()),
        _ => Ok(()),
    }
}

impl Told {
    fn defect(&mut self, text: &str) -> Result<()> {
        self.defects += 1;
        match self.defects {
            1..=DEFECTS_TOLD => self.say(&format!("{text}; left out")),
            more if more == DEFECTS_TOLD + 1 => self.say("more was left out; it is counted"),
            _ => Ok(()),
        }
    }

    fn say(&self, text: &str) -> Result<()> {
        let Told { file, paint, .. } = self;
        Ok(writeln!(std::io::stderr(), "{} {file}: {text}", paint.warning("warning:"))?)
    }
}

fn tell(file: &str, summary: &Summary, console: &Console) -> Result<()> {
    let mut out = console.out();
    let Summary { layout, counts, books, published, took, .. } = summary;
    if console.json {
        let counts: serde_json::Map<String, Value> = counts
            .iter()
            .map(|(name, count)| (name.replace([' ', ','], "_").replace("__", "_"), (*count).into()))
            .collect();
        let object = json!({
            "file": file, "format": layout.to_string(), "counts": counts, "topics": books,
            "published": published, "seconds": took.as_secs_f64(),
        });
        writeln!(out, "{object}")?;
        return Ok(out.flush()?);
    }
    writeln!(out, "{}", console.paint.strong(&format!("{file}: {layout}")))?;
    let width = counts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, count) in counts {
        writeln!(out, "  {name:<width$}  {:>11}", grouped(*count))?;
    }
    if let Some(published) = published {
        let records = grouped(*published);
        let mark = console.paint.good("published");
        let topics = if *books == 1 { "topic" } else { "topics" };
        writeln!(out, "  {mark} {records} records to {books} {topics} in {:.1} s", took.as_secs_f64())?;
    }
    Ok(out.flush()?)
}
