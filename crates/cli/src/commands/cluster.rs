//! The command `dunlin cluster`, which manages a cluster. It authenticates itself with the certificates in the data
//! directory of one of the cluster's nodes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use dunlin_server::cluster::{ClusterClient, ClusterError, NodeStatus, NodeSurvey, back_up, init, restore};
use dunlin_wire::ErrorCode;
use serde_json::json;

use crate::commands::parse::{node_number, ttl};
use crate::console::Console;
use crate::outcome::{CommandRefusal, ErrorWithAdvice};
use crate::table::TextTable;

/// Arguments of `dunlin cluster`, which manages a cluster.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  dunlin cluster init --data-dir /var/lib/dunlin       create a cluster
  dunlin cluster status --data-dir /var/lib/dunlin
  dunlin cluster add --data-dir /var/lib/dunlin        show how nodes join
  dunlin cluster remove 3 --data-dir /var/lib/dunlin
  dunlin cluster backup keys.backup --data-dir /var/lib/dunlin

Any user who can read a node's data directory can manage the cluster: the directory contains its certificates.")]
pub struct Arguments {
    #[command(subcommand)]
    subcommand: Subcommand,
    /// Data directory of any node of the cluster; the node need not run or be the leader
    #[arg(long, global = true, env = "DUNLIN_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Create a cluster with one node, in an empty directory or in a single node's data directory
    Init {
        /// Address at which other nodes reach this node; options of `dunlin serve` may change it later
        #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6222")]
        address: String,
    },
    /// Show the role, progress and state of each node
    Status,
    /// Create a join token and print the commands for a new node
    Add {
        /// Time to live of the token
        #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = ttl)]
        ttl: Duration,
    },
    /// Print a join token; without --reusable, only one node can join with it
    Token {
        /// Time to live of the token; `off` is no limit
        #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = ttl_or_off)]
        ttl: TokenTtl,
        /// Allow the token for any number of nodes
        #[arg(long)]
        reusable: bool,
    },
    /// Remove a node permanently; its number is never used again
    Remove {
        /// Number of the node, as `dunlin cluster status` shows it
        #[arg(value_parser = node_number)]
        node: u64,
    },
    /// Make another node the leader
    Transfer {
        /// Number of the node that becomes leader [default: any node that can lead]
        #[arg(value_parser = node_number)]
        node: Option<u64>,
    },
    /// Write a backup of all keys and tasks to a file; records of topics are not included
    Backup {
        /// File to create
        file: PathBuf,
    },
    /// Create the first node of a new cluster from a backup, in an empty data directory
    Restore {
        /// File that `dunlin cluster backup` wrote
        file: PathBuf,
        /// Address at which other nodes reach this node; options of `dunlin serve` may change it later
        #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6222")]
        address: String,
    },
}

pub fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    let Some(dir) = &arguments.data_dir else {
        bail!(
            "no data directory: set --data-dir or DUNLIN_DATA_DIR to the data directory of a node of the cluster"
        );
    };
    run_subcommand(&arguments.subcommand, dir, console).map_err(|error| {
        match error.downcast::<ClusterError>() {
            Ok(ClusterError::Refused(why)) => CommandRefusal(why).into(),
            Ok(error @ ClusterError::NoCluster(_)) => {
                let code = ErrorCode::NoCluster;
                let advice = code.row().map_or_else(String::new, |row| row.advice.to_owned());
                ErrorWithAdvice { code, message: error.to_string(), advice }.into()
            }
            Ok(error) => error.into(),
            Err(error) => error,
        }
    })
}

fn run_subcommand(subcommand: &Subcommand, dir: &Path, console: &Console) -> Result<()> {
    match subcommand {
        Subcommand::Init { address } => {
            let cluster = init(dir, address)?;
            let text = format!(
                "{} is the first node of the new cluster {cluster}. Start it:\n  dunlin serve --data-dir {} --cluster-listen {address}",
                dir.display(),
                dir.display()
            );
            print_result(console, &json!({"cluster": cluster, "data_dir": dir.to_string_lossy()}), &text)
        }
        Subcommand::Status => status(&ClusterClient::open(dir)?, console),
        Subcommand::Add { ttl } => add(&ClusterClient::open(dir)?, *ttl, console),
        Subcommand::Token { ttl, reusable } => {
            let token = ClusterClient::open(dir)?.token(ttl.0, *reusable)?;
            // The output is only the token and a line break, so that it can be redirected to a file.
            Ok(writeln!(std::io::stdout(), "{token}")?)
        }
        Subcommand::Remove { node } => {
            ClusterClient::open(dir)?.remove(*node)?;
            print_result(console, &json!({"removed": node}), &format!("node {node} is removed"))
        }
        Subcommand::Transfer { node } => {
            let leader = ClusterClient::open(dir)?.transfer(*node)?;
            print_result(console, &json!({"leader": leader}), &format!("node {leader} is the leader"))
        }
        Subcommand::Backup { file } => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let revision = back_up(&ClusterClient::open(dir)?, file, now.as_millis() as u64)?;
            let text = format!("wrote {}: all keys at revision {revision}, and all tasks", file.display());
            print_result(console, &json!({"file": file.to_string_lossy(), "revision": revision}), &text)
        }
        Subcommand::Restore { file, address } => {
            let header = restore(file, dir, address)?;
            let text = format!(
                "{} is the first node of a new cluster, with the keys and tasks of cluster {}. Start it:\n  dunlin serve --data-dir {} --cluster-listen {address}",
                dir.display(),
                header.cluster,
                dir.display()
            );
            print_result(
                console,
                &json!({"data_dir": dir.to_string_lossy(), "from": header.cluster, "made_ms": header.made_ms}),
                &text,
            )
        }
    }
}

/// A token's time to live; `None` for no limit.
#[derive(Debug, Clone, Copy)]
struct TokenTtl(Option<Duration>);

fn ttl_or_off(text: &str) -> Result<TokenTtl, String> {
    if text == "off" { Ok(TokenTtl(None)) } else { ttl(text).map(|ttl| TokenTtl(Some(ttl))) }
}

fn print_result(console: &Console, json: &serde_json::Value, text: &str) -> Result<()> {
    let mut out = console.out();
    if console.json {
        writeln!(out, "{json}")?
    } else {
        writeln!(out, "{text}")?
    }
    Ok(out.flush()?)
}

fn add(client: &ClusterClient, ttl: Duration, console: &Console) -> Result<()> {
    let token = client.token(Some(ttl), false)?;
    let address = client.address();
    if console.json {
        return print_result(console, &json!({"token": token.to_string(), "join": address}), "");
    }
    let paint = console.paint;
    let mut out = console.out();
    writeln!(out, "On the new node, with an empty data directory:\n")?;
    writeln!(out, "  {}", paint.command(&format!("echo {token} > token")))?;
    let serve =
        format!("dunlin serve --data-dir DIR --cluster-listen HOST:6222 --join {address} --token-file token");
    writeln!(out, "  {}", paint.command(&serve))?;
    let ttl = humantime::format_duration(ttl);
    writeln!(
        out,
        "\nThe token is valid for one node, and for {ttl}. The node is a learner until it has caught up, then a voter."
    )?;
    Ok(out.flush()?)
}

/// Returns a node's role, according to the nodes that respond.
fn role(surveyed: &NodeSurvey, all: &[NodeSurvey]) -> &'static str {
    let statuses = || all.iter().filter_map(|other| other.status.as_ref().ok());
    let newest = statuses().max_by_key(|status| (status.term, status.applied));
    let Some(newest) = newest else { return "unknown" };
    let record = newest.nodes.iter().find(|record| record.node == surveyed.node);
    if record.is_some_and(|record| record.removed.is_some()) {
        "removed"
    } else if newest.leader == Some(surveyed.node) {
        "leader"
    } else if newest.voters.contains(&surveyed.node) {
        "follower"
    } else if newest.learners.contains(&surveyed.node) {
        "learner"
    } else {
        "joining"
    }
}

fn status(client: &ClusterClient, console: &Console) -> Result<()> {
    let all = client.survey();
    print_status(client, &all, console)?;
    if all.iter().all(|surveyed| surveyed.status.is_err()) {
        bail!("no node of the cluster responds");
    }
    Ok(())
}

fn print_status(client: &ClusterClient, all: &[NodeSurvey], console: &Console) -> Result<()> {
    let mut out = console.out();
    if console.json {
        for surveyed in all {
            writeln!(out, "{}", node_object(client, surveyed, all))?;
        }
        return Ok(out.flush()?);
    }
    let paint = console.paint;
    writeln!(out, "cluster {}", paint.strong(client.cluster()))?;
    let mut table = TextTable::new(&[
        "NODE", "ADDRESS", "ROLE", "TERM", "LOG", "APPLIED", "REVISION", "RELEASE", "STATE",
    ]);
    for surveyed in all {
        let number = |of: fn(&NodeStatus) -> u64| {
            surveyed.status.as_ref().map_or("–".to_owned(), |status| of(status).to_string())
        };
        let state = match &surveyed.status {
            Ok(status) => status.missing.clone().unwrap_or_else(|| "ready".to_owned()),
            Err(why) => format!("does not respond: {why}"),
        };
        table.row([
            surveyed.node.to_string(),
            surveyed.address.clone(),
            role(surveyed, all).to_owned(),
            number(|status| status.term),
            number(|status| status.last),
            number(|status| status.applied),
            number(|status| status.revision),
            surveyed.status.as_ref().map_or("–".to_owned(), |status| status.release.clone()),
            state,
        ]);
    }
    table.write(&mut out, paint)?;
    Ok(out.flush()?)
}

fn node_object(client: &ClusterClient, surveyed: &NodeSurvey, all: &[NodeSurvey]) -> serde_json::Value {
    let mut object = json!({
        "cluster": client.cluster(),
        "node": surveyed.node,
        "address": surveyed.address,
        "role": role(surveyed, all),
    });
    match &surveyed.status {
        Err(why) => object["error"] = json!(why),
        Ok(status) => {
            let listeners = status
                .nodes
                .iter()
                .find(|record| record.node == surveyed.node)
                .map(|record| &record.listeners);
            for (name, value) in [
                ("leader", json!(status.leader)),
                ("term", json!(status.term)),
                ("last", json!(status.last)),
                ("applied", json!(status.applied)),
                ("snapshot", json!(status.snapshot)),
                ("revision", json!(status.revision)),
                ("release", json!(status.release)),
                ("voters", json!(status.voters)),
                ("learners", json!(status.learners)),
                ("listeners", json!(listeners)),
                ("ready", json!(status.missing.is_none())),
                ("missing", json!(status.missing)),
                ("elections_us", json!(status.elections_us)),
            ] {
                object[name] = value;
            }
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use dunlin_server::cluster::NodeRecord;

    use super::*;

    fn record(node: u64, removed: Option<&str>) -> NodeRecord {
        let record = json!({"node": node, "address": "", "release": "", "listeners": {}, "removed": removed});
        serde_json::from_value(record).expect("a record")
    }

    fn status(node: u64, leader: Option<u64>, nodes: Vec<NodeRecord>) -> NodeSurvey {
        let status = NodeStatus {
            cluster: String::new(),
            node,
            release: String::new(),
            leader,
            term: 1,
            last: 1,
            applied: nodes.len() as u64,
            snapshot: 0,
            revision: 0,
            shards: 1,
            voters: vec![1, 2],
            learners: Vec::new(),
            nodes,
            missing: None,
            elections_us: Vec::new(),
        };
        NodeSurvey { node, address: String::new(), status: Ok(status) }
    }

    /// A removed node that still runs must not appear as "joining".
    #[test]
    fn removed_node_is_not_reported_as_joining() {
        let nodes = || vec![record(1, None), record(2, None), record(3, Some("by hand"))];
        let all = [status(1, Some(1), nodes()), status(3, Some(1), Vec::new()), status(4, None, Vec::new())];
        let roles: Vec<&str> = all.iter().map(|surveyed| role(surveyed, &all)).collect();
        assert_eq!(roles, ["leader", "removed", "joining"]);
    }
}
