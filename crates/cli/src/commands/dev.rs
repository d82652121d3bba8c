//! `dev`: a node for people, with the next thing to type.

use crate::config::ConfigFlags;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin dev
  dunlin dev --listen 127.0.0.1:0            beside another node")]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigFlags,
}
