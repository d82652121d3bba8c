//! Prints the output of commands: with colours if the terminal has them, and with numbers that are easy to read.

use std::io::{self, BufWriter, IsTerminal, Stdout, StdoutLock, Write};

use anstyle::{AnsiColor, Style};
use dunlin_topic::needs_escape;

use crate::arguments::{Color, GlobalOptions};

/// The output settings of a command: text or JSON, with or without colours, to a terminal or not.
#[derive(Debug)]
pub struct Console {
    /// Whether to print one JSON object per line instead of text.
    pub json: bool,
    /// Whether standard output is a terminal.
    pub is_terminal: bool,
    /// Colours of standard output.
    pub paint: TextPainter,
    /// Colours of standard error.
    pub errors: TextPainter,
}

impl Console {
    pub fn new(global: &GlobalOptions) -> Console {
        let is_terminal = std::io::stdout().is_terminal();
        Console {
            json: global.json,
            is_terminal,
            paint: TextPainter::new(global.color, is_terminal),
            errors: TextPainter::new(global.color, std::io::stderr().is_terminal()),
        }
    }

    /// Like [`out`](Console::out), for output by several threads.
    pub fn out_shared(&self) -> BufWriter<Screen<Stdout>> {
        self.screen(io::stdout())
    }

    /// Returns buffered standard output. The caller must flush it before it waits for anything.
    pub fn out(&self) -> BufWriter<Screen<StdoutLock<'static>>> {
        self.screen(io::stdout().lock())
    }

    fn screen<W: Write>(&self, out: W) -> BufWriter<Screen<W>> {
        let screen = Screen { out, is_terminal: self.is_terminal, partial: Vec::new() };
        BufWriter::with_capacity(64 << 10, screen)
    }
}

/// Standard output of a command.
///
/// On a terminal, control characters beyond ASCII are escaped as in JSON. ASCII control characters are written
/// unchanged, because colours need them. Commands must therefore escape ASCII control characters in data themselves. If
/// standard output is a pipe or a file, all bytes are written unchanged.
#[derive(Debug)]
pub struct Screen<W> {
    out: W,
    is_terminal: bool,
    /// The first bytes of a character whose remaining bytes have not been written yet.
    partial: Vec<u8>,
}

impl<W: Write> Write for Screen<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_plain = self.partial.is_empty() && bytes.iter().all(|byte| *byte < 0x7f);
        if is_plain || !self.is_terminal {
            return self.out.write(bytes);
        }
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        let mut shown = Vec::with_capacity(all.len());
        let mut chunks = all.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            for c in chunk.valid().chars() {
                match c {
                    c if needs_escape(c) && c >= '\x7f' => {
                        for unit in c.encode_utf16(&mut [0; 2]) {
                            write!(shown, "\\u{unit:04x}")?;
                        }
                    }
                    c => write!(shown, "{c}")?,
                }
            }
            let is_incomplete =
                std::str::from_utf8(chunk.invalid()).is_err_and(|error| error.error_len().is_none());
            if is_incomplete && chunks.peek().is_none() {
                self.partial = chunk.invalid().to_vec();
            } else {
                write_invalid_bytes(chunk.invalid(), &mut shown)?;
            }
        }
        self.out.write_all(&shown)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        write_invalid_bytes(&std::mem::take(&mut self.partial), &mut self.out)?;
        self.out.flush()
    }
}

/// Writes bytes that are not valid UTF-8: each as an escape such as `\xff`.
fn write_invalid_bytes(bytes: &[u8], out: &mut impl Write) -> io::Result<()> {
    bytes.iter().try_for_each(|byte| write!(out, "\\x{byte:02x}"))
}

impl TextPainter {
    pub fn has_colors(self) -> bool {
        self.has_colors
    }
}

/// Adds colours to texts if the command's output is coloured.
#[derive(Debug, Clone, Copy)]
pub struct TextPainter {
    has_colors: bool,
}

impl TextPainter {
    /// Decides whether texts have colours. The option `--color` takes precedence, then the variable `NO_COLOR`, then
    /// the variable `CLICOLOR_FORCE`. If none of them is given, texts on a terminal have colours, unless `TERM` is
    /// `dumb`.
    fn new(color: Color, terminal: bool) -> TextPainter {
        let is_set = |name| std::env::var_os(name).is_some_and(|text| !text.is_empty());
        let forced = std::env::var("CLICOLOR_FORCE").is_ok_and(|text| !text.is_empty() && text != "0");
        let is_suppressed =
            is_set("NO_COLOR") || !forced && std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let has_colors = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => (terminal || forced) && !is_suppressed,
        };
        TextPainter { has_colors }
    }

    #[cfg(test)]
    pub const PLAIN: TextPainter = TextPainter { has_colors: false };

    /// Styles headings and important values.
    pub fn strong(self, text: &str) -> String {
        self.styled(Style::new().bold(), text)
    }

    /// Styles secondary information.
    pub fn faint(self, text: &str) -> String {
        self.styled(Style::new().dimmed(), text)
    }

    /// Styles the text of a good status.
    pub fn good(self, text: &str) -> String {
        self.styled(AnsiColor::Green.on_default().bold(), text)
    }

    /// Styles the text of a result: as good if `holds` is set, otherwise as bad.
    pub fn verdict(self, holds: bool, text: &str) -> String {
        if holds { self.good(text) } else { self.bad(text) }
    }

    /// Styles a warning.
    pub fn warning(self, text: &str) -> String {
        self.styled(AnsiColor::Yellow.on_default().bold(), text)
    }

    /// Styles the text of a loss, a refusal or a fault.
    pub fn bad(self, text: &str) -> String {
        self.styled(AnsiColor::Red.on_default().bold(), text)
    }

    /// Styles a command for the user to type.
    pub fn command(self, text: &str) -> String {
        self.styled(AnsiColor::Cyan.on_default(), text)
    }

    fn styled(self, style: Style, text: &str) -> String {
        if self.has_colors { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// Formats a number with commas: `1311873` becomes `1,311,873`.
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

/// Formats bytes with three significant digits: `64 MiB`, `1.5 GiB`.
pub fn format_bytes(bytes: u64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn written(is_terminal: bool, pieces: &[&[u8]]) -> String {
        let mut screen = Screen { out: Vec::new(), is_terminal, partial: Vec::new() };
        pieces.iter().for_each(|piece| screen.write_all(piece).unwrap());
        screen.flush().unwrap();
        String::from_utf8_lossy(&screen.out).into_owned()
    }

    #[test]
    fn control_characters_beyond_ascii_are_escaped() {
        let text = "\x1b[1mä\x1b[0m \u{9b}2J\u{85}\u{202e}\u{202a}\u{2066}\u{2069}\x7f 漢\n";
        let shown = "\x1b[1mä\x1b[0m \\u009b2J\\u0085\\u202e\\u202a\\u2066\\u2069\\u007f 漢\n";
        assert_eq!(written(true, &[text.as_bytes()]), shown);
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(written(true, &bytes), shown, "cut anywhere");
        assert_eq!(written(true, &[b"a\x9b", b"b\xe2\x80"]), "a\\x9bb\\xe2\\x80");
        assert_eq!(written(false, &[text.as_bytes()]), text);
    }

    #[test]
    fn json_escaped_for_a_terminal_parses_to_the_original_value() {
        let object = serde_json::json!({"payload": "\u{9b}31m\u{202e}\u{7f}\u{200b}\u{e0001}"});
        let shown = written(true, &[object.to_string().as_bytes()]);
        assert!(shown.is_ascii(), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), object);
    }

    #[test]
    fn numbers_and_sizes_print_readably() {
        assert_eq!([0, 999, 1000, 1_311_873].map(grouped), ["0", "999", "1,000", "1,311,873"]);
        assert_eq!([5, 4096, 64 << 20, 3 << 29].map(format_bytes), ["5 B", "4 KiB", "64 MiB", "1.5 GiB"]);
    }

    #[test]
    fn color_option_overrides_terminal_detection() {
        assert_eq!(TextPainter::new(Color::Never, true).bad("x"), "x");
        assert_ne!(TextPainter::new(Color::Always, false).bad("x"), "x");
        assert_eq!(TextPainter::new(Color::Auto, false).bad("x"), "x");
    }
}
