//! `serve`: a node, for machines to start.

use crate::config::ConfigFlags;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Prints one line once it serves, and logs to standard error:
  READY tcp=127.0.0.1:4220 unix=/run/dunlin.sock pid=4711

Examples:
  dunlin serve --listen 127.0.0.1:0          any free port; the READY line says which
  dunlin serve --config node.toml
  DUNLIN_RETENTION_BYTES=1GiB dunlin serve

Ctrl-C or SIGTERM ends it in order; a second one at once.")]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigFlags,
}
