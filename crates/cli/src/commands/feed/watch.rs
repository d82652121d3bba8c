//! The command `dunlin feed watch`, which shows order books. The command keeps its own copy of each book, a replica.
//!
//! Unless the user requests every update, the node merges the updates that the command has not read yet, so that a slow
//! terminal delays only the drawing. Lines are redrawn in place without changing the terminal's mode, so the terminal
//! needs no reset at the end.

mod command;
mod view;
mod window;

use std::io::{BufRead, IsTerminal, Read};
use std::num::NonZeroU32;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dunlin::now_ns;
use dunlin_client::{Client, Subscriber};
use dunlin_feed::{Replica, ReplicaReport};
use dunlin_topic::{OnGap, Start, SubscribeOptions};

use crate::arguments::GlobalOptions;
use crate::commands::parse;
use crate::connect::connect;
use crate::console::Console;
use crate::outage::OutageReport;
use crate::outcome::CommandRefusal;
use crate::signals::StopFlag;
use crate::state::State;
use command::WatchCommand;
use view::BookScreen;

/// Arguments of `dunlin feed watch`, which shows order books.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin feed watch md.BTC-USD                       show the book live; type `help` for commands
  dunlin feed watch 'md.>' --depth 3
  dunlin feed watch md.BTC-USD | head                one line for each change
  dunlin feed watch md.BTC-USD --every-update --json --count 100
  dunlin feed watch md.BTC-USD --test-loss-every 50  withhold every 50th update and watch the repair")]
pub struct Arguments {
    /// Topics of order books, or patterns of them
    #[arg(required = true, value_name = "SUBJECT")]
    subjects: Vec<String>,
    /// Price levels of each side to show
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    depth: u16,
    /// Show each update instead of only the newest state
    #[arg(long)]
    every_update: bool,
    /// End after this number of changes [default: no end]
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,
    /// End after this time [default: no end]
    #[arg(long, value_name = "DURATION", value_parser = parse::positive_duration)]
    time: Option<Duration>,
    /// Read commands from standard input even if it is not a terminal
    #[arg(long)]
    interactive: bool,
    /// For tests: withhold every Nth update, without reporting a gap [default: none]
    #[arg(long, value_name = "N")]
    test_loss_every: Option<NonZeroU32>,
}

/// The interval at which the command checks for typed lines while no changes arrive.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The largest number of changes that are applied before the next drawing.
const CHANGES_MAX: usize = 1024;
/// The maximum length of a typed line in bytes. The rest of a longer line counts as a new line.
const LINE_BYTES_MAX: u64 = 4 << 10;
/// The maximum number of typed lines that wait for the command to process them.
const LINES_AHEAD_MAX: usize = 16;

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let stop = StopFlag::on_signal()?;
    let client = connect(global, "dunlin feed watch")?;
    let ended = stop.run_interruptible(|| watch(arguments, client, &stop, console))?;
    ended.map_or(Ok(()), Ok)
}

fn watch(arguments: &Arguments, client: Client, stop: &StopFlag, console: &Console) -> Result<()> {
    let mut watching = Watching { client, arguments, watches: Vec::new(), outage: OutageReport::default() };
    for subject in &arguments.subjects {
        watching.subscribe(subject)?;
    }
    let commands = (arguments.interactive || std::io::stdin().is_terminal()).then(read_lines);
    let mut view = BookScreen::new(console, arguments.depth.into());
    let since = Instant::now();
    while !stop.is_set()
        && arguments.time.is_none_or(|time| since.elapsed() < time)
        && arguments.count.is_none_or(|count| view.changes() < count)
    {
        while let Some(line) = commands.as_ref().and_then(|commands| commands.try_recv().ok()) {
            if !watching.execute(&line, &mut view)? {
                return view.close();
            }
        }
        watching.apply_changes(&mut view, console)?;
        view.draw(watching.watches.iter().map(|watch| &watch.replica))?;
    }
    view.close()
}

/// Reads lines from standard input in a thread.
fn read_lines() -> Receiver<String> {
    let (sender, lines) = sync_channel(LINES_AHEAD_MAX);
    // The thread ends with the process, because a read of a terminal cannot be interrupted.
    thread::spawn(move || {
        let (mut input, mut line) = (std::io::stdin().lock(), String::new());
        let mut read = |line: &mut String| Read::take(&mut input, LINE_BYTES_MAX).read_line(line);
        while read(&mut line).is_ok_and(|bytes| bytes > 0) {
            let text = line.trim_end_matches(['\n', '\r']).to_owned();
            line.clear();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    lines
}

struct Watching<'a> {
    client: Client,
    arguments: &'a Arguments,
    watches: Vec<Watch>,
    outage: OutageReport,
}

struct Watch {
    subject: String,
    replica: Replica<State, Subscriber>,
}

impl Watching<'_> {
    fn subscribe(&mut self, subject: &str) -> Result<()> {
        if self.watches.iter().any(|watch| watch.subject == subject) {
            return Err(CommandRefusal(format!("{subject} is already in the list")).into());
        }
        let pattern = pattern_of(&self.client, subject)?;
        let options = SubscribeOptions {
            name: "dunlin feed watch".to_owned(),
            start: Start::Snapshot,
            on_gap: OnGap::Snapshot,
            conflate: !self.arguments.every_update,
            test_loss_every: self.arguments.test_loss_every,
            ..SubscribeOptions::default()
        };
        let subscribed = self.client.subscribe(&pattern, options);
        let subscriber = subscribed.with_context(|| format!("cannot subscribe to {subject}"))?;
        let client = self.client.clone();
        let replica = Replica::new(subscriber, move |log| State::of_topic(&client, &log.topic));
        self.watches.push(Watch { subject: subject.to_owned(), replica });
        Ok(())
    }

    fn unsubscribe(&mut self, subject: &str) -> Result<()> {
        let before = self.watches.len();
        self.watches.retain(|watch| watch.subject != subject);
        if self.watches.len() == before {
            return Err(CommandRefusal(format!("{subject} is not in the list")).into());
        }
        Ok(())
    }

    /// Carries out the command that the user typed in `line`. Returns `false` after the command `quit`, otherwise
    /// `true`.
    fn execute(&mut self, line: &str, view: &mut BookScreen) -> Result<bool> {
        let done = match command::parse(line) {
            Ok(WatchCommand::Quit) => return Ok(false),
            Ok(WatchCommand::Nothing) => {
                view.count_input_line();
                return Ok(true);
            }
            Ok(WatchCommand::Help) => Ok(command::HELP.to_owned()),
            Ok(WatchCommand::Subscribe(subject)) => {
                self.subscribe(&subject).map(|()| format!("subscribed to {subject}"))
            }
            Ok(WatchCommand::Unsubscribe(subject)) => {
                self.unsubscribe(&subject).map(|()| format!("no longer subscribed to {subject}"))
            }
            Ok(WatchCommand::Show) => Ok(view.ladders(self.watches.iter().map(|watch| &watch.replica))),
            Err(unknown) => Err(unknown.into()),
        };
        match done {
            Ok(text) => view.print_response(&text)?,
            Err(error) => view.print_response(&format!("error: {error:#}"))?,
        }
        Ok(true)
    }

    /// Applies the changes that have arrived. If none have arrived, waits briefly for the first change.
    fn apply_changes(&mut self, view: &mut BookScreen, console: &Console) -> Result<()> {
        let wait_max = POLL_INTERVAL / u32::try_from(self.watches.len().max(1)).unwrap_or(u32::MAX);
        for watch in &mut self.watches {
            let mut shown = Ok(());
            let wanted =
                self.arguments.count.map_or(CHANGES_MAX as u64, |count| count - view.changes().min(count));
            let taken = watch.replica.drain(now_ns(), CHANGES_MAX.min(wanted.max(1) as usize), |report| {
                let drawn = match &report {
                    ReplicaReport::Changed(change) => view.changed(change),
                    ReplicaReport::Agreed { .. } => Ok(()),
                    ReplicaReport::Publishers(publishers) => view.publishers(publishers),
                    ReplicaReport::Fault { log, fault } => view.fault(log, fault),
                    ReplicaReport::Deleted { log, .. } => view.deleted(log),
                };
                if shown.is_ok() {
                    shown = drawn;
                }
            });
            shown?;
            let outcome =
                taken.and_then(|taken| if taken > 0 { Ok(true) } else { watch.replica.wait(Some(wait_max)) });
            if let Err(error) = outcome {
                self.outage.handle_error(error, console.errors)?;
            }
        }
        self.outage.check_connection(&self.client, console.errors)?;
        if self.watches.is_empty() {
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

/// Returns the pattern to subscribe to. If `subject` is the name of a topic that has a pattern, returns the topic's
/// pattern, otherwise `subject` itself.
///
/// Fails with a list of the existing instruments if `subject` is neither a pattern nor the name of a topic.
pub fn pattern_of(client: &Client, subject: &str) -> Result<String> {
    if subject.split('.').any(|token| matches!(token, "*" | ">")) {
        return Ok(subject.to_owned());
    }
    if let Some(topic) = client.topics(subject)?.into_iter().next() {
        return Ok(if topic.pattern.is_empty() { topic.name } else { topic.pattern });
    }
    let mut names: Vec<String> = client.topics("md.>")?.into_iter().map(|topic| topic.name).take(6).collect();
    if let Some(sixth) = names.get_mut(5) {
        *sixth = "…".to_owned();
    }
    let available = match names.as_slice() {
        [] => "; this node has none (`dunlin feed serve` publishes some)".to_owned(),
        names => format!("; there are {}", names.join(", ")),
    };
    Err(CommandRefusal(format!("unknown instrument {subject}{available}")).into())
}
