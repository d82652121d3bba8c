//! Runs the demo. While lines are published, subscribers start, are killed and restart. After the last line is
//! published, all subscribers read the remaining records.
//!
//! One thread publishes the lines, starts and kills subscribers, and shows the progress. This thread does not wait for
//! subscribers while lines are due.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use dunlin::Node;
use dunlin_cli::console::grouped;
use dunlin_cli::signals::StopFlag;
use dunlin_topic::{OnGap, Position, Start, SubscribeOptions};

use super::display::{Display, ProgressLine};
use super::ledger::LineLedger;
use super::plan::{PLANS, PlanStep, SubscriberLocation, SubscriberPlan};
use super::process::DemoProcess;
use super::reader::DemoReader;
use super::report::{ChildCommand, ReadReportLine};
use super::schedule::ScheduledLine;
use super::verdicts::SubscriberVerdicts;

const DISPLAY_INTERVAL: Duration = Duration::from_millis(100);
/// The longest time that the demo sleeps before it checks for signals and updates the display.
const SLEEP_MAX: Duration = Duration::from_millis(20);
/// How long the demo waits for the subscribers while none of them makes progress.
const STALLED_AFTER: Duration = Duration::from_secs(30);

/// A run of the demo: its node, its subscribers, and how many lines have been published.
pub struct DemoRun {
    node: Node,
    url: String,
    members: Vec<Member>,
    display: Display,
    stop: StopFlag,
    start: Instant,
    /// For each recording: the number of lines published so far, and the topics to which they are published.
    published: Vec<(u64, Vec<String>)>,
    lines: u64,
    lines_total: u64,
    shown_at: Instant,
}

struct Member {
    plan: &'static SubscriberPlan,
    topics: Vec<String>,
    reader: Arc<DemoReader>,
    process: Option<DemoProcess>,
    remark: &'static str,
}

impl DemoRun {
    /// Creates a run. `recordings` has one entry for each recording: the number of its lines, and the topics to which
    /// the lines are published.
    pub fn new(
        node: &Node,
        url: &str,
        recordings: Vec<(u64, Vec<String>)>,
        display: Display,
        stop: StopFlag,
    ) -> DemoRun {
        let member = |plan: &'static SubscriberPlan| Member {
            plan,
            topics: plan.topics(recordings.iter().flat_map(|recording| &recording.1).map(String::as_str)),
            reader: Arc::new(DemoReader::with_sleep(plan.sleep)),
            process: None,
            remark: "",
        };
        let now = Instant::now();
        DemoRun {
            node: node.clone(),
            url: url.to_owned(),
            members: PLANS.iter().map(member).collect(),
            display,
            stop,
            start: now,
            lines: 0,
            lines_total: recordings.iter().map(|recording| recording.0).sum(),
            published: recordings.into_iter().map(|(_, topics)| (0, topics)).collect(),
            shown_at: now,
        }
    }

    /// Starts the subscribers that read from the first line. Waits until these subscribers have subscribed.
    pub fn start_subscribers(&mut self) -> Result<()> {
        self.run_steps(-1.0, 0.0)?;
        for process in self.members.iter().filter_map(|member| member.process.as_ref()) {
            process.wait_ready()?;
        }
        self.start = Instant::now();
        Ok(())
    }

    /// Starts and kills the subscribers whose planned steps are due, and then waits until the line is due. Returns
    /// `Break` if the demo is interrupted.
    pub fn wait_until_due(&mut self, due: ScheduledLine) -> Result<ControlFlow<()>> {
        let done = |lines: u64, all: u64| lines as f64 / all.max(1) as f64;
        self.run_steps(
            done(self.lines.saturating_sub(1), self.lines_total),
            done(self.lines, self.lines_total),
        )?;
        loop {
            self.show()?;
            if self.stop.is_set() {
                return Ok(ControlFlow::Break(()));
            }
            match due.at.checked_sub(self.start.elapsed()).filter(|left| !left.is_zero()) {
                Some(left) => thread::sleep(left.min(SLEEP_MAX)),
                None => break,
            }
        }
        self.lines += 1;
        self.published[due.recording].0 += 1;
        Ok(ControlFlow::Continue(()))
    }

    /// Starts the subscribers that are planned to start after the last line. Waits until all subscribers have read
    /// everything, or until none of them makes progress any more.
    pub fn finish(&mut self, ends: &[(String, Position)]) -> Result<()> {
        let done = self.lines as f64 / self.lines_total.max(1) as f64;
        self.run_steps(done, f64::INFINITY)?;
        let ends: BTreeMap<String, Position> = ends.iter().cloned().collect();
        for member in &mut self.members {
            let commands =
                member.ends(&ends).into_iter().map(|(topic, last)| ChildCommand::End { topic, last });
            if let Some(process) = &mut member.process {
                process.end(commands);
            }
        }
        let (mut last_read, mut progressed_at) = (0, Instant::now());
        while !self.members.iter().all(|member| member.reader.has_read_all(&member.ends(&ends))) {
            let read = self.members.iter().map(Member::accounted_for).sum();
            if read != last_read {
                (last_read, progressed_at) = (read, Instant::now());
            }
            if progressed_at.elapsed() > STALLED_AFTER {
                break;
            }
            thread::sleep(SLEEP_MAX);
            self.show()?;
        }
        self.members.iter().for_each(|member| member.reader.stop());
        self.display.clear();
        Ok(())
    }

    pub fn judge(&self, ledger: &LineLedger<'_>) -> SubscriberVerdicts {
        let mut verdicts = SubscriberVerdicts::default();
        for member in &self.members {
            verdicts.judge(member.plan.name, &member.topics, &member.reader, ledger);
        }
        verdicts
    }

    pub fn print(&self, text: &str) -> Result<()> {
        self.display.print(text)
    }

    fn run_steps(&mut self, after: f64, through: f64) -> Result<()> {
        for at in 0..self.members.len() {
            let plan = self.members[at].plan;
            for step in plan.due(after, through) {
                let text = match step {
                    PlanStep::Join => self.members[at].join(&self.node, &self.url)?,
                    PlanStep::Kill => self.members[at].kill(),
                };
                if self.lines > 0 {
                    let line = grouped(self.lines);
                    self.print(&format!("{:>9} lines  {}: {text}", line, plan.name))?;
                }
            }
        }
        Ok(())
    }

    fn show(&mut self) -> Result<()> {
        if self.shown_at.elapsed() < DISPLAY_INTERVAL {
            return Ok(());
        }
        self.shown_at = Instant::now();
        let published = ProgressLine {
            name: "published",
            done: self.lines,
            total: self.lines_total,
            remark: String::new(),
        };
        let progress: Vec<ProgressLine> = [published]
            .into_iter()
            .chain(self.members.iter().map(|member| member.progress(&self.published)))
            .collect();
        self.display.show(&progress)
    }
}

impl Member {
    /// Starts the subscriber. A subscriber that ran before continues after the last position that it reported.
    fn join(&mut self, node: &Node, url: &str) -> Result<String> {
        if self.plan.location == SubscriberLocation::InProcess {
            self.join_in_process(node)?;
            return Ok("reads".to_owned());
        }
        let commands = self.commands();
        let resumes = commands.iter().any(|command| matches!(command, ChildCommand::Resume { .. }));
        let process = DemoProcess::start(url, self.plan.name, &commands, &self.reader)?;
        let pid = process.pid();
        self.process = Some(process);
        let accounted_for = grouped(self.accounted_for());
        self.remark = if resumes { "restarted" } else { "" };
        Ok(match resumes {
            true => format!(
                "process {pid} continues after the {accounted_for} records that the killed process had reported"
            ),
            false => format!("process {pid} starts and reads from the first record"),
        })
    }

    fn join_in_process(&self, node: &Node) -> Result<()> {
        let name = format!("demo: {}", self.plan.name);
        let options =
            SubscribeOptions { name, start: Start::Earliest, on_gap: OnGap::Oldest, ..Default::default() };
        let pattern = self.plan.pattern();
        let subscriber =
            node.subscribe(pattern, &options).with_context(|| format!("cannot subscribe to {pattern}"))?;
        let (reader, topics) = (Arc::clone(&self.reader), self.topics.clone());
        thread::spawn(move || reader.read(subscriber, &topics));
        Ok(())
    }

    /// Returns the commands for a subscriber's process. A new subscriber gets one command, with a pattern. A restarted
    /// subscriber gets a command for each of its topics, with the account that the subscriber's earlier processes
    /// reported.
    fn commands(&self) -> Vec<ChildCommand> {
        let accounts = self.reader.accounts();
        if accounts.is_empty() {
            return vec![ChildCommand::Read { pattern: self.plan.pattern().to_owned() }];
        }
        let command = |topic: &String| match accounts.get(topic) {
            Some(account) if account.received > 0 => {
                let account_line = ReadReportLine::of(account, account.missed.len());
                ChildCommand::Resume { topic: topic.clone(), account_line }
            }
            _ => ChildCommand::Read { pattern: topic.clone() },
        };
        self.topics.iter().map(command).collect()
    }

    fn kill(&mut self) -> String {
        let Some(process) = self.process.take() else { return "was not running".to_owned() };
        let pid = process.pid();
        process.kill();
        self.remark = "killed";
        format!(
            "SIGKILL to process {pid}; the process had reported {} records",
            grouped(self.accounted_for())
        )
    }

    fn ends(&self, ends: &BTreeMap<String, Position>) -> BTreeMap<String, Position> {
        let own = |topic: &String| Some((topic.clone(), *ends.get(topic)?));
        self.topics.iter().filter_map(own).collect()
    }

    /// Returns the number of records that the subscribers received, plus the number of records that the node reported
    /// to the subscribers as missing.
    fn accounted_for(&self) -> u64 {
        self.reader.accounts().values().map(|account| account.received + account.missed_records()).sum()
    }

    fn progress(&self, published: &[(u64, Vec<String>)]) -> ProgressLine {
        let own = |topics: &Vec<String>| topics.iter().any(|topic| self.topics.contains(topic));
        let (mut done, mut gaps, mut missed) = (0, 0, 0);
        for account in self.reader.accounts().values() {
            done += account.received + account.missed_records();
            gaps += account.missed.len() as u64;
            missed += account.missed_records();
        }
        let remark = match gaps {
            0 => self.remark.to_owned(),
            _ => format!("{} gaps, {} records reported as missed", grouped(gaps), grouped(missed)),
        };
        let total = published.iter().filter(|recording| own(&recording.1)).map(|recording| recording.0).sum();
        ProgressLine { name: self.plan.name, done, total, remark }
    }
}
