//! Runs a subscriber of the demo in a separate process. The process subscribes when its parent process sends a command.
//! From then on, it reports the records that it has read. It ends when it has read all records, or when the parent
//! kills it.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dunlin_topic::{OnGap, Position, Start, Subscribe, SubscribeError, SubscribeOptions};

use super::account::TopicReadReport;
use super::reader::DemoReader;
use super::report::{ChildCommand, ChildReport, ReadReportLine, Reporter};

const REPORT_INTERVAL: Duration = Duration::from_millis(50);

/// Reads commands from standard input and executes them. `subscribe` creates a subscriber for a pattern.
pub fn run<S: Subscribe + Send + 'static>(
    name: &str,
    sleep: Option<Duration>,
    subscribe: impl Fn(&str, SubscribeOptions) -> Result<S, SubscribeError>,
) -> Result<()> {
    let commands = receive_commands();
    let reader = Arc::new(DemoReader::with_sleep(sleep));
    let mut reporter = Reporter::default();
    loop {
        let (pattern, start) =
            match commands.recv().context("standard input ended before the parent sent a command")? {
                ChildCommand::Read { pattern } => (pattern, Start::Earliest),
                ChildCommand::Resume { topic, account_line } => {
                    resume(&reader, &mut reporter, &topic, &account_line);
                    (topic, Start::After(account_line.through))
                }
                ChildCommand::Start => break,
                ChildCommand::End { .. } => bail!("received command End before Read or Resume"),
            };
        // A slow reader continues at the newest record after a gap: few large gaps are easier to follow in the output
        // than many small ones.
        let on_gap = if sleep.is_some() { OnGap::Newest } else { OnGap::Oldest };
        let options =
            SubscribeOptions { name: format!("demo: {name}"), start, on_gap, ..SubscribeOptions::default() };
        let subscriber =
            subscribe(&pattern, options).with_context(|| format!("cannot subscribe to {pattern}"))?;
        let reader = Arc::clone(&reader);
        thread::spawn(move || reader.read(subscriber, &[pattern]));
    }
    send([ChildReport::Ready])?;
    report(&reader, &mut reporter, &commands)
}

/// Continues the account that an earlier process began. The earlier process has already reported the records and gaps
/// in this account. The reporter of the new process therefore treats them as reported.
fn resume(reader: &DemoReader, reporter: &mut Reporter, topic: &str, account_line: &ReadReportLine) {
    let mut accounts = reader.accounts();
    let mut account = TopicReadReport::default();
    account_line.apply(&mut account);
    accounts.insert(topic.to_owned(), account);
    reporter.changes(&accounts);
}

fn report(reader: &DemoReader, reporter: &mut Reporter, commands: &Receiver<ChildCommand>) -> Result<()> {
    let mut ends: BTreeMap<String, Position> = BTreeMap::new();
    let mut has_all_ends = false;
    loop {
        match commands.recv_timeout(REPORT_INTERVAL) {
            Ok(ChildCommand::End { topic, last }) => drop(ends.insert(topic, last)),
            Ok(other) => bail!("unexpected command after Start: {other}"),
            Err(RecvTimeoutError::Timeout) => {}
            // The channel closed before an `End` command, so the parent process has ended.
            Err(RecvTimeoutError::Disconnected) if ends.is_empty() => return Ok(()),
            // The parent sends no more commands. This thread therefore only waits until the next report is due.
            Err(RecvTimeoutError::Disconnected) if has_all_ends => thread::sleep(REPORT_INTERVAL),
            Err(RecvTimeoutError::Disconnected) => has_all_ends = true,
        }
        let has_finished = has_all_ends && reader.has_read_all(&ends);
        let changes = reporter.changes(&reader.accounts());
        send(changes)?;
        if has_finished {
            reader.stop();
            return send([ChildReport::Finished]);
        }
    }
}

fn send(reports: impl IntoIterator<Item = ChildReport>) -> Result<()> {
    let text: String = reports.into_iter().map(|report| format!("{report}\n")).collect();
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Starts a thread that parses the commands on standard input. The returned channel closes when standard input closes.
fn receive_commands() -> Receiver<ChildCommand> {
    let (sender, commands) = channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(command) = line.parse() else { return };
            if sender.send(command).is_err() {
                return;
            }
        }
    });
    commands
}
