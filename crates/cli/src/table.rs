//! Formats text tables. Each column is as wide as its content, and numbers are aligned to the right.

use std::io::{self, Write};

use crate::console::TextPainter;
use crate::format::text::escaped;

/// A text table with a heading, printed with aligned columns.
#[derive(Debug)]
pub struct TextTable {
    heading: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

const BETWEEN: &str = "  ";

impl TextTable {
    pub fn new(heading: &[&'static str]) -> TextTable {
        TextTable { heading: heading.to_vec(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If the row and the heading have different numbers of cells.
    pub fn row(&mut self, cells: impl Into<Vec<String>>) {
        // Control characters are escaped, because names may contain them.
        let cells: Vec<String> = cells.into().iter().map(|cell| escaped(cell.as_bytes())).collect();
        assert_eq!(cells.len(), self.heading.len(), "a row for another table");
        self.rows.push(cells);
    }

    pub fn write(&self, out: &mut impl Write, paint: TextPainter) -> io::Result<()> {
        let columns: Vec<Column> = (0..self.heading.len()).map(|at| self.column(at)).collect();
        let heading = columns.iter().zip(&self.heading).map(|(column, cell)| column.align(cell));
        writeln!(out, "{}", paint.strong(&line(heading)))?;
        for row in &self.rows {
            writeln!(out, "{}", line(columns.iter().zip(row).map(|(column, cell)| column.align(cell))))?;
        }
        Ok(())
    }

    fn column(&self, at: usize) -> Column {
        let cells = || self.rows.iter().map(|row| row[at].as_str());
        Column {
            width: cells().chain([self.heading[at]]).map(|cell| cell.chars().count()).max().unwrap_or(0),
            numbers: self.rows.is_empty() || cells().all(is_number),
        }
    }
}

struct Column {
    width: usize,
    numbers: bool,
}

impl Column {
    fn align(&self, cell: &str) -> String {
        let width = self.width;
        if self.numbers { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    }
}

fn is_number(cell: &str) -> bool {
    cell.starts_with(|c: char| c.is_ascii_digit() || c == '–')
        && !cell.contains(|c: char| c.is_alphabetic() || c == ':')
}

fn line(cells: impl Iterator<Item = String>) -> String {
    cells.collect::<Vec<_>>().join(BETWEEN).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_table_cells_are_neutralized() {
        let mut table = TextTable::new(&["NAME", "LOG"]);
        table.row(["\x1b]0;owned\x07\x1b[2J\r\nFAKE ROW \u{9b}2J\u{202e}\u{200b}".into(), "0".into()]);
        let mut text = Vec::new();
        table.write(&mut text, TextPainter::PLAIN).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert!(!text.contains(|c: char| c != '\n' && dunlin_topic::needs_escape(c)), "{text:?}");
    }

    #[test]
    fn table_aligns_words_left_and_numbers_right() {
        let mut table = TextTable::new(&["TOPIC", "RECORDS"]);
        table.row(["ticks".into(), "1,042".into()]);
        table.row(["orders.>".into(), "7".into()]);
        let mut text = Vec::new();
        table.write(&mut text, TextPainter::PLAIN).unwrap();
        let expected = "TOPIC     RECORDS\nticks       1,042\norders.>        7\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
