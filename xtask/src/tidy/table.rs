//! Reads Markdown tables, such as those in ARCHITECTURE.md. A table is identified by the words in its header row.

/// A row of a table: the number of its line, counted from 1, and its cells.
#[derive(Debug)]
pub struct Row<'a> {
    pub line: usize,
    pub cells: Vec<&'a str>,
}

/// Returns the rows of the first table with this header; `None` if there is no such table.
pub fn rows<'a>(page: &'a str, header: &[&str]) -> Option<Vec<Row<'a>>> {
    let mut lines = page.lines().enumerate();
    lines.find(|(_, line)| cells(line).is_some_and(|cells| cells == header))?;
    let below = lines.map_while(|(index, line)| Some(Row { line: index + 1, cells: cells(line)? }));
    // Skips the first line below the header, which consists of dashes.
    Some(below.skip(1).filter(|row| row.cells.len() == header.len()).collect())
}

/// Returns the words in a cell that are in backticks.
pub fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_starts_at_its_header_and_ends_at_a_line_without_bars() {
        let page = "text\n| a | b |\n|---|---|\n| 1 | `x`, `y` |\n\n| 2 | z |\n";
        let rows = rows(page, &["a", "b"]).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].line, names(rows[0].cells[1])), (4, vec!["x", "y"]));
        assert!(super::rows(page, &["a", "c"]).is_none());
    }
}
