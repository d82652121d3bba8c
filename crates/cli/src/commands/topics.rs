//! The command `dunlin topics`, which lists, creates, deletes, moves and describes topics.

mod create;
mod describe;
mod owner;

use std::io::Write;

use anyhow::{Context, Result};
use dunlin_client::{CallError, Client, KvError, TopicSummary};
use dunlin_wire::ErrorCode;
use serde_json::json;

use crate::arguments::GlobalOptions;
use crate::commands::parse::node_number;
use crate::connect::connect;
use crate::console::{Console, format_bytes, grouped};
use crate::outcome::ErrorWithAdvice;
use crate::table::TextTable;
use owner::Owner;

/// The text for a topic that the node found on disk, but could not open. `dunlin topics describe` prints the reason.
const NOT_OPENED: &str = "not opened";

/// Arguments of `dunlin topics`, which lists, creates, deletes and moves topics.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// List topics
    #[command(visible_alias = "ls")]
    List {
        /// Pattern that the names must match [default: all topics]
        #[arg(default_value = "", hide_default_value = true)]
        pattern: String,
    },
    /// Create a topic; the first publish also creates one, with the node's defaults
    #[command(after_help = create::EXAMPLES)]
    Create(create::Arguments),
    /// Delete topics with all their records; their subscribers receive a notice
    #[command(visible_alias = "rm")]
    Delete {
        /// Topics to delete
        #[arg(required = true, value_name = "TOPIC")]
        names: Vec<String>,
    },
    /// Move a topic to another node of the cluster, which becomes its owner; subscribers continue
    Move {
        /// Topic to move
        name: String,
        /// Number of the new owner, as `dunlin cluster status` shows it
        #[arg(value_parser = node_number)]
        node: u64,
    },
    /// Show a topic's configuration, logs, slowest subscribers and groups
    Describe {
        /// Topics to describe
        #[arg(required = true, value_name = "TOPIC")]
        names: Vec<String>,
    },
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let client = connect(global, "dunlin topics")?;
    match &arguments.subcommand {
        Subcommand::List { pattern } => list(&client, pattern, console),
        Subcommand::Create(create) => create::run(create, &client, console),
        Subcommand::Delete { names } => {
            for name in names {
                let deleted = client.delete_topic(name).map_err(no_topic_error);
                deleted.with_context(|| format!("cannot delete topic {name}"))?;
                print_done("deleted", name, console)?;
            }
            Ok(())
        }
        Subcommand::Move { name, node } => {
            let moved_to = client.move_topic(name, *node).map_err(move_error);
            let epoch = moved_to.with_context(|| format!("cannot move topic {name}"))?;
            print_moved(name, *node, epoch, console)
        }
        Subcommand::Describe { names } => {
            for name in names {
                let topic = client.describe_topic(name).map_err(no_topic_error);
                let topic = topic.with_context(|| format!("cannot describe topic {name}"))?;
                describe::write(&topic, console)?;
            }
            Ok(())
        }
    }
}

/// Replaces the advice in an error for an unknown topic. The general advice for this error is to create the topic, but
/// the command needs a topic that exists.
fn no_topic_error(error: CallError) -> anyhow::Error {
    match error {
        CallError::Refused(refused) if refused.code == ErrorCode::NoTopic => no_such_topic(refused.code),
        other => other.into(),
    }
}

fn no_such_topic(code: ErrorCode) -> anyhow::Error {
    let advice = "`dunlin topics list` shows the existing topics.".to_owned();
    ErrorWithAdvice { code, message: format!("{code}: no topic has this name"), advice }.into()
}

/// Converts the error for a topic that cannot be moved. The general advice for the error code, such as to correct the
/// topic's configuration, does not help here: the cause is the topic itself or the state of a node.
fn move_error(error: KvError) -> anyhow::Error {
    match error {
        KvError::Refused(refused) if refused.code == ErrorCode::NoTopic => no_such_topic(refused.code),
        KvError::Refused(refused)
            if matches!(refused.code, ErrorCode::TopicConfig | ErrorCode::OwnerAway) =>
        {
            let advice = "`dunlin cluster status` shows the nodes and their states.".to_owned();
            ErrorWithAdvice { code: refused.code, message: refused.text, advice }.into()
        }
        other => other.into(),
    }
}

/// Prints what was done on standard error, or with `--json` as an object on standard output.
fn print_done(what: &str, topic: &str, console: &Console) -> Result<()> {
    if console.json {
        return Ok(writeln!(std::io::stdout(), "{}", json!({"topic": topic, "done": what}))?);
    }
    Ok(writeln!(std::io::stderr(), "{} {topic}", console.errors.good(what))?)
}

fn print_moved(topic: &str, node: u64, epoch: u32, console: &Console) -> Result<()> {
    if console.json {
        let object = json!({"topic": topic, "done": "moved", "node": node, "epoch": epoch});
        return Ok(writeln!(std::io::stdout(), "{object}")?);
    }
    let done = console.errors.good("moved");
    Ok(writeln!(std::io::stderr(), "{done} {topic} to node {node}, epoch {epoch}")?)
}

fn list(client: &Client, pattern: &str, console: &Console) -> Result<()> {
    let topics = client.topics(pattern)?;
    let details = TopicDetails::fetch(client, &topics);
    let mut out = console.out();
    if console.json {
        topics.iter().zip(&details).try_for_each(|(topic, details)| {
            writeln!(out, "{}", summary_object(topic, &details.kind, details.owner.as_ref()))
        })?;
        return Ok(out.flush()?);
    }
    let has_owners = details.iter().any(|details| details.owner.is_some());
    let mut titles = vec![
        "TOPIC",
        "SUBJECTS",
        "RECORDS",
        "RETAINED BYTES",
        "APPENDED",
        "SUBSCRIBERS",
        "PARTITIONS",
        "KIND",
    ];
    if has_owners {
        titles.push("OWNER");
    }
    let mut table = TextTable::new(&titles);
    for (topic, details) in topics.iter().zip(&details) {
        let mut row = vec![
            topic.name.clone(),
            topic.pattern.clone(),
            topic.records.map_or_else(unknown, grouped),
            topic.bytes.map_or_else(unknown, format_bytes),
            topic.appended.map_or_else(unknown, grouped),
            topic.subscribers.map_or_else(unknown, |subscribers| grouped(subscribers.into())),
            grouped(topic.partitions.into()),
            details.kind.join(", "),
        ];
        if has_owners {
            row.push(details.owner.as_ref().map_or_else(String::new, Owner::short_text));
        }
        table.row(row);
    }
    table.write(&mut out, console.paint)?;
    Ok(out.flush()?)
}

/// The text for a value that is unknown because a node does not respond.
fn unknown() -> String {
    "unknown".to_owned()
}

/// Values that the list of topics shows, and that must be read for each topic separately. The values are empty if the
/// topic was deleted before they were read.
#[derive(Default)]
struct TopicDetails {
    kind: Vec<String>,
    owner: Option<Owner>,
}

impl TopicDetails {
    fn fetch(client: &Client, topics: &[TopicSummary]) -> Vec<TopicDetails> {
        let is_open = |topic: &&TopicSummary| topic.partitions > 0;
        let names: Vec<&str> = topics.iter().filter(is_open).map(|topic| topic.name.as_str()).collect();
        let mut settings = client.settings_of_topics(&names).into_iter();
        let of = |topic: &TopicSummary| {
            if !is_open(&topic) {
                return TopicDetails { kind: vec![NOT_OPENED.to_owned()], owner: None };
            }
            let settings = settings.next().and_then(Result::ok).unwrap_or_default();
            TopicDetails { kind: kind(topic, &settings), owner: Owner::of(&settings) }
        };
        topics.iter().map(of).collect()
    }
}

/// The properties of a topic: whether it is reliable, whether it is durable, and the kind of its state.
fn kind(topic: &TopicSummary, settings: &[(String, String)]) -> Vec<String> {
    let is_set = |name: &str| settings.iter().find(|(other, _)| other == name).map(|(_, value)| value);
    let reliable = topic.reliable.then(|| "reliable".to_owned());
    let durable = is_set("durable").map(|_| "durable".to_owned());
    reliable
        .into_iter()
        .chain(durable)
        .chain(is_set("reducer").map(|reducer| format!("state {reducer}")))
        .collect()
}

fn summary_object(topic: &TopicSummary, kind: &[String], owner: Option<&Owner>) -> serde_json::Value {
    json!({
        "owner": owner.map(Owner::object),
        "topic": topic.name, "pattern": topic.pattern, "partitions": topic.partitions, "reliable": topic.reliable,
        "kind": kind,
        "records": topic.records, "bytes": topic.bytes, "appended": topic.appended, "subscribers": topic.subscribers,
    })
}
