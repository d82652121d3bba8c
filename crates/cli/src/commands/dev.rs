//! The command `dunlin dev`, which runs a node for development and prints commands to try.

mod nodes;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Result;
use dunlin_server::{Protocol, ReservedAddress};

use crate::certificates::Certificates;
use crate::commands::serve;
use crate::config::keys::DEV_DEFAULTS;
use crate::config::{ConfigFlags, RawConfig, ValueOrigin};
use crate::connect::URL_DEFAULT;
use crate::console::Console;
use crate::running::RunningNode;
use crate::signals::{ReloadFlag, StopFlag};
use crate::workers::WorkersConfig;

/// Arguments of `dunlin dev`, which runs a node for development.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin dev
  dunlin dev --listen 127.0.0.1:0            on a free port, beside another node
  dunlin dev --tls                           with TLS (files in ./dunlin-tls)
  dunlin dev --nodes 3                       a cluster of three processes
  dunlin dev --workers 'python3 worker.py' --scale 1..8
                                             with as many task workers as the waiting tasks need

The node is the same as that of `dunlin serve` with these options, but it opens all listeners and prints more.")]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigFlags,
    /// Use TLS, with the certificates in DIR (dunlin-tls if DIR is omitted); if there are none, create them, valid
    /// for this machine only
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true, default_missing_value = "dunlin-tls")]
    tls: Option<PathBuf>,
    /// Number of nodes; more than 1 form a cluster of processes
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=9), conflicts_with = "tls")]
    nodes: u32,
}

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    let (stop, reload) = (StopFlag::on_signal()?, ReloadFlag::on_signal()?);
    if arguments.nodes > 1 {
        let (raw, _) = arguments.config.gather_with_defaults(RawConfig::dev_defaults())?;
        return nodes::run(arguments.nodes, &raw, &stop, console);
    }
    stop.enforce_exit_within(serve::EXIT_TIMEOUT);
    let certificates = arguments.tls.as_deref().map(Certificates::open_or_create).transpose()?;
    let mut defaults = RawConfig::dev_defaults();
    if let Some(certificates) = &certificates {
        defaults.set_default("tls.cert", &certificates.node);
        defaults.set_default("tls.key", &certificates.node_key);
    }
    let (mut raw, warnings) = arguments.config.gather_with_defaults(defaults)?;
    let (reserved, closed_warnings) = close_listeners_in_use(&mut raw);
    // These warnings may explain why the start fails.
    serve::warn(&closed_warnings, console)?;
    let running = serve::start_with(&raw, &warnings, &stop, console)?;
    drop(reserved);
    print_instructions(&running, certificates.as_ref(), WorkersConfig::of(&raw)?.as_ref(), console)?;
    let ended = serve::wait_and_reload(&running, &stop, &reload);
    running.stop();
    ended?;
    writeln!(std::io::stdout(), "\nstopped; records in memory are lost")?;
    Ok(())
}

/// Turns off each default listener whose port another program uses. Returns the addresses of the other default
/// listeners, and a warning for each listener that was turned off. The addresses stay reserved until the node opens
/// them.
fn close_listeners_in_use(raw: &mut RawConfig) -> (Vec<ReservedAddress>, Vec<String>) {
    let (mut reserved, mut warnings) = (Vec::new(), Vec::new());
    for (name, text) in DEV_DEFAULTS {
        let Ok(address) = text.parse() else { continue };
        if raw.get(name).origin != ValueOrigin::Default {
            continue;
        }
        match ReservedAddress::new(address) {
            Ok(address) => reserved.push(address),
            Err(_) => {
                raw.set_default(name, "off");
                warnings.push(format!(
                    "another program listens on {text}, so {name} is off for this node: set {name} to \
                     another address, or to off"
                ));
            }
        }
    }
    (reserved, warnings)
}

const COMMANDS: [(&str, &str); 6] = [
    ("dunlin sub ticks", "subscribe to new records"),
    ("dunlin pub ticks hello", "publish one record"),
    ("yes tick | dunlin pub ticks", "publish at full speed"),
    ("dunlin sub ticks --sleep 1ms --on-gap newest", "subscribe too slowly and see gaps"),
    ("dunlin topics list", "list the topics"),
    ("dunlin top", "watch the node in the terminal"),
];

fn print_instructions(
    running: &RunningNode,
    certificates: Option<&Certificates>,
    workers: Option<&WorkersConfig>,
    console: &Console,
) -> Result<()> {
    let paint = console.paint;
    let mut out = console.out();
    writeln!(out, "{} {} is up", paint.good("dunlin"), env!("CARGO_PKG_VERSION"))?;
    for url in running.urls() {
        writeln!(out, "  {}", paint.strong(&url))?;
    }
    for (protocol, url) in running.other_urls() {
        writeln!(out, "  {}  {}", paint.strong(&url), paint.faint(client_description(protocol)))?;
    }
    if let Some(dashboard) = running.server.dashboard() {
        writeln!(out, "  {}  {}", paint.strong(&dashboard), paint.good("the dashboard, in a browser"))?;
    }
    if let Some(workers) = workers {
        writeln!(out, "  {}", paint.faint(&format!("workers: {workers}")))?;
    }
    writeln!(out, "\nTry, in other terminals:")?;
    let url = running.url();
    if url != URL_DEFAULT {
        writeln!(out, "  {}", paint.command(&format!("export DUNLIN_URL={url}")))?;
    }
    if let Some(Certificates { ca, .. }) = certificates {
        writeln!(out, "  {}", paint.command(&format!("export DUNLIN_CA={ca}")))?;
    }
    for (command, about) in COMMANDS {
        writeln!(out, "  {}  {}", paint.command(&format!("{command:<44}")), paint.faint(about))?;
    }
    if let Some((_, url)) = running.other_urls().find(|(protocol, _)| *protocol == Protocol::Http) {
        let ca =
            certificates.map_or_else(String::new, |certificates| format!(" --cacert {}", certificates.ca));
        let command = format!("curl -N{ca} {url}/v1/topics/ticks/events");
        writeln!(out, "  {}  {}", paint.command(&command), paint.faint("subscribe over HTTP"))?;
    }
    if let Some(certificates) = certificates {
        print_tls_instructions(running, certificates, console, &mut out)?;
    }
    writeln!(out, "\nCtrl-C stops the node.")?;
    Ok(out.flush()?)
}

fn print_tls_instructions(
    running: &RunningNode,
    certificates: &Certificates,
    console: &Console,
    out: &mut impl Write,
) -> Result<()> {
    let (paint, Certificates { dir, ca, client, client_key, .. }) = (console.paint, certificates);
    if let Some((_, url)) = running.other_urls().find(|(protocol, _)| *protocol == Protocol::Nats) {
        let command = format!("nats sub ticks -s {url} --tlsca {ca}");
        writeln!(out, "  {}  {}", paint.command(&command), paint.faint("with a NATS client"))?;
    }
    let action = if certificates.are_new { "Created" } else { "Using the" };
    writeln!(
        out,
        "\n{action} certificates in {dir}, for localhost, 127.0.0.1 and ::1. To require client certificates:"
    )?;
    let serve = format!("dunlin dev --tls={dir} --tls-client-ca {ca}");
    writeln!(out, "  {}", paint.command(&serve))?;
    let sub = format!("dunlin sub ticks --client-cert {client} --client-key {client_key}");
    Ok(writeln!(out, "  {}", paint.command(&sub))?)
}

fn client_description(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Nats => "any NATS client",
        Protocol::Http => "curl, Prometheus",
        Protocol::Grpc => "any gRPC client: service dunlin.v1, reflection",
        _ => "",
    }
}

/// Returns the `--url` option with which a command reaches the node at `url`; empty if `url` is the default.
pub fn url_argument(url: &str) -> String {
    if url == URL_DEFAULT { String::new() } else { format!(" --url {url}") }
}
