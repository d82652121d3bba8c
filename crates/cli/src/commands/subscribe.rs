//! The command `dunlin sub`, which prints records, and reports which records are missing.

mod group;

use std::io::Write;
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin_client::Client;
use dunlin_topic::{OnGap, Start, Subscribe, SubscribeError, SubscribeOptions};

use crate::arguments::GlobalOptions;
use crate::commands::owners::no_topic_error;
use crate::commands::parse;
use crate::connect::{connect, connect_one_by_one, connect_slow};
use crate::console::Console;
use crate::follow::{FollowOutput, MemberLoop, StopRules};
use crate::format::{EventPrinter, Format, Interpreters};
use crate::program::ExternalProgram;
use crate::signals::StopFlag;

/// Arguments of `dunlin sub`, which subscribes to subjects.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin sub ticks                               records from now on
  dunlin sub 'orders.>' 'stock.*.eu'             several patterns with wildcards
  dunlin sub ticks --from earliest --count 10    the ten oldest retained records
  dunlin sub ticks --from 1-1042                 records after position 1-1042
  dunlin sub ticks --from 5m                     the last five minutes
  dunlin sub ticks --sleep 1ms --on-gap newest   simulate a slow subscriber
  dunlin sub ticks --format '{time} {subject} {key} {payload}'
  dunlin sub prices --from snapshot              the state, then its changes
  dunlin sub prices --conflate --sleep 1s        the merged changes, once a second
  dunlin sub files --format raw --count 1 > cat.jpg
  dunlin sub jobs --group crew                   each record to one member
  dunlin sub jobs --group crew --work -- ./job   retry until ./job succeeds

Output, one line each (--format text):
  1042 tick                                      record: sequence number and payload
  LAGGING  behind 524,288 of 1,048,576 retained  more than half of the records are unread
  GAP      40,211 … 1,311,873  (1,271,663 records)   now at 1,311,874
                                                 range of the missed records, and the next one
  EPOCH    3 → 4                                 the log continues in a new epoch
  STATE    at 7-1042: 3 values                   the state, one entry per line; then its changes, such as `set` and `remove`

Fields of a template: {subject} {topic} {partition} {seq} {epoch} {position} {payload} {key}
{headers} {time} {event_time} {reply} {attempt}. With raw or a template, notices go to standard error.

COMMAND reads the payload from standard input. Its environment has DUNLIN_SUBJECT, DUNLIN_POSITION, DUNLIN_ATTEMPT,
DUNLIN_KEY and DUNLIN_HEADER_<NAME>. `dunlin topics describe` shows groups.")]
pub struct Arguments {
    /// Subjects to subscribe to; `*` matches one token, `>` all that follow
    #[arg(required = true, value_name = "PATTERN")]
    pub patterns: Vec<String>,
    /// Start: earliest, latest, a position EPOCH-SEQ to start after, an RFC 3339 time, an age such as 5m, or, on
    /// state topics, snapshot [default: latest; snapshot with --conflate]
    #[arg(long, value_name = "START", value_parser = parse::start)]
    pub from: Option<Start>,
    /// End after this number of records [default: no end]
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub count: Option<u64>,
    /// End after this time without a record [default: no end]
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    pub idle: Option<Duration>,
    /// Output format: text, json, raw (payloads only), or a template such as '{seq} {payload}'
    #[arg(long, short, value_name = "FORMAT", default_value = "text", conflicts_with = "json")]
    pub format: Format,
    /// Text after each record in raw and template output
    #[arg(long, value_name = "TEXT", default_value = "\\n", value_parser = parse::unescaped)]
    pub delimiter: String,
    /// Where to continue after a gap: oldest (retained record), newest (the next published record), snapshot (on
    /// state topics), or fail (end with an error) [default: oldest; snapshot with --conflate or --from snapshot]
    #[arg(long, value_name = "POLICY", value_parser = parse::on_gap)]
    pub on_gap: Option<OnGap>,
    /// Receive one record that merges all changes since the last read; for state topics
    #[arg(long, conflicts_with = "group")]
    pub conflate: bool,
    /// Pause after each record, to simulate a slow subscriber
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    pub sleep: Option<Duration>,
    /// Name of the subscriber, shown to operators
    #[arg(long, default_value = "dunlin sub")]
    pub name: String,
    /// Register as a subscriber that publishers wait for; for reliable topics
    #[arg(long)]
    pub registered: bool,
    #[command(flatten)]
    pub group: group::GroupArguments,
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let stop = StopFlag::on_signal()?;
    // A subscriber that pauses or belongs to a group does not end as soon as standard output is closed. It ends when
    // its next write fails.
    if arguments.group.group.is_none() && arguments.sleep.is_none() {
        stop.set_when_stdout_closes();
    }
    if let Some(program) = ExternalProgram::new(&arguments.group.command) {
        program.check()?;
    }
    let client = connect_for(arguments, global)?;
    let writer = writer(arguments, &client, console);
    let follow = FollowOutput::new(rules(arguments), writer, console.out_shared(), stop.clone())
        .with_client(client.clone());
    if let Some(group) = &arguments.group.group {
        let Some(mut member) = stop.run_interruptible(|| group::join(arguments, group, &client))? else {
            return Ok(());
        };
        let record_handling = arguments.group.record_handling(&arguments.patterns[0]);
        follow.follow_member(&mut MemberLoop::new(&mut member, &record_handling))?;
        member.leave();
        return Ok(());
    }
    let subscribe = |pattern: &String| {
        let subscriber = client.subscribe(pattern, options(arguments));
        let subscriber = subscriber.map_err(|error| match error {
            SubscribeError::NoTopic(_) => no_topic_error(&client, pattern, error.into()),
            other => other.into(),
        });
        subscriber.with_context(|| format!("cannot subscribe to {pattern}"))
    };
    match stop.run_interruptible(|| arguments.patterns.iter().map(subscribe).collect::<Result<Vec<_>>>())? {
        Some(subscribers) => follow_all(&follow, subscribers, &stop),
        None => Ok(()),
    }
}

fn connect_for(arguments: &Arguments, global: &GlobalOptions) -> Result<Client> {
    let one_by_one =
        arguments.sleep.is_some() || arguments.count.is_some() || !arguments.group.command.is_empty();
    if arguments.group.group.is_some() && one_by_one {
        connect_one_by_one(global, &arguments.name)
    } else if arguments.sleep.is_some() {
        connect_slow(global, &arguments.name)
    } else {
        connect(global, &arguments.name)
    }
}

fn rules(arguments: &Arguments) -> StopRules {
    StopRules { count: arguments.count, idle: arguments.idle, sleep: arguments.sleep }
}

fn writer(arguments: &Arguments, client: &Client, console: &Console) -> EventPrinter {
    let format = match console.json {
        true => Format::Json,
        // If a command runs for each record, standard output belongs to this command. Notices go to standard error, as
        // they do with `--format raw`.
        false if !arguments.group.command.is_empty() => Format::Raw,
        false => arguments.format.clone(),
    };
    let several_logs = arguments.patterns.len() > 1 || arguments.patterns[0].contains(['*', '>']);
    let delimiter = arguments.delimiter.clone();
    EventPrinter {
        format,
        delimiter,
        several_logs,
        is_terminal: console.is_terminal,
        interpreters: Interpreters::of(client),
        paint: console.paint,
        errors: console.errors,
    }
}

/// Reads the last of `subscribers` in this thread, and each of the others in a thread of its own. The first error ends
/// all threads.
fn follow_all<S: Subscribe + Send, W: Write + Send>(
    follow: &FollowOutput<W>,
    mut subscribers: Vec<S>,
    stop: &StopFlag,
) -> Result<()> {
    let read = |mut subscriber: S| {
        let outcome = follow.follow(&mut subscriber);
        if outcome.is_err() {
            stop.set();
        }
        outcome
    };
    let Some(last) = subscribers.pop() else { return Ok(()) };
    thread::scope(|scope| {
        let others: Vec<_> = subscribers.into_iter().map(|other| scope.spawn(|| read(other))).collect();
        let outcome = read(last);
        others
            .into_iter()
            .map(|other| other.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .fold(outcome, Result::and)
    })
}

fn options(arguments: &Arguments) -> SubscribeOptions {
    let start = arguments.from.unwrap_or(if arguments.conflate { Start::Snapshot } else { Start::Latest });
    let starts_at_state = arguments.conflate || start == Start::Snapshot;
    let on_gap = arguments.on_gap.unwrap_or(if starts_at_state { OnGap::Snapshot } else { OnGap::Oldest });
    SubscribeOptions {
        name: arguments.name.clone(),
        start,
        on_gap,
        conflate: arguments.conflate,
        registered: arguments.registered,
        ..SubscribeOptions::default()
    }
}
