//! `sub`: reads records, and says what was missed where it was missed.

use std::time::Duration;

use dunlin_topic::{OnGap, Start};

use crate::commands::parse;
use crate::format::Format;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin sub ticks                               from now on
  dunlin sub 'orders.>' 'stock.*.eu'             wildcards, and several patterns
  dunlin sub ticks --from earliest --count 10    the ten oldest records that are still held
  dunlin sub ticks --from 1-1042                 what came after position 1-1042
  dunlin sub ticks --from 5m                     the last five minutes
  dunlin sub ticks --sleep 1ms --on-gap newest   play a reader that cannot keep up
  dunlin sub ticks --format '{time} {subject} {key} {payload}'
  dunlin sub files --format raw --count 1 > cat.jpg

Output, one line each (--format text):
  1042 tick                                      a record: its sequence and its payload
  LAGGING  behind 524,288 of 1,048,576 retained  more than half of the history is yet to be read
  GAP      40,211 … 1,311,873  (1,271,663 records)   now at 1,311,874
  EPOCH    3 → 4                                 the log began anew

Fields of a template: {subject} {topic} {partition} {seq} {epoch} {position} {payload} {key}
{headers} {time} {event_time} {reply}. With raw or a template, notices go to standard error.")]
pub struct Arguments {
    /// Subjects; `*` stands for one token, `>` for all that follow
    #[arg(required = true, value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Where to start: earliest, latest, after a position EPOCH-SEQ, at a time (RFC 3339), or so long ago (5m)
    #[arg(long, value_name = "START", default_value = "latest", value_parser = parse::start)]
    pub from: Start,
    /// End after this many records
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub count: Option<u64>,
    /// End when nothing has come for this long
    #[arg(long, value_name = "DURATION")]
    pub idle: Option<humantime::Duration>,
    /// text, json, raw (payloads and nothing else), or a template like '{seq} {payload}'
    #[arg(long, short, value_name = "FORMAT", default_value = "text", conflicts_with = "json")]
    pub format: Format,
    /// What ends each record in raw and template output
    #[arg(long, value_name = "TEXT", default_value = "\\n", value_parser = parse::escaped)]
    pub delimiter: String,
    /// Where to go on after a loss: oldest, newest, or fail
    #[arg(long, value_name = "WHERE", default_value = "oldest", value_parser = parse::on_gap)]
    pub on_gap: OnGap,
    /// Wait this long after each record, as a slow reader would
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    pub sleep: Option<Duration>,
    /// A name that operators see
    #[arg(long, default_value = "dunlin sub", hide_default_value = true)]
    pub name: String,
    /// On reliable topics: be one of the readers the publisher waits for
    #[arg(long)]
    pub registered: bool,
}
