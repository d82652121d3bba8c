//! `dev`: a node for people, with the next thing to type.

use std::io::Write;

use anyhow::Result;

use crate::commands::serve;
use crate::config::ConfigFlags;
use crate::connect::URL_DEFAULT;
use crate::console::Console;
use crate::running::Running;
use crate::signals::Stop;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin dev
  dunlin dev --listen 127.0.0.1:0            beside another node

The same node as `dunlin serve` with the same options; it only says more.")]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigFlags,
}

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    let stop = Stop::on_signal()?;
    let running = serve::start(&arguments.config, console)?;
    greet(&running, console)?;
    serve::wait(&stop);
    running.stop();
    writeln!(std::io::stdout(), "\nstopped; what it held in memory is gone")?;
    Ok(())
}

const COMMANDS: [(&str, &str); 5] = [
    ("dunlin sub ticks", "read from now on"),
    ("dunlin pub ticks hello", "publish one record"),
    ("yes tick | dunlin pub ticks", "publish as fast as it goes"),
    ("dunlin sub ticks --sleep 1ms --on-gap newest", "a reader that cannot keep up, and is told so"),
    ("dunlin topics list", "what there is"),
];

fn greet(running: &Running, console: &Console) -> Result<()> {
    let paint = console.paint;
    let mut out = console.out();
    writeln!(out, "{} {} is up", paint.good("dunlin"), env!("CARGO_PKG_VERSION"))?;
    for url in running.urls() {
        writeln!(out, "  {}", paint.strong(&url))?;
    }
    writeln!(out, "\nTry, in other terminals:")?;
    let url = running.url();
    if url != URL_DEFAULT {
        writeln!(out, "  {}", paint.command(&format!("export DUNLIN_URL={url}")))?;
    }
    for (command, about) in COMMANDS {
        writeln!(out, "  {}  {}", paint.command(&format!("{command:<44}")), paint.faint(about))?;
    }
    writeln!(out, "\nCtrl-C stops it.")?;
    Ok(out.flush()?)
}

/// What has to follow a command so that it finds this node.
pub fn url_argument(url: &str) -> String {
    if url == URL_DEFAULT { String::new() } else { format!(" --url {url}") }
}
