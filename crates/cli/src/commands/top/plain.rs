//! The overview as plain text, for output that is not a terminal.

use std::io::{self, Write};

use super::figures::{self, Listed};
use super::told::Told;
use crate::console::Paint;
use crate::table::Table;

/// Rows per table; the dashboard shows all.
const ROWS_MAX: usize = 20;

pub fn write(told: &Told, out: &mut impl Write, paint: Paint) -> io::Result<()> {
    writeln!(out, "{}  {}", paint.strong(&figures::who(told)), figures::heard(told))?;
    for (name, figure) in figures::figures(told) {
        writeln!(out, "  {name:<9}{figure}")?;
    }
    let tables = [
        figures::readers(told),
        figures::topics(told),
        figures::nodes(told),
        figures::work(told),
        figures::spaces(told),
    ];
    tables.iter().try_for_each(|listed| write_table(listed, out, paint))
}

fn write_table(listed: &Listed, out: &mut impl Write, paint: Paint) -> io::Result<()> {
    writeln!(out, "\n{}", paint.strong(&listed.title))?;
    if listed.rows.is_empty() {
        return writeln!(out, "{}", paint.faint("none"));
    }
    let mut table = Table::new(listed.heading);
    listed.rows.iter().take(ROWS_MAX).for_each(|row| table.row(row.clone()));
    table.write(out, paint)?;
    match listed.rows.len().saturating_sub(ROWS_MAX) {
        0 => Ok(()),
        more => writeln!(out, "and {more} more"),
    }
}
