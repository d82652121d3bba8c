//! Prints the demo's final table with the result of each subscriber, and computes the totals that decide whether the
//! demo passes.

use std::io::{self, Write};

use dunlin_cli::console::{Console, grouped};
use dunlin_cli::table::TextTable;
use serde_json::json;

use super::account::TopicReadReport;
use super::ledger::{ContentMatch, LineLedger, ReadVerdict};
use super::reader::DemoReader;

/// A table with one row for each subscriber and topic, which shows whether every record is accounted for.
#[derive(Debug, Default)]
pub struct SubscriberVerdicts {
    rows: Vec<(String, String, ReadVerdict)>,
}

impl SubscriberVerdicts {
    /// Compares a subscriber's accounts of `topics` with the ledger, and adds the results to the table.
    pub fn judge(&mut self, name: &str, topics: &[String], reader: &DemoReader, ledger: &LineLedger<'_>) {
        let accounts = reader.accounts();
        let nothing = TopicReadReport::default();
        for topic in topics {
            let verdict = ledger.judge(topic, accounts.get(topic).unwrap_or(&nothing));
            self.rows.push((name.to_owned(), topic.clone(), verdict));
        }
    }

    pub fn unaccounted(&self) -> u64 {
        self.rows.iter().map(|row| row.2.unaccounted).sum()
    }

    pub fn write(&self, out: &mut impl Write, console: &Console) -> io::Result<()> {
        if console.json {
            return self.write_json(out);
        }
        let mut table = TextTable::new(&[
            "SUBSCRIBER",
            "TOPIC",
            "PUBLISHED",
            "RECEIVED",
            "GAPS",
            "MISSED",
            "UNACCOUNTED",
            "CONTENT",
        ]);
        for (name, topic, verdict) in &self.rows {
            table.row([
                name.clone(),
                topic.clone(),
                grouped(verdict.published),
                grouped(verdict.received),
                grouped(verdict.gaps as u64),
                grouped(verdict.missed),
                grouped(verdict.unaccounted),
                verdict.bytes.text().to_owned(),
            ]);
        }
        table.write(out, console.paint)?;
        for (name, topic, verdict) in self.rows.iter().filter(|row| !row.2.faults.is_empty()) {
            let more = verdict.faults.len() - 1;
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            writeln!(out, "{} {name}, {topic}: {}{more}", console.paint.bad("fault:"), verdict.faults[0])?;
        }
        self.write_totals(out, console)
    }

    fn write_totals(&self, out: &mut impl Write, console: &Console) -> io::Result<()> {
        let sum = |of: fn(&ReadVerdict) -> u64| self.rows.iter().map(|row| of(&row.2)).sum::<u64>();
        let (published, received, missed) = (sum(|v| v.published), sum(|v| v.received), sum(|v| v.missed));
        let summary = format!(
            "{} records for all subscribers: {} received, {} reported as missed, ",
            grouped(published),
            grouped(received),
            grouped(missed)
        );
        match self.unaccounted() {
            0 => writeln!(out, "\n{summary}{}", console.paint.good("0 unaccounted for")),
            lost => {
                writeln!(
                    out,
                    "\n{summary}{}",
                    console.paint.bad(&format!("{} UNACCOUNTED FOR", grouped(lost)))
                )
            }
        }
    }

    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        self.rows.iter().try_for_each(|(name, topic, verdict)| {
            let object = json!({
                "subscriber": name, "topic": topic, "published": verdict.published, "seen": verdict.received,
                "gaps": verdict.gaps, "missed": verdict.missed, "unaccounted": verdict.unaccounted,
                "bytes": verdict.bytes.text(), "faults": verdict.faults,
            });
            writeln!(out, "{object}")
        })
    }
}

impl ContentMatch {
    fn text(self) -> &'static str {
        match self {
            ContentMatch::Equal => "equal",
            ContentMatch::EqualButGaps => "equal except for gaps",
            ContentMatch::Different => "DIFFERENT",
        }
    }
}
