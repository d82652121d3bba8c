//! Shows the progress of the demo: bars on a terminal, otherwise a line of text that is printed at intervals.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use dunlin_cli::console::{Console, grouped};

/// One entry of the progress display: a name, the completed work and the total work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressLine {
    pub name: &'static str,
    pub done: u64,
    pub total: u64,
    /// A short text that follows the numbers.
    pub remark: String,
}

/// The progress display of the demo: bars on a terminal, otherwise lines of text or JSON.
#[derive(Debug)]
pub enum Display {
    Bars { all: MultiProgress, bars: Vec<ProgressBar> },
    Lines { start: Instant, due: Instant, json: bool },
}

const LINE_INTERVAL: Duration = Duration::from_secs(5);
const BAR: &str = "{prefix:>12} {bar:32.cyan/blue} {msg}";

impl Display {
    pub fn new(console: &Console) -> Display {
        if std::io::stderr().is_terminal() && !console.json {
            return Display::Bars { all: MultiProgress::new(), bars: Vec::new() };
        }
        let start = Instant::now();
        Display::Lines { start, due: start + LINE_INTERVAL, json: console.json }
    }

    /// Prints an event to standard output, or to standard error if `--json` is set.
    pub fn print(&self, text: &str) -> Result<()> {
        match self {
            Display::Bars { all, .. } => all.suspend(|| writeln!(std::io::stdout(), "{text}"))?,
            Display::Lines { json: true, .. } => writeln!(std::io::stderr(), "{text}")?,
            Display::Lines { json: false, .. } => writeln!(std::io::stdout(), "{text}")?,
        }
        Ok(())
    }

    /// Updates the display to the values in `lines`. Text output appears only at intervals.
    pub fn show(&mut self, lines: &[ProgressLine]) -> Result<()> {
        match self {
            Display::Bars { all, bars } => show_bars(all, bars, lines),
            Display::Lines { start, due, .. } => {
                let now = Instant::now();
                if now >= *due {
                    *due = now + LINE_INTERVAL;
                    let text = progress_line(start.elapsed(), lines);
                    self.print(&text)?;
                }
            }
        }
        Ok(())
    }

    /// Removes the progress bars from the terminal.
    pub fn clear(&mut self) {
        if let Display::Bars { bars, .. } = self {
            bars.drain(..).for_each(|bar| bar.finish_and_clear());
        }
    }
}

fn show_bars(all: &MultiProgress, bars: &mut Vec<ProgressBar>, lines: &[ProgressLine]) {
    let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
    while bars.len() < lines.len() {
        bars.push(all.add(ProgressBar::new(0).with_style(style.clone())));
    }
    for (bar, line) in bars.iter().zip(lines) {
        bar.set_prefix(line.name);
        bar.set_length(line.total.max(1));
        bar.set_position(line.done);
        bar.set_message(format!("{:>9} of {:>9}  {}", grouped(line.done), grouped(line.total), line.remark));
    }
}

fn progress_line(elapsed: Duration, lines: &[ProgressLine]) -> String {
    let text_of = |line: &ProgressLine| {
        let remark = if line.remark.is_empty() { String::new() } else { format!(" ({})", line.remark) };
        format!("{} {} of {}{remark}", line.name, grouped(line.done), grouped(line.total))
    };
    format!("{:>4} s  {}", elapsed.as_secs(), lines.iter().map(text_of).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_without_a_terminal_is_one_line() {
        let lines = [
            ProgressLine { name: "published", done: 1000, total: 2000, remark: String::new() },
            ProgressLine { name: "slow", done: 900, total: 1000, remark: "3 gaps".into() },
        ];
        let text = progress_line(Duration::from_secs(5), &lines);
        assert_eq!(text, "   5 s  published 1,000 of 2,000, slow 900 of 1,000 (3 gaps)");
    }
}
