//! Compares every replica's order books with the expected books, which the oracle (module `oracle`) computes.

use std::collections::HashMap;
use std::io::{self, Write};

use dunlin_cli::console::{Console, grouped};
use dunlin_cli::table::TextTable;
use serde_json::json;

use super::oracle::SizeByPrice;
use super::reader::ReplicaResult;

/// A table with one row for each replica, which shows whether the replica's order books equal the expected books.
#[derive(Debug, Default)]
pub struct ReplicaVerdicts {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: String,
    books: usize,
    levels: usize,
    checksum: u64,
    records: u64,
    merged: u64,
    snapshots: u64,
    resyncs: u64,
    lost: u64,
    healed: u64,
    restarts: u64,
    /// The topics of the books that differ from the expected books, in alphabetical order.
    different: Vec<String>,
}

impl ReplicaVerdicts {
    /// Compares one replica's books with the expected books, and adds a row to the table.
    pub fn judge(&mut self, name: &str, result: &ReplicaResult, expected: &HashMap<String, SizeByPrice>) {
        let mut different: Vec<String> = Vec::new();
        for (topic, levels) in expected {
            let actual = result.books.iter().find(|book| book.0 == *topic).map(|book| &book.1);
            // A replica has no book for a topic without records. Such a missing book counts as an empty book.
            if actual != Some(levels) && !(actual.is_none() && levels.is_empty()) {
                different.push(topic.clone());
            }
        }
        different.extend(
            result.books.iter().map(|book| book.0.clone()).filter(|topic| !expected.contains_key(topic)),
        );
        different.sort();
        let counts = &result.counts;
        self.rows.push(Row {
            name: name.to_owned(),
            books: result.books.len(),
            levels: result.books.iter().map(|book| book.1.len()).sum(),
            checksum: result.books.iter().fold(0, |sum: u64, book| sum.wrapping_add(book.2)),
            records: counts.records,
            merged: counts.conflated,
            snapshots: counts.snapshots,
            resyncs: counts.resyncs,
            lost: counts.gaps + counts.holes,
            healed: counts.gaps_healed,
            restarts: result.restarts,
            different,
        });
    }

    /// Returns the number of replicas with at least one book that differs from the expected book.
    pub fn different(&self) -> usize {
        self.rows.iter().filter(|row| !row.different.is_empty()).count()
    }

    pub fn sentence(&self) -> String {
        let equal = self.rows.len() - self.different();
        format!("{equal} of {} replicas equal the expected books", self.rows.len())
    }

    pub fn write(&self, out: &mut impl Write, console: &Console) -> io::Result<()> {
        if console.json {
            return self.rows.iter().try_for_each(|row| writeln!(out, "{}", row.object()));
        }
        writeln!(
            out,
            "\nThe replicas' order books, compared with those of an oracle that reads the recordings itself"
        )?;
        let mut table = TextTable::new(&[
            "REPLICA",
            "BOOKS",
            "LEVELS",
            "CHECKSUM",
            "RECORDS",
            "MERGED",
            "SNAPSHOTS",
            "RESYNCS",
            "GAPS",
            "HEALED",
            "EQUAL",
        ]);
        for row in &self.rows {
            table.row([
                row.name.clone(),
                row.books.to_string(),
                grouped(row.levels as u64),
                format!("{:016x}", row.checksum),
                grouped(row.records),
                grouped(row.merged),
                grouped(row.snapshots),
                grouped(row.resyncs),
                grouped(row.lost),
                grouped(row.healed),
                if row.different.is_empty() { "yes" } else { "NO" }.to_owned(),
            ]);
        }
        table.write(out, console.paint)?;
        for row in self.rows.iter().filter(|row| !row.different.is_empty()) {
            let (first, more) = (&row.different[0], row.different.len() - 1);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            writeln!(
                out,
                "{} {}: {first}{more}",
                console.paint.bad("differs from the oracle's book:"),
                row.name
            )?;
        }
        writeln!(out, "\n{}", console.paint.verdict(self.different() == 0, &self.sentence()))
    }
}

impl Row {
    fn object(&self) -> serde_json::Value {
        json!({
            "replica": self.name, "books": self.books, "levels": self.levels,
            "checksum": format!("{:016x}", self.checksum), "records": self.records, "merged": self.merged,
            "snapshots": self.snapshots, "resyncs": self.resyncs, "gaps": self.lost, "healed": self.healed,
            "restarts": self.restarts, "equal": self.different.is_empty(), "different": self.different,
        })
    }
}
