//! `dev --nodes`: a cluster on this machine, each of its nodes a process of its own.
//!
//! The processes end when this one does, however it ends: their standard input is a pipe from here.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dunlin_server::Server;
use dunlin_server::cluster::ClusterClient;

use crate::config::RawConfig;
use crate::config::keys::DEV_DEFAULTS;
use crate::console::Console;
use crate::signals::Stop;
use crate::table::Table;

/// How long a process has to end by itself.
const END_WITHIN: Duration = Duration::from_secs(10);
/// How long the nodes may take until all have a vote.
const VOTES_WITHIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);

/// One of them.
struct Member {
    child: Child,
    dir: PathBuf,
    /// What its READY line said.
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
        // The end of its input asks it to end.
        drop(self.child.stdin.take());
        let deadline = Instant::now() + END_WITHIN;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(LOOK / 5);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn run(count: u32, raw: &RawConfig, stop: &Stop, console: &Console) -> Result<()> {
    let kept = raw.get("data_dir").text.clone();
    let made = (kept == "off").then(temporary).transpose()?;
    let base = made.as_ref().map_or_else(|| PathBuf::from(&kept), |made| made.0.clone());
    let mut members: Vec<Member> = Vec::new();
    for number in 1..=count {
        let dir = base.join(format!("node-{number}"));
        let through = members.first().map(|first| first.field("cluster").to_owned());
        let member = start(number, &dir, raw, through.as_deref(), &base);
        members.push(member.with_context(|| format!("node {number} did not start"))?);
        if stop.is_set() {
            return Ok(());
        }
    }
    wait_for_votes(&members, stop);
    greet(&members, console)?;
    while !stop.is_set() {
        if let Some(dead) = members.iter_mut().position(|member| !matches!(member.child.try_wait(), Ok(None)))
        {
            let member = members.remove(dead);
            writeln!(
                std::io::stderr(),
                "{} node {} has ended; the others go on",
                console.errors.warning("warning:"),
                member.field("node")
            )?;
            if members.is_empty() {
                bail!("no node is left");
            }
        }
        stop.sleep(LOOK);
    }
    drop(members);
    let what = if made.is_some() { "; what they held is gone" } else { "" };
    Ok(writeln!(std::io::stdout(), "\nstopped{what}")?)
}

/// A directory that goes when this is dropped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // What is left is the system's to clean.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn temporary() -> Result<Temporary> {
    let dir = std::env::temp_dir().join(format!("dunlin-dev-{}", std::process::id()));
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(Temporary(dir))
}

fn start(number: u32, dir: &Path, raw: &RawConfig, through: Option<&str>, base: &Path) -> Result<Member> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program's own file")?);
    command.args(["serve", "--end-with-stdin", "--cluster-listen", &cluster_listen(number)]);
    command.arg("--data-dir").arg(dir);
    // Whoever knows the usual ports finds the first node there.
    let usual = [("listen", raw.get("listen").text.as_str())];
    for (name, text) in usual.into_iter().chain(DEV_DEFAULTS.iter().copied()) {
        let is_free = number == 1 && text.parse().is_ok_and(Server::is_free);
        let flag = format!("--{}", name.replace(['.', '_'], "-"));
        command.arg(flag).arg(if is_free { text } else { "127.0.0.1:0" });
    }
    if let Some(through) = through
        && !dir.join("cluster").exists()
    {
        let client = ClusterClient::open(&base.join("node-1"))?;
        let file = dir.with_extension("token");
        std::fs::write(&file, client.token(Some(Duration::from_secs(60)), false)?.to_string())?;
        command.args(["--join", through, "--cluster-token-file"]).arg(file);
    }
    if number == 1 {
        // Workers are one node's: the bounds are for all nodes together, as whoever typed them expects.
        for name in ["workers", "scale"] {
            command.arg(format!("--{name}={}", raw.get(name).text));
        }
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start its process")?;
    let out = child.stdout.take().context("its output")?;
    let mut member = Member { child, dir: dir.to_owned(), ready: String::new() };
    BufReader::new(out).read_line(&mut member.ready)?;
    if !member.ready.starts_with("READY ") {
        bail!("it said {:?}", member.ready.trim());
    }
    let _ = std::fs::remove_file(dir.with_extension("token"));
    Ok(member)
}

fn cluster_listen(number: u32) -> String {
    let usual = format!("127.0.0.1:{}", 6221 + number);
    let is_free = usual.parse().is_ok_and(Server::is_free);
    if is_free { usual } else { "127.0.0.1:0".to_owned() }
}

fn wait_for_votes(members: &[Member], stop: &Stop) {
    let Ok(client) = ClusterClient::open(&members[0].dir) else { return };
    let deadline = Instant::now() + VOTES_WITHIN;
    while Instant::now() < deadline && !stop.is_set() {
        let survey = client.survey();
        if survey.iter().filter_map(|node| node.status.as_ref().ok()).any(|s| s.voters.len() >= members.len())
        {
            return;
        }
        stop.sleep(LOOK);
    }
}

fn greet(members: &[Member], console: &Console) -> Result<()> {
    let paint = console.paint;
    let mut out = console.out();
    writeln!(out, "{} {}: a cluster of {}", paint.good("dunlin"), env!("CARGO_PKG_VERSION"), members.len())?;
    let mut table = Table::new(&["NODE", "PID", "DUNLIN", "NATS", "HTTP", "GRPC", "CLUSTER"]);
    for member in members {
        table.row(
            ["node", "pid", "tcp", "nats", "http", "grpc", "cluster"]
                .map(|name| member.field(name).to_owned()),
        );
    }
    table.write(&mut out, paint)?;
    let dir = members[0].dir.display();
    let url = |member: &Member| format!("--url dunlin://{}", member.field("tcp"));
    let (first, last) = (url(&members[0]), url(&members[members.len() - 1]));
    writeln!(out, "\nTry, in other terminals:")?;
    for (command, about) in [
        (format!("dunlin sub ticks {first}"), "read at one node"),
        (format!("dunlin pub ticks hello {last}"), "what is published at another"),
        (format!("dunlin cluster status --data-dir {dir}"), "who leads, and who follows"),
        (format!("dunlin cluster transfer --data-dir {dir}"), "another leads"),
        (format!("kill -9 {}", members[0].child.id()), "the others go on"),
    ] {
        writeln!(out, "  {}  {}", paint.command(&command), paint.faint(about))?;
    }
    writeln!(out, "\nCtrl-C stops them.")?;
    Ok(out.flush()?)
}
