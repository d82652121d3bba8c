//! The options of `dunlin sub --group`, which subscribes as a member of a group.

use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use dunlin_client::{Client, DeadLetterTarget, Group, GroupKind, GroupOptions, Member};
use dunlin_topic::{Start, SubscribeError};

use super::Arguments;
use crate::commands::owners::group_error;
use crate::commands::parse;
use crate::follow::RecordHandling;
use crate::outcome::CommandRefusal;
use crate::program::ExternalProgram;

/// Arguments of `dunlin sub` for subscribing as a member of a group.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Groups")]
pub struct GroupArguments {
    /// Group to join; its members share the topic's records, and each record goes to one member
    #[arg(long, value_name = "NAME", conflicts_with_all = ["on_gap", "registered"])]
    pub group: Option<String>,
    /// Claim each record until it is acknowledged; unacknowledged records are delivered again, to any member
    #[arg(long, requires = "group")]
    pub work: bool,
    /// Duration of a claim, which is renewed while COMMAND runs; applies only if this member creates the group
    /// [default: 30s]
    #[arg(long, value_name = "DURATION", value_parser = parse::positive_duration, requires = "work")]
    pub deadline: Option<Duration>,
    /// Attempts after which a record becomes a dead letter, 0 for no limit; applies only if this member creates the
    /// group [default: 5]
    #[arg(long, value_name = "COUNT", requires = "work")]
    pub attempts: Option<u32>,
    /// Subject for dead letters, or `drop` to delete them; applies only if this member creates the group
    /// [default: dead.TOPIC]
    #[arg(long, value_name = "SUBJECT", requires = "work")]
    pub dead_letters: Option<String>,
    /// Acknowledgement of records: auto (after the record is printed or COMMAND succeeds) or never (claims
    /// expire) [default: auto]
    #[arg(long, value_enum, value_name = "WHEN", hide_possible_values = true, requires = "work")]
    pub ack: Option<AckMode>,
    /// Pause before a record is delivered again after COMMAND failed [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, requires_all = ["work", "command"])]
    pub retry_after: Option<Duration>,
    /// Command to run for each record, with the payload as standard input; with --work, its success acknowledges
    /// the record
    #[arg(last = true, value_name = "COMMAND", requires = "group", conflicts_with = "format")]
    pub command: Vec<String>,
}

/// A value of option `--ack`, which decides whether `dunlin sub` acknowledges the records of a work group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AckMode {
    Auto,
    Never,
}

/// The number of attempts without `--attempts`. It equals the default of nodes and of the embedded API, but the
/// protocol requires the client to send a number.
const ATTEMPTS_DEFAULT: u32 = 5;
/// The default pause before a record whose command failed is delivered again.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

impl GroupArguments {
    pub fn record_handling(&self, topic: &str) -> RecordHandling {
        let last_attempt_note = match self.dead_letter_target().subject_for(topic) {
            Some(subject) => format!("moved to {subject}"),
            None => "dropped".to_owned(),
        };
        RecordHandling {
            attempts_max: self.attempts.unwrap_or(ATTEMPTS_DEFAULT),
            last_attempt_note,
            kind: self.kind(),
            acks: self.ack != Some(AckMode::Never),
            program: ExternalProgram::new(&self.command),
            retry_after: self.retry_after.unwrap_or(RETRY_AFTER_DEFAULT),
        }
    }

    fn kind(&self) -> GroupKind {
        if self.work { GroupKind::Work } else { GroupKind::Share }
    }

    fn dead_letter_target(&self) -> DeadLetterTarget {
        match self.dead_letters.as_deref() {
            None => DeadLetterTarget::Default,
            Some("drop") => DeadLetterTarget::Drop,
            Some(subject) => DeadLetterTarget::Subject(subject.to_owned()),
        }
    }
}

/// Joins the group `group` of the only topic in the arguments.
pub fn join(arguments: &Arguments, group: &str, client: &Client) -> Result<Member> {
    let [topic] = arguments.patterns.as_slice() else {
        return Err(CommandRefusal(
            "--group needs exactly one topic: give one name, without other patterns".to_owned(),
        )
        .into());
    };
    if topic.contains(['*', '>']) {
        return Err(group_error(client, topic, group));
    }
    if arguments.from == Some(Start::Snapshot) {
        let message = "--from snapshot cannot be used with --group: use --from earliest or latest";
        return Err(CommandRefusal(message.to_owned()).into());
    }
    let group_arguments = &arguments.group;
    let options = GroupOptions {
        member: arguments.name.clone(),
        kind: group_arguments.kind(),
        // By default, a work group starts at the oldest record, because records from before its first member are also
        // part of the work.
        start: arguments.from.unwrap_or(if arguments.group.work { Start::Earliest } else { Start::Latest }),
        claim: group_arguments.deadline,
        attempts_max: group_arguments.attempts.unwrap_or(ATTEMPTS_DEFAULT),
        dead_letters: group_arguments.dead_letter_target(),
        ..GroupOptions::default()
    };
    let member = client.join(Group { topic, name: group }, options).map_err(|error| match error {
        SubscribeError::NoTopic(_) => group_error(client, topic, group),
        other => other.into(),
    });
    member.with_context(|| format!("cannot join group {group} of {topic}"))
}
