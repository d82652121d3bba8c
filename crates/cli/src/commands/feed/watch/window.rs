//! The size of the terminal, and the number of price levels and lines that fit into it.

use terminal_size::{Height, Width};

/// The number of columns and rows of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    pub columns: usize,
    rows: usize,
}

/// The number of lines of a book's table besides its price levels: a title and a heading.
const LADDER_HEAD: usize = 2;

impl TerminalSize {
    /// Returns the present size of the terminal.
    pub fn now() -> TerminalSize {
        let (Width(columns), Height(rows)) =
            terminal_size::terminal_size().unwrap_or((Width(80), Height(24)));
        TerminalSize { columns: usize::from(columns).max(20), rows: usize::from(rows).max(4) }
    }

    /// The number of lines that can be redrawn: all but the input line.
    fn lines(self) -> usize {
        self.rows - 1
    }

    /// The number of price levels per side that the terminal can show for each of `ladders` books; at most `requested`.
    pub fn depth(self, requested: usize, ladders: usize) -> usize {
        let lines_per_ladder = self.lines() / ladders.max(1);
        requested.min(lines_per_ladder.saturating_sub(LADDER_HEAD)).max(1)
    }

    /// Cuts the lines to the size of the terminal. If lines are omitted, the last line shows their number.
    pub fn fit(self, mut lines: Vec<String>) -> Vec<String> {
        if lines.len() > self.lines() {
            let more = lines.len() - self.lines() + 1;
            lines.truncate(self.lines() - 1);
            lines.push(format!("… {more} more lines; `show` prints all"));
        }
        lines.iter_mut().for_each(|line| cut(line, self.columns));
        lines
    }
}

/// Cuts a line to `columns` columns, and keeps its colour codes.
fn cut(line: &mut String, columns: usize) {
    let (mut kept, mut width, mut colour) = (String::with_capacity(line.len()), 0, false);
    for c in line.chars() {
        if c == '\x1b' {
            colour = true;
        }
        if colour {
            kept.push(c);
            colour = c != 'm';
        } else if width < columns {
            kept.push(c);
            width += 1;
        }
    }
    *line = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: TerminalSize = TerminalSize { columns: 20, rows: 24 };

    #[test]
    fn order_book_ladders_share_the_window_height() {
        assert_eq!(WINDOW.depth(10, 1), 10);
        assert_eq!(WINDOW.depth(30, 1), 21);
        assert_eq!(WINDOW.depth(10, 3), 5);
        assert_eq!(WINDOW.depth(10, 100), 1, "one level at least");
    }

    #[test]
    fn lines_are_cut_to_the_window_and_hidden_lines_are_counted() {
        let lines: Vec<String> =
            (0..50).map(|line| format!("\x1b[1mline {line}\x1b[0m and more than that")).collect();
        let fitted = WINDOW.fit(lines.clone());
        assert_eq!(fitted.len(), 23);
        assert_eq!(fitted[0], "\x1b[1mline 0\x1b[0m and more than");
        assert!(fitted[22].starts_with("… 28 more lines"), "{}", fitted[22]);
        assert_eq!(WINDOW.fit(lines[..23].to_vec()).len(), 23);
    }
}
