//! The terminal: whether to colour, what each colour means, and numbers as people read them.

use std::io::{BufWriter, IsTerminal, Stdout, StdoutLock};
use std::time::Duration;

use anstyle::{AnsiColor, Style};

use crate::arguments::{Color, Global};

/// What a command knows of the place it writes to.
#[derive(Debug)]
pub struct Console {
    /// One JSON object per line instead of a table.
    pub json: bool,
    /// A person watches standard output.
    pub is_terminal: bool,
    /// For standard output.
    pub paint: Paint,
    /// For standard error.
    pub errors: Paint,
}

impl Console {
    pub fn new(global: &Global) -> Console {
        let is_terminal = std::io::stdout().is_terminal();
        Console {
            json: global.json,
            is_terminal,
            paint: Paint::new(global.color, is_terminal),
            errors: Paint::new(global.color, std::io::stderr().is_terminal()),
        }
    }

    /// The same for several threads.
    pub fn out_shared(&self) -> BufWriter<Stdout> {
        BufWriter::with_capacity(64 << 10, std::io::stdout())
    }

    /// Standard output, buffered; whoever writes flushes before waiting.
    pub fn out(&self) -> BufWriter<StdoutLock<'static>> {
        BufWriter::with_capacity(64 << 10, std::io::stdout().lock())
    }
}

impl Paint {
    pub fn is_on(self) -> bool {
        self.on
    }
}

/// Gives words their colour, or leaves them plain.
#[derive(Debug, Clone, Copy)]
pub struct Paint {
    on: bool,
}

impl Paint {
    /// What the user asked for wins, then `NO_COLOR`, then `CLICOLOR_FORCE`, then whether a person is watching.
    fn new(asked: Color, terminal: bool) -> Paint {
        let is_set = |name| std::env::var_os(name).is_some_and(|text| !text.is_empty());
        let forced = std::env::var("CLICOLOR_FORCE").is_ok_and(|text| !text.is_empty() && text != "0");
        let unwanted =
            is_set("NO_COLOR") || !forced && std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let on = match asked {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => (terminal || forced) && !unwanted,
        };
        Paint { on }
    }

    #[cfg(test)]
    pub const PLAIN: Paint = Paint { on: false };

    /// A heading, or the thing to look at.
    pub fn strong(self, text: &str) -> String {
        self.with(Style::new().bold(), text)
    }

    /// What may be overlooked.
    pub fn faint(self, text: &str) -> String {
        self.with(Style::new().dimmed(), text)
    }

    /// As it should be.
    pub fn good(self, text: &str) -> String {
        self.with(AnsiColor::Green.on_default().bold(), text)
    }

    /// A closing sentence, good or bad.
    pub fn verdict(self, holds: bool, text: &str) -> String {
        if holds { self.good(text) } else { self.bad(text) }
    }

    /// Not yet bad.
    pub fn warning(self, text: &str) -> String {
        self.with(AnsiColor::Yellow.on_default().bold(), text)
    }

    /// Something is lost, refused or broken.
    pub fn bad(self, text: &str) -> String {
        self.with(AnsiColor::Red.on_default().bold(), text)
    }

    /// Something to type.
    pub fn command(self, text: &str) -> String {
        self.with(AnsiColor::Cyan.on_default(), text)
    }

    fn with(self, style: Style, text: &str) -> String {
        if self.on { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// `1311873` as `1,311,873`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes as people say them, with three digits that count: `64 MiB`, `1.5 GiB`.
pub fn sized(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(amount < 100.0 && amount.fract() >= 0.05);
    format!("{amount:.decimals$} {}", UNITS[unit])
}

/// A span in its two largest units: `2 d 1 h`, `29 min 59 s`.
pub fn lasting(span: Duration) -> String {
    let seconds = span.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, seconds / 3_600, seconds / 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!([0, 999, 1000, 1_311_873].map(grouped), ["0", "999", "1,000", "1,311,873"]);
        let spans = [59, 1799, 3600, 176_943].map(|seconds| lasting(Duration::from_secs(seconds)));
        assert_eq!(spans, ["59 s", "29 min 59 s", "1 h 0 min", "2 d 1 h"]);
        assert_eq!([5, 4096, 64 << 20, 3 << 29].map(sized), ["5 B", "4 KiB", "64 MiB", "1.5 GiB"]);
    }

    #[test]
    fn what_the_user_asked_for_wins_over_what_the_terminal_is() {
        assert_eq!(Paint::new(Color::Never, true).bad("x"), "x");
        assert_ne!(Paint::new(Color::Always, false).bad("x"), "x");
        assert_eq!(Paint::new(Color::Auto, false).bad("x"), "x");
    }
}
