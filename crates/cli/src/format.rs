//! The formats in which commands print records: text, JSON, only the payload, or a template of the user.

mod interpreter;
pub mod json;
mod template;
pub mod text;

use std::io::{self, Write};
use std::str::FromStr;

use dunlin_topic::{Notice, Record};

use crate::console::TextPainter;
pub use interpreter::Interpreters;
pub use json::base64;
use template::Template;
pub use template::rfc3339;
pub use text::{log_name, publishers_text};

/// The output format of records: a value of option `--format`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    Text,
    Json,
    Raw,
    Template(Template),
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        match text {
            "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            "raw" => Ok(Format::Raw),
            _ if text.contains('{') => text.parse().map(Format::Template),
            _ => Err("expected text, json, raw, or a template like '{seq} {payload}'".into()),
        }
    }
}

/// Prints the records and notices of one subscription.
#[derive(Debug)]
pub struct EventPrinter {
    pub format: Format,
    /// The text that is written after each record in raw and template output.
    pub delimiter: String,
    /// Whether the records may come from several logs. In text output, each line then also names the subject.
    pub several_logs: bool,
    /// Whether the output is a terminal. If so, control characters are escaped.
    pub is_terminal: bool,
    /// Decodes the payloads of records of state topics.
    pub interpreters: Interpreters,
    pub paint: TextPainter,
    /// The colours of notices on standard error.
    pub errors: TextPainter,
}

impl EventPrinter {
    /// Writes a record. `attempt` says how many times the group has delivered the record; it is `None` outside of a
    /// group.
    pub fn record(&self, record: &Record<'_>, attempt: Option<u32>, out: &mut impl Write) -> io::Result<()> {
        match &self.format {
            Format::Text => {
                let decoded = self.interpreters.text(record);
                text::record(record, attempt, decoded.as_deref(), self.several_logs, self.paint, out)
            }
            Format::Json => json::record(record, attempt, self.interpreters.object(record), out),
            Format::Raw => {
                text::payload(record.payload(), self.is_terminal, out)?;
                out.write_all(self.delimiter.as_bytes())
            }
            Format::Template(template) => {
                template.write(record, attempt, self.is_terminal, out)?;
                out.write_all(self.delimiter.as_bytes())
            }
        }
    }

    /// Writes a notice to `out`. In raw and template output, writes it to `notices` instead, so that `out` contains
    /// only records.
    pub fn notice(&self, notice: &Notice, out: &mut impl Write, notices: &mut impl Write) -> io::Result<()> {
        match &self.format {
            Format::Text => match notice {
                Notice::Snapshot(snapshot) => {
                    let decoded = self.interpreters.state_text(snapshot);
                    text::state(snapshot, decoded, self.several_logs, self.paint, out)
                }
                notice => text::notice(notice, self.several_logs, self.paint, out),
            },
            Format::Json => match notice {
                Notice::Snapshot(snapshot) => {
                    json::state(snapshot, self.interpreters.state_object(snapshot), out)
                }
                notice => json::notice(notice, out),
            },
            Format::Raw | Format::Template(_) => text::notice(notice, true, self.errors, notices),
        }
    }
}
