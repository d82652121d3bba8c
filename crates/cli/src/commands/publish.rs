//! `pub`: publishes arguments, lines of standard input, or files.

use std::path::PathBuf;

use crate::commands::parse::header;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin pub greetings hello 'hello again'       one record for each text
  yes tick | dunlin pub ticks                    one record for each line, as fast as it goes
  dunlin pub photos --file cat.jpg --file dog.jpg
  dunlin pub orders.eu.1042 '{\"qty\":5}' --key 1042 --header trace=7f3a
  dunlin pub ticks tick --repeat 1000 --rate 100 a hundred a second
  dunlin pub config v2 --expect-seq 41           only if record 41 is still the last

A closing line on standard error says how many records the node has acknowledged, and the last position.")]
pub struct Arguments {
    /// Where to publish
    pub subject: String,
    /// Records to publish; without any (and without --file) each line of standard input is one
    pub texts: Vec<String>,
    /// Publish a whole file as one record; `-` is standard input
    #[arg(long, value_name = "PATH", conflicts_with = "texts")]
    pub file: Vec<PathBuf>,
    /// Publish each line of a file as one record
    #[arg(long, value_name = "PATH", conflicts_with_all = ["texts", "file"])]
    pub lines: Vec<PathBuf>,
    /// Key: chooses the partition, and groups keep the order of its records
    #[arg(long)]
    pub key: Option<String>,
    /// Header; may be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME=VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// When it happened: RFC 3339 or `now`
    #[arg(long, value_name = "TIME", value_parser = crate::commands::parse::moment)]
    pub event_time: Option<std::time::SystemTime>,
    /// Readers skip the record when it is older than this
    #[arg(long, value_name = "DURATION")]
    pub expires_in: Option<humantime::Duration>,
    /// Where a reply is expected
    #[arg(long, value_name = "SUBJECT")]
    pub reply: Option<String>,
    /// Publish only if this is the log's last sequence
    #[arg(long, value_name = "SEQ", conflicts_with_all = ["repeat", "file", "lines"])]
    pub expect_seq: Option<u64>,
    /// Publish everything this many times
    #[arg(long, value_name = "COUNT", default_value_t = 1, hide_default_value = true)]
    pub repeat: u64,
    /// Records per second at most
    #[arg(long, value_name = "PER_SECOND")]
    pub rate: Option<f64>,
    /// Say nothing when all went well
    #[arg(long, short)]
    pub quiet: bool,
}
