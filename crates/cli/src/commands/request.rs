//! `req`: a request, and its replies.

use crate::commands::parse::header;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin req time.now                            no text: an empty request
  dunlin req math.square 12 --timeout 200ms
  dunlin req ping --replies 3                    everyone who answers, three at most
  dunlin req img.scale --header width=100 < cat.jpg > small.jpg

Exit code 1 when nobody answers in time.")]
pub struct Arguments {
    /// Where someone answers
    pub subject: String,
    /// The request; `-` is standard input
    pub text: Option<String>,
    /// Header; may be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME=VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// How long to wait for the (next) reply
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub timeout: humantime::Duration,
    /// Print this many replies
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub replies: u64,
}
