//! Prints the watched order books. A terminal shows tables that are redrawn in place; a pipe receives a line for each
//! change.

use std::io::{BufWriter, Stdout, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use dunlin::now_ns;
use dunlin_client::Subscriber;
use dunlin_feed::{ChangeCause, Replica, ReplicaFault, Side, StateChange};
use dunlin_topic::{LogName, PublisherStatus, Reducer};
use serde_json::{Value, json};

use super::window::TerminalSize;
use crate::console::{Console, Screen, TextPainter};
use crate::format::{log_name, publishers_text};
use crate::ladder;
use crate::state::State;

/// The interval at which a terminal's tables are drawn again.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Prints order books, as a live view in a terminal or as one line for each change.
pub struct BookScreen {
    out: BufWriter<Screen<Stdout>>,
    paint: TextPainter,
    depth: usize,
    mode: OutputMode,
    changes: u64,
}

enum OutputMode {
    /// In a terminal, lines are redrawn in place. `lines` is the number of lines of the last drawing, and `window` the
    /// size of the terminal at that time. `due` is the time of the next drawing, and `is_dirty` says whether anything
    /// has changed since the last drawing.
    Terminal {
        lines: usize,
        window: TerminalSize,
        due: Instant,
        is_dirty: bool,
    },
    Lines,
    Json,
}

impl BookScreen {
    pub fn new(console: &Console, depth: usize) -> BookScreen {
        let mode = match (console.json, console.is_terminal) {
            (true, _) => OutputMode::Json,
            (false, true) => OutputMode::Terminal {
                lines: 0,
                window: TerminalSize::now(),
                due: Instant::now(),
                is_dirty: true,
            },
            (false, false) => OutputMode::Lines,
        };
        BookScreen { out: console.out_shared(), paint: console.paint, depth, mode, changes: 0 }
    }

    /// The number of changes to books so far.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    pub fn changed(&mut self, change: &StateChange<'_, State>) -> Result<()> {
        self.changes += 1;
        match &mut self.mode {
            OutputMode::Terminal { is_dirty, .. } => *is_dirty = true,
            OutputMode::Lines => match change.state.levels() {
                Some(book) => {
                    writeln!(self.out, "{}", ladder::one_line(&log_name(change.log), change.to, book))?
                }
                None => {
                    let entries = change.state.entries();
                    writeln!(self.out, "{} {} {entries} values", log_name(change.log), change.to)?;
                }
            },
            OutputMode::Json => writeln!(self.out, "{}", change_object(change, self.depth))?,
        }
        Ok(())
    }

    /// Reports that the replica's copy of a book is wrong. The replica then requests the owner's book.
    pub fn fault(&mut self, log: &LogName, fault: &ReplicaFault) -> Result<()> {
        let text = match fault {
            ReplicaFault::Hole { first, last } => {
                format!("updates {first} to {last} are missing; requesting them")
            }
            ReplicaFault::Diverged { at, .. } => {
                format!(
                    "at position {at}, the book differs from the book of the topic's owner; requesting the \
                     owner's book"
                )
            }
            ReplicaFault::Refused { at, why } => {
                format!("the update at position {at} was refused: {why}; requesting the book")
            }
            ReplicaFault::NewEpoch { last, .. } => {
                format!(
                    "the topic began a new epoch after {last}; the book is empty until it is published again"
                )
            }
            ReplicaFault::Unknown { at } => {
                format!("the updates from position {at} on belong to an unknown book; requesting that book")
            }
        };
        self.print_notice(log, &text)
    }

    /// Prints whether the topic of a book has a connected publisher, and how old the topic's newest record is.
    pub fn publishers(&mut self, publishers: &PublisherStatus) -> Result<()> {
        self.print_notice(&publishers.log, &publishers_text(publishers, now_ns()))
    }

    pub fn deleted(&mut self, log: &LogName) -> Result<()> {
        self.print_notice(log, "the topic was deleted")
    }

    fn print_notice(&mut self, log: &LogName, text: &str) -> Result<()> {
        let name = log_name(log);
        match &mut self.mode {
            OutputMode::Json => {
                let object = json!({ "topic": log.topic, "partition": log.partition, "notice": text });
                writeln!(self.out, "{object}")?;
            }
            OutputMode::Lines => writeln!(std::io::stderr(), "{name}: {text}")?,
            OutputMode::Terminal { .. } => self.print_response(&format!("{name}: {text}"))?,
        }
        Ok(())
    }

    /// Prints the response to a typed command. In a terminal, the tables are then drawn again below the response.
    pub fn print_response(&mut self, text: &str) -> Result<()> {
        if let OutputMode::Terminal { lines, is_dirty, .. } = &mut self.mode {
            (*lines, *is_dirty) = (0, true);
            writeln!(self.out, "{text}")?;
        } else {
            self.out.flush()?;
            writeln!(std::io::stderr(), "{text}")?;
        }
        Ok(self.out.flush()?)
    }

    /// Counts one more line to redraw, because the Enter key moved the cursor one line down.
    pub fn count_input_line(&mut self) {
        if let OutputMode::Terminal { lines, .. } = &mut self.mode {
            *lines += usize::from(*lines > 0);
        }
    }

    /// Returns all books as text.
    pub fn ladders<'a>(&self, replicas: impl Iterator<Item = &'a Replica<State, Subscriber>>) -> String {
        self.lines(replicas, self.depth, usize::MAX).join("\n")
    }

    fn lines<'a>(
        &self,
        replicas: impl Iterator<Item = &'a Replica<State, Subscriber>>,
        depth: usize,
        columns: usize,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for (log, at, state) in replicas.flat_map(Replica::states) {
            match state.levels() {
                Some(book) => {
                    lines.extend(ladder::lines(
                        &log_name(log),
                        at,
                        state.checksum(),
                        book,
                        depth,
                        columns,
                        self.paint,
                    ));
                }
                None => lines.push(format!(
                    "{}  {at}  {} values",
                    self.paint.strong(&log_name(log)),
                    state.entries()
                )),
            }
        }
        lines
    }

    /// In a terminal, draws the tables if something has changed and the next drawing is due.
    pub fn draw<'a>(
        &mut self,
        replicas: impl Iterator<Item = &'a Replica<State, Subscriber>> + Clone,
    ) -> Result<()> {
        let now = Instant::now();
        let OutputMode::Terminal { lines: before, window: drawn_for, due, is_dirty } = &self.mode else {
            return Ok(self.out.flush()?);
        };
        if !is_dirty || now < *due {
            return Ok(());
        }
        let (before, window) = (*before, TerminalSize::now());
        let ladders = replicas.clone().map(|replica| replica.states().count()).sum();
        let lines = window.fit(self.lines(replicas, window.depth(self.depth, ladders), window.columns));
        if window != *drawn_for {
            // Clear the screen: after a change of its size, the terminal may have wrapped the old lines.
            write!(self.out, "\x1b[2J\x1b[H")?;
        } else if before > 0 {
            // Return to the first line of the old drawing; each new line then overwrites an old one.
            write!(self.out, "\x1b[{before}A\r")?;
        }
        for line in &lines {
            writeln!(self.out, "\x1b[2K{line}")?;
        }
        write!(self.out, "\x1b[J")?;
        self.out.flush()?;
        self.mode =
            OutputMode::Terminal { lines: lines.len(), window, due: now + DRAW_EVERY, is_dirty: false };
        Ok(())
    }

    pub fn close(mut self) -> Result<()> {
        Ok(self.out.flush()?)
    }
}

fn change_object(change: &StateChange<'_, State>, depth: usize) -> Value {
    let by = match change.cause {
        ChangeCause::Record(_) => "record",
        ChangeCause::Merged(_) => "merged",
        ChangeCause::Snapshot => "snapshot",
    };
    let mut object = json!({
        "topic": change.log.topic, "partition": change.log.partition, "position": change.to.to_string(), "by": by,
        "checksum": format!("{:016x}", change.state.checksum()),
        "event_time_ns": change.event_time_ns().map(|ns| ns.to_string()),
        "append_time_ns": change.append_time_ns().map(|ns| ns.to_string()),
    });
    if let Some(book) = change.state.levels() {
        for (name, side) in [("bids", Side::Bid), ("asks", Side::Ask)] {
            let levels =
                book.top(side, Some(depth)).into_iter().map(|level| json!([level.price, level.size]));
            object[name] = levels.collect();
        }
        object["touch"] = json!(format!("{:?}", book.touch()).to_lowercase());
    } else {
        object["values"] = json!(change.state.entries());
    }
    object
}
