//! The command `dunlin dev --nodes`, which runs a cluster of node processes on this machine.
//!
//! The standard input of each node process is a pipe from this process. When this process ends, even by a kill, the
//! pipes close, and the node processes then end too.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dunlin_server::ReservedAddress;
use dunlin_server::cluster::{ClusterClient, init};

use crate::config::keys::{ConfigKey, DEV_DEFAULTS};
use crate::config::{ConfigValue, RawConfig, ValueOrigin};
use crate::console::Console;
use crate::outcome::CommandRefusal;
use crate::signals::StopFlag;
use crate::table::TextTable;

/// How long a node process may take to end before it is killed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// The number to which a node's number is added: the cluster connections of node N use port `CLUSTER_PORT` + N.
const CLUSTER_PORT: u16 = 6221;
/// How long to wait at most until all nodes are voters.
const VOTERS_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval at which the command checks whether a node process has ended, and whether the command has to end.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A node process of the cluster. Dropping the value ends the process.
struct Member {
    child: Child,
    dir: PathBuf,
    /// The line that the process printed when its node was ready.
    ready: String,
}

impl Member {
    fn field(&self, name: &str) -> &str {
        let fields = self.ready.split_whitespace().filter_map(|field| field.split_once('='));
        fields.clone().find(|(key, _)| *key == name).map_or("–", |(_, value)| value)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // The node ends by itself when its standard input closes.
        drop(self.child.stdin.take());
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL / 5);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn run(count: u32, raw: &RawConfig, stop: &StopFlag, console: &Console) -> Result<()> {
    check(raw)?;
    let data_dir = raw.get("data_dir").text.clone();
    let temporary_dir = (data_dir == "off").then(temporary).transpose()?;
    let base = temporary_dir
        .as_ref()
        .map_or_else(|| PathBuf::from(&data_dir), |temporary_dir| temporary_dir.0.clone());
    let mut members: Vec<Member> = Vec::new();
    for number in 1..=count {
        let dir = base.join(format!("node-{number}"));
        let join_address = members.first().map(|first| first.field("cluster").to_owned());
        let member = start(number, &dir, raw, join_address.as_deref(), &base);
        members.push(member.with_context(|| format!("node {number} did not start"))?);
        if stop.is_set() {
            return Ok(());
        }
    }
    wait_for_voters(&members, stop);
    print_instructions(&members, console)?;
    while !stop.is_set() {
        if let Some(dead) = members.iter_mut().position(|member| !matches!(member.child.try_wait(), Ok(None)))
        {
            let member = members.remove(dead);
            writeln!(
                std::io::stderr(),
                "{} node {} has ended; {}",
                console.errors.warning("warning:"),
                member.field("node"),
                remaining_nodes_text(members.len(), count)
            )?;
            if members.is_empty() {
                bail!("all nodes have ended");
            }
        }
        stop.sleep(POLL_INTERVAL);
    }
    drop(members);
    let loss_note = if temporary_dir.is_some() { "; their records are lost" } else { "" };
    Ok(writeln!(std::io::stdout(), "\nstopped{loss_note}")?)
}

/// Describes whether the `left` remaining nodes of a cluster of `count` nodes can continue.
fn remaining_nodes_text(left: usize, count: u32) -> &'static str {
    match left * 2 > count as usize {
        true => "the other nodes continue",
        false => "the cluster has no majority until a node is back",
    }
}

/// A directory that is removed when the value is dropped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // If the removal fails, the operating system removes the temporary files later.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn temporary() -> Result<Temporary> {
    let dir = std::env::temp_dir().join(format!("dunlin-dev-{}", std::process::id()));
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(Temporary(dir))
}

fn start(
    number: u32,
    dir: &Path,
    raw: &RawConfig,
    join_address: Option<&str>,
    base: &Path,
) -> Result<Member> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program's own file")?);
    // The reservations last until the nodes open the addresses.
    let mut reserved = Vec::new();
    let cluster_listen = cluster_listen(number, raw, &mut reserved)?;
    command.args(["serve", "--end-with-stdin", "--cluster-listen", &cluster_listen.to_string()]);
    command.arg("--data-dir").arg(dir);
    if number == 1 && !has_cluster_data(base)? {
        init(dir, &cluster_listen.to_string())?;
    }
    command.args(raw.iter().filter_map(|(key, setting)| node_flag(key, setting, number, &mut reserved)));
    if let Some(join_address) = join_address
        && !dir.join("cluster").exists()
    {
        let client = ClusterClient::open(&base.join("node-1"))?;
        let file = dir.with_extension("token");
        std::fs::write(&file, client.token(Some(Duration::from_secs(60)), false)?.to_string())?;
        command.args(["--join", join_address, "--cluster-token-file"]).arg(file);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start the node's process")?;
    let out = child.stdout.take().context("cannot read the node's standard output")?;
    let mut member = Member { child, dir: dir.to_owned(), ready: String::new() };
    BufReader::new(out).read_line(&mut member.ready)?;
    if !member.ready.starts_with("READY ") {
        bail!("the node's first line is {:?} instead of READY", member.ready.trim());
    }
    let _ = std::fs::remove_file(dir.with_extension("token"));
    Ok(member)
}

/// Whether a directory in `base` contains the data of a cluster's node.
fn has_cluster_data(base: &Path) -> Result<bool> {
    let nodes = std::fs::read_dir(base).with_context(|| format!("cannot read {}", base.display()))?;
    Ok(nodes.flatten().any(|node| node.path().join("cluster").exists()))
}

/// Returns the command-line flag that passes one setting of `dunlin dev` to a node process; `None` if the process does
/// not receive the setting. Only the first node's listeners have fixed ports. Only the first node starts workers,
/// because the number of workers applies to the whole cluster.
fn node_flag(
    key: &ConfigKey,
    setting: &ConfigValue,
    number: u32,
    reserved: &mut Vec<ReservedAddress>,
) -> Option<String> {
    let (text, is_first) = (setting.text.as_str(), number == 1);
    let is_given = setting.origin != ValueOrigin::Default;
    let text = match key.name {
        "data_dir" | "cluster.listen" | "cluster.advertise" | "cluster.join" | "cluster.token_file" => {
            return None;
        }
        "unix" | "workers" if !is_first => "off".to_owned(),
        // The first node uses the default ports, unless another program uses them.
        name if is_listener_option(name) => match text.parse::<SocketAddr>() {
            Ok(address) if !is_first => SocketAddr::new(address.ip(), 0).to_string(),
            Ok(preferred) if !is_given => reserve_or_any_port(preferred, reserved).to_string(),
            _ => text.to_owned(),
        },
        _ if !is_given => return None,
        _ => text.to_owned(),
    };
    Some(format!("--{}={text}", key.flag()))
}

fn is_listener_option(name: &str) -> bool {
    name == "listen" || DEV_DEFAULTS.iter().any(|(option, _)| *option == name)
}

/// Returns an error if the configuration contains keys that `dev --nodes` sets itself to join the nodes.
fn check(raw: &RawConfig) -> Result<()> {
    for name in ["cluster.advertise", "cluster.join", "cluster.token_file"] {
        if let Some((key, setting)) = raw.iter().find(|(key, _)| key.name == name)
            && setting.origin != ValueOrigin::Default
        {
            let why = format!(
                "--{} cannot be used with --nodes: these nodes join each other by themselves",
                key.flag()
            );
            return Err(CommandRefusal(why).into());
        }
    }
    Ok(())
}

/// Returns the address for cluster connections. The first node uses the configured address; each other node uses the
/// configured host with a random port. Without a configured address, node N uses port `CLUSTER_PORT` + N on localhost,
/// or a random port if another program uses this port.
fn cluster_listen(number: u32, raw: &RawConfig, reserved: &mut Vec<ReservedAddress>) -> Result<SocketAddr> {
    let setting = raw.get("cluster.listen");
    if setting.origin == ValueOrigin::Default {
        let preferred = SocketAddr::from((Ipv4Addr::LOCALHOST, CLUSTER_PORT + number as u16));
        return Ok(reserve_or_any_port(preferred, reserved));
    }
    let address: SocketAddr =
        setting.text.parse().with_context(|| format!("--cluster-listen {}", setting.text))?;
    Ok(if number == 1 { address } else { SocketAddr::new(address.ip(), 0) })
}

/// Returns `preferred` and adds it to `reserved`. If another program uses the port, returns port 0 on the same host
/// instead: a random port.
fn reserve_or_any_port(preferred: SocketAddr, reserved: &mut Vec<ReservedAddress>) -> SocketAddr {
    match ReservedAddress::new(preferred) {
        Ok(address) => {
            reserved.push(address);
            preferred
        }
        Err(_) => SocketAddr::new(preferred.ip(), 0),
    }
}

fn wait_for_voters(members: &[Member], stop: &StopFlag) {
    let Ok(client) = ClusterClient::open(&members[0].dir) else { return };
    let deadline = Instant::now() + VOTERS_TIMEOUT;
    while Instant::now() < deadline && !stop.is_set() {
        let survey = client.survey();
        if survey.iter().filter_map(|node| node.status.as_ref().ok()).any(|s| s.voters.len() >= members.len())
        {
            return;
        }
        stop.sleep(POLL_INTERVAL);
    }
}

fn print_instructions(members: &[Member], console: &Console) -> Result<()> {
    let paint = console.paint;
    let mut out = console.out();
    writeln!(
        out,
        "{} {}: a cluster of {} nodes",
        paint.good("dunlin"),
        env!("CARGO_PKG_VERSION"),
        members.len()
    )?;
    let mut table = TextTable::new(&["NODE", "PID", "DUNLIN", "NATS", "HTTP", "GRPC", "CLUSTER"]);
    for member in members {
        table.row(
            ["node", "pid", "tcp", "nats", "http", "grpc", "cluster"]
                .map(|name| member.field(name).to_owned()),
        );
    }
    table.write(&mut out, paint)?;
    if let Some(dashboard) =
        members.iter().map(|member| member.field("dashboard")).find(|field| *field != "–")
    {
        writeln!(out, "\n{}  {}", paint.strong(dashboard), paint.good("the dashboard, in a browser"))?;
    }
    let dir = members[0].dir.display();
    let url = |member: &Member| format!("--url dunlin://{}", member.field("tcp"));
    let (first, last) = (url(&members[0]), url(&members[members.len() - 1]));
    writeln!(out, "\nTry, in other terminals:")?;
    for (command, about) in [
        (format!("dunlin sub ticks {first}"), "subscribe at one node"),
        (format!("dunlin pub ticks hello {last}"), "publish at another node"),
        (format!("dunlin top {first}"), "watch the cluster in the terminal"),
        (format!("dunlin cluster status --data-dir {dir}"), "show the leader and the followers"),
        (format!("dunlin cluster transfer --data-dir {dir}"), "make another node the leader"),
        (format!("kill -9 {}", members[0].child.id()), "kill a node; the others continue"),
    ] {
        writeln!(out, "  {}  {}", paint.command(&command), paint.faint(about))?;
    }
    writeln!(out, "\nCtrl-C stops the nodes.")?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys;

    fn flags(settings: &[(&str, &str)], number: u32) -> Vec<String> {
        let mut raw = RawConfig::dev_defaults();
        for (name, text) in settings {
            raw.set(keys::find(name).unwrap(), (*text).to_owned(), ValueOrigin::Flag((*name).to_owned()));
        }
        let mut reserved = Vec::new();
        raw.iter().filter_map(|(key, setting)| node_flag(key, setting, number, &mut reserved)).collect()
    }

    #[test]
    fn dunlin_dev_reports_whether_remaining_nodes_are_a_majority() {
        let can_continue = |left, count| remaining_nodes_text(left, count).starts_with("the other nodes");
        assert!(can_continue(2, 3) && can_continue(3, 5) && can_continue(3, 4));
        assert!(!can_continue(1, 3) && !can_continue(2, 5) && !can_continue(1, 2) && !can_continue(2, 4));
    }

    #[test]
    fn only_node_1_of_dunlin_dev_uses_the_given_cluster_address() {
        let mut raw = RawConfig::dev_defaults();
        let mut set = |name: &str, text: &str| {
            raw.set(keys::find(name).unwrap(), text.to_owned(), ValueOrigin::Flag(name.to_owned()));
            raw.clone()
        };
        let config = set("cluster.listen", "127.0.0.1:7001");
        let listen = |number, raw: &RawConfig| cluster_listen(number, raw, &mut Vec::new());
        assert_eq!(listen(1, &config).unwrap().to_string(), "127.0.0.1:7001");
        assert_eq!(listen(2, &config).unwrap().to_string(), "127.0.0.1:0");
        assert!(check(&config).is_ok());
        assert!(listen(1, &set("cluster.listen", "7001")).is_err());
        assert!(check(&set("cluster.join", "127.0.0.1:1")).is_err());
    }

    #[test]
    fn only_the_first_dev_node_uses_the_given_ports_and_workers() {
        let settings = [
            ("nats.listen", "off"),
            ("http.listen", "127.0.0.1:1"),
            ("retention.records", "5"),
            ("workers", "true"),
            ("data_dir", "/somewhere"),
        ];
        let (first, second) = (flags(&settings, 1), flags(&settings, 2));
        for flag in ["--nats-listen=off", "--retention-records=5"] {
            assert!(
                [&first, &second].iter().all(|all| all.contains(&flag.to_owned())),
                "{first:?} {second:?}"
            );
        }
        assert!(first.contains(&"--http-listen=127.0.0.1:1".to_owned()), "{first:?}");
        assert!(first.contains(&"--workers=true".to_owned()), "{first:?}");
        for flag in ["--http-listen=127.0.0.1:0", "--listen=127.0.0.1:0", "--workers=off"] {
            assert!(second.contains(&flag.to_owned()), "{second:?}");
        }
        assert!(!first.iter().any(|flag| flag.starts_with("--data-dir")), "each has its own: {first:?}");
    }
}
