//! Prints the overview of a node as plain text, for output that is not a terminal.

use std::io::{self, Write};

use super::figures::{self, StatusTable};
use super::report::NodeReport;
use crate::console::TextPainter;
use crate::table::TextTable;

/// The maximum number of rows that each table shows. The dashboard shows all rows.
const ROWS_MAX: usize = 20;

pub fn write(report: &NodeReport, out: &mut impl Write, paint: TextPainter) -> io::Result<()> {
    writeln!(
        out,
        "{}  {}",
        paint.strong(&figures::node_title(report)),
        figures::node_address_or_outage(report)
    )?;
    for (name, figure) in figures::figures(report) {
        writeln!(out, "  {name:<11}{figure}")?;
    }
    let tables = [
        figures::subscribers(report),
        figures::topics(report),
        figures::nodes(report),
        figures::work(report),
        figures::spaces(report),
    ];
    tables.iter().try_for_each(|listed| write_table(listed, out, paint))
}

fn write_table(listed: &StatusTable, out: &mut impl Write, paint: TextPainter) -> io::Result<()> {
    writeln!(out, "\n{}", paint.strong(&listed.title))?;
    if listed.rows.is_empty() {
        return writeln!(out, "{}", paint.faint("none"));
    }
    let mut table = TextTable::new(listed.heading);
    listed.rows.iter().take(ROWS_MAX).for_each(|row| table.row(row.clone()));
    table.write(out, paint)?;
    match listed.rows.len().saturating_sub(ROWS_MAX) {
        0 => Ok(()),
        more => writeln!(out, "and {more} more"),
    }
}
