//! Compares the recordings with the lines that each node's reader received.

use std::collections::BTreeMap;
use std::io::{self, Write};

use dunlin_cli::console::{Console, grouped};
use dunlin_cli::table::TextTable;
use serde_json::json;

use super::progress::{ReadProgressByTopic, TopicReadProgress};
use crate::demo::account::ContentDigest;
use crate::demo::recording::MarketRecording;

/// A table with one row for each node and topic, which shows whether the received lines equal the published lines.
#[derive(Debug, Default)]
pub struct NodeVerdicts {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    node: String,
    topic: String,
    published: u64,
    received: u64,
    epochs: u64,
    is_equal: bool,
    fault: Option<String>,
}

impl NodeVerdicts {
    /// Compares the published lines with the lines that one node's reader received, and adds the results to the table.
    pub fn judge(
        &mut self,
        node: &str,
        recordings: &[MarketRecording],
        ends: &BTreeMap<String, u64>,
        by_topic: &ReadProgressByTopic,
    ) {
        let nothing = TopicReadProgress::default();
        for recording in recordings {
            let published = ends.get(&recording.topic).copied().unwrap_or_default();
            let progress = by_topic.get(&recording.topic).unwrap_or(&nothing);
            let mut expected = ContentDigest::default();
            (0..published as usize).for_each(|at| expected.add(recording.line(at)));
            let is_equal =
                progress.content == expected && progress.through.seq == published && progress.fault.is_none();
            self.rows.push(Row {
                node: node.to_owned(),
                topic: recording.topic.clone(),
                published,
                received: progress.through.seq,
                epochs: progress.epochs,
                is_equal,
                fault: progress.fault.clone(),
            });
        }
    }

    /// Returns the number of rows in which the received lines differ from the published lines.
    pub fn different(&self) -> usize {
        self.rows.iter().filter(|row| !row.is_equal).count()
    }

    pub fn sentence(&self) -> String {
        let equal = self.rows.len() - self.different();
        format!("{equal} of {} copies equal the recordings", self.rows.len())
    }

    pub fn write(&self, out: &mut impl Write, console: &Console) -> io::Result<()> {
        if console.json {
            return self.rows.iter().try_for_each(|row| writeln!(out, "{}", row.object()));
        }
        writeln!(out, "\nThe lines that each node's subscriber received, compared with the recordings")?;
        let mut table = TextTable::new(&["NODE", "TOPIC", "PUBLISHED", "RECEIVED", "NEW EPOCHS", "EQUAL"]);
        for row in &self.rows {
            table.row([
                row.node.clone(),
                row.topic.clone(),
                grouped(row.published),
                grouped(row.received),
                grouped(row.epochs),
                if row.is_equal { "yes" } else { "NO" }.to_owned(),
            ]);
        }
        table.write(out, console.paint)?;
        for row in self.rows.iter().filter(|row| !row.is_equal) {
            let why = row.fault.as_deref().unwrap_or("some lines are missing or different");
            writeln!(
                out,
                "{} {}, {}: {why}",
                console.paint.bad("differs from the recording:"),
                row.node,
                row.topic
            )?;
        }
        writeln!(out, "\n{}", console.paint.verdict(self.different() == 0, &self.sentence()))
    }
}

impl Row {
    fn object(&self) -> serde_json::Value {
        json!({
            "node": self.node, "topic": self.topic, "published": self.published, "seen": self.received,
            "new_epochs": self.epochs, "equal": self.is_equal, "fault": self.fault,
        })
    }
}
