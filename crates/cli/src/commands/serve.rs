//! The command `dunlin serve`, which runs a node.

use std::io::Write;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dunlin_server::cluster::{Cluster, ClusterError};

use crate::arguments::GlobalOptions;
use crate::config::{ConfigFlags, NodeConfig, RawConfig, ValueOrigin};
use crate::console::Console;
use crate::outcome::CommandRefusal;
use crate::running::{RunningNode, add_port_advice};
use crate::signals::{ReloadFlag, StopFlag};
use crate::telemetry::Telemetry;
use crate::workers::GRACE;

/// Arguments of `dunlin serve`, which runs a node.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
When the node is ready, it prints one line on standard output; log lines go to standard error:
  READY pid=4711 tcp=127.0.0.1:4220 unix=/run/dunlin.sock

Examples:
  dunlin serve --listen 127.0.0.1:0          any free port; READY shows it
  dunlin serve --config node.toml
  dunlin serve --data-dir /var/lib/dunlin    with durable topics
  dunlin serve --nats-listen 127.0.0.1:4222  with a listener for NATS clients
  dunlin serve --http-listen 127.0.0.1:8222  with topics, events, health checks, metrics and the dashboard over HTTP
  dunlin serve --grpc-listen 127.0.0.1:50051   with a listener for gRPC clients
  dunlin serve --tls-cert node.pem --tls-key node-key.pem
                                             with TLS on every TCP listener
  DUNLIN_RETENTION_BYTES=1GiB dunlin serve
  dunlin cluster init --data-dir /var/lib/dunlin
  dunlin serve --data-dir /var/lib/dunlin --cluster-listen 10.0.0.1:6222
                                             the first node of a cluster; `dunlin cluster token` prints a token for the next
  dunlin serve --data-dir /var/lib/dunlin --cluster-listen 10.0.0.2:6222 --join 10.0.0.1:6222 --token-file token

Ctrl-C or SIGTERM ends the node cleanly; a second one ends it at once. The node reads changed certificates and users
again within seconds, or at once after SIGHUP.")]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigFlags,
    /// End when standard input ends, which means that the parent process has ended
    #[arg(long, hide = true)]
    end_with_stdin: bool,
}

/// The interval at which the main thread checks for a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long a node may take to end: to detach its workers, hand over its leadership and topics, and store its data.
pub const EXIT_TIMEOUT: Duration = Duration::from_secs(GRACE.as_secs() + 10);

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let (stop, reload) = (StopFlag::on_signal()?, ReloadFlag::on_signal()?);
    stop.enforce_exit_within(EXIT_TIMEOUT);
    if arguments.end_with_stdin {
        stop.set_when_stdin_ends();
    }
    let (mut raw, warnings) = arguments.config.gather()?;
    if let Some(file) = &global.token_file
        && raw.get("cluster.token_file").origin == ValueOrigin::Default
    {
        raw.set_default("cluster.token_file", &file.to_string_lossy());
    }
    let running = match start_with(&raw, &warnings, &stop, console) {
        Err(error) if matches!(error.downcast_ref(), Some(ClusterError::JoinCancelled)) => return Ok(()),
        started => started?,
    };
    let mut out = std::io::stdout();
    writeln!(out, "{}", ready_line(&running))
        .and_then(|()| out.flush())
        .context("cannot write the READY line")?;
    let ended = wait_and_reload(&running, &stop, &reload);
    running.stop();
    ended
}

pub fn warn(warnings: &[String], console: &Console) -> Result<()> {
    for warning in warnings {
        writeln!(std::io::stderr(), "{} {warning}", console.errors.warning("warning:"))?;
    }
    Ok(())
}

/// Prints the warnings, then starts a node with the given configuration. Stops waiting for the start when `stop` is
/// set.
pub fn start_with(
    raw: &RawConfig,
    warnings: &[String],
    stop: &StopFlag,
    console: &Console,
) -> Result<RunningNode> {
    warn(warnings, console)?;
    let config = NodeConfig::try_from(raw)?;
    let telemetry = Telemetry::start(&config, console)?;
    Ok(RunningNode {
        telemetry: Some(telemetry),
        ..RunningNode::start(&config, stop).map_err(add_port_advice)?
    })
}

/// Waits until a signal asks the process to end.
pub fn wait(stop: &StopFlag) {
    while !stop.is_set() {
        thread::sleep(POLL_INTERVAL);
    }
}

/// Like [`wait`], but also makes the node read its users file and certificates again each time `reload` is set. Returns
/// an error if the node can no longer take part in its cluster.
pub fn wait_and_reload(running: &RunningNode, stop: &StopFlag, reload: &ReloadFlag) -> Result<()> {
    while !stop.is_set() {
        if let Some(why) = running.cluster.as_ref().and_then(Cluster::expelled) {
            return Err(CommandRefusal(why.to_owned()).into());
        }
        if let Some(why) = running.cluster.as_ref().and_then(Cluster::ended) {
            bail!(why);
        }
        if reload.take() {
            running.server.reload();
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Returns the READY line with the addresses of the listeners.
pub fn ready_line(running: &RunningNode) -> String {
    let mut line = format!("READY pid={}", std::process::id());
    for (protocol, address) in running.server.addresses() {
        line.push_str(&format!(" {protocol}={address}"));
    }
    for path in running.server.unix_paths() {
        line.push_str(&format!(" unix={}", path.display()));
    }
    if let Some(dashboard) = running.server.dashboard() {
        line.push_str(&format!(" dashboard={dashboard}"));
    }
    if let Some(cluster) = &running.cluster {
        line.push_str(&format!(" cluster={} node={}", cluster.address(), cluster.node()));
    }
    if running.server.has_tls() {
        line.push_str(" tls=on");
    }
    line
}
