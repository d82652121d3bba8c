//! Formats tables as text, with aligned columns for a terminal or a pipe, or as Markdown. The tables need only aligned
//! cells, one horizontal line, and optional colours, so no library is used.

use std::fmt::Write;

/// How a line of a table is highlighted in a terminal: not at all, as a success, as a failure, or as a line about
/// another system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineStyle {
    /// The line is not highlighted.
    Plain,
    /// The line shows a success.
    Good,
    /// The line shows a missed goal or another failure.
    Bad,
    /// The line is about another system.
    Dim,
}

impl LineStyle {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "\x1b[32m",
            Self::Bad => "\x1b[31m",
            Self::Dim => "\x1b[2m",
        }
    }
}

/// A table of text. The first column is aligned to the left, the others to the right.
#[derive(Clone, Debug)]
pub struct Table {
    /// The title above the table.
    pub title: String,
    columns: Vec<String>,
    lines: Vec<(LineStyle, Vec<String>)>,
}

impl Table {
    /// Creates a table without lines.
    pub fn new(title: &str, columns: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            lines: Vec::new(),
        }
    }

    /// Adds a line. If there are fewer cells than columns, the missing cells are empty.
    pub fn push_line(&mut self, style: LineStyle, mut cells: Vec<String>) {
        cells.resize(self.columns.len(), String::new());
        self.lines.push((style, cells));
    }

    /// Whether the table has no lines.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the table as text with aligned columns, in colour if `colour` is set.
    pub fn text(&self, colour: bool) -> String {
        let widths = self.widths();
        let mut out = format!("\n{}\n", self.title);
        let header = aligned(&self.columns, &widths);
        let rule = "-".repeat(header.chars().count());
        let _ = writeln!(out, "{header}\n{rule}");
        for (style, cells) in &self.lines {
            let line = aligned(cells, &widths);
            let code = if colour { style.code() } else { "" };
            let end = if code.is_empty() { "" } else { "\x1b[0m" };
            let _ = writeln!(out, "{code}{}{end}", line.trim_end());
        }
        out
    }

    /// Returns the table as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!("| {} |\n|{}\n", self.columns.join(" | "), "---|".repeat(self.columns.len()));
        for (_, cells) in &self.lines {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            let _ = writeln!(out, "| {} |", cells.join(" | "));
        }
        out
    }

    fn widths(&self) -> Vec<usize> {
        let all = || std::iter::once(&self.columns).chain(self.lines.iter().map(|(_, cells)| cells));
        (0..self.columns.len())
            .map(|nth| all().map(|cells| cells[nth].chars().count()).max().unwrap_or(0))
            .collect()
    }
}

fn aligned(cells: &[String], widths: &[usize]) -> String {
    let cells = cells.iter().zip(widths).enumerate().map(|(nth, (cell, &width))| match nth {
        0 => format!("{cell:<width$}"),
        _ => format!("{cell:>width$}"),
    });
    cells.collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new("Throughput", &["Scenario", "msg/s"]);
        table.push_line(LineStyle::Good, vec!["dunlin".into(), "13.6 M/s".into()]);
        table.push_line(LineStyle::Dim, vec!["raw".into()]);
        table
    }

    #[test]
    fn piped_table_has_aligned_columns_and_no_colour() {
        let text = table().text(false);
        assert_eq!(
            text,
            "\nThroughput\nScenario |    msg/s\n-------------------\ndunlin   | 13.6 M/s\nraw      |\n"
        );
    }

    #[test]
    fn table_in_a_terminal_has_colour() {
        assert!(table().text(true).contains("\x1b[32mdunlin"));
    }

    #[test]
    fn markdown_table_has_a_header_line_and_escaped_vertical_bars() {
        let mut table = Table::new("", &["a", "b"]);
        table.push_line(LineStyle::Plain, vec!["x|y".into(), "1".into()]);
        assert_eq!(table.markdown(), "| a | b |\n|---|---|\n| x\\|y | 1 |\n");
    }
}
