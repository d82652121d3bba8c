//! `dev`: a node for people, with the next thing to type.

use std::io::Write;

use anyhow::Result;
use dunlin_server::{Door, Server};

use crate::commands::serve;
use crate::config::keys::DEV_DEFAULTS;
use crate::config::{ConfigFlags, Origin, RawConfig};
use crate::connect::URL_DEFAULT;
use crate::console::Console;
use crate::running::Running;
use crate::signals::{Reload, Stop};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin dev
  dunlin dev --listen 127.0.0.1:0            beside another node

The same node as `dunlin serve` with the same options; it only says more, and opens all doors.")]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigFlags,
}

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    let (stop, reload) = (Stop::on_signal()?, Reload::on_signal()?);
    let (mut raw, mut warnings) = arguments.config.gather_over(RawConfig::dev_defaults())?;
    shut_doors_in_use(&mut raw, &mut warnings);
    let running = serve::start_with(&raw, &warnings, console)?;
    greet(&running, console)?;
    serve::wait_and_reload(&running, &stop, &reload);
    running.stop();
    writeln!(std::io::stdout(), "\nstopped; what it held in memory is gone")?;
    Ok(())
}

/// A door that nobody asked for stays shut where another program, be it another `dunlin dev`, has its port.
fn shut_doors_in_use(raw: &mut RawConfig, warnings: &mut Vec<String>) {
    for (name, text) in DEV_DEFAULTS {
        let is_default = raw.get(name).origin == Origin::Default;
        if is_default && text.parse().is_ok_and(|address| !Server::is_free(address)) {
            raw.set_default(name, "off");
            warnings.push(format!(
                "another program listens on {text}, so that {name} is off here: set it to an address of your own, \
                 or to off"
            ));
        }
    }
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
    for (door, url) in running.other_urls() {
        writeln!(out, "  {}  {}", paint.strong(&url), paint.faint(clients_of(door)))?;
    }
    writeln!(out, "\nTry, in other terminals:")?;
    let url = running.url();
    if url != URL_DEFAULT {
        writeln!(out, "  {}", paint.command(&format!("export DUNLIN_URL={url}")))?;
    }
    for (command, about) in COMMANDS {
        writeln!(out, "  {}  {}", paint.command(&format!("{command:<44}")), paint.faint(about))?;
    }
    if let Some((_, url)) = running.other_urls().find(|(door, _)| *door == Door::Http) {
        let command = format!("curl -N {url}/v1/topics/ticks/events");
        writeln!(
            out,
            "  {}  {}",
            paint.command(&command),
            paint.faint("the same without Dunlin's own client")
        )?;
    }
    writeln!(out, "\nCtrl-C stops it.")?;
    Ok(out.flush()?)
}

fn clients_of(door: Door) -> &'static str {
    match door {
        Door::Nats => "any NATS client",
        Door::Http => "curl, browsers, Prometheus",
        Door::Grpc => "any gRPC client: dunlin.v1, Ratatoskr's MessageBroker, reflection",
        _ => "",
    }
}

/// What has to follow a command so that it finds this node.
pub fn url_argument(url: &str) -> String {
    if url == URL_DEFAULT { String::new() } else { format!(" --url {url}") }
}
