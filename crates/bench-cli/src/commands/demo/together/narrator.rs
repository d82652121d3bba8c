//! Prints the output of `demo --together`: lines of text while the demo runs, and tables at the end.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use dunlin_cli::console::Console;
use dunlin_cli::table::TextTable;

/// Prints each event of the demo with the time since the demo's start.
pub struct DemoEventPrinter<'a> {
    pub console: &'a Console,
    began: Instant,
}

impl<'a> DemoEventPrinter<'a> {
    pub fn new(console: &'a Console) -> DemoEventPrinter<'a> {
        DemoEventPrinter { console, began: Instant::now() }
    }

    /// Prints an event of the demo. `part` names the part of the demo in which the event happened, such as `tasks`.
    pub fn print_event(&self, part: &str, text: &str) -> Result<()> {
        let at_s = self.began.elapsed().as_secs_f64();
        if self.console.json {
            return self
                .print_line(&json!({"at_s": at_s, "part": part, "text": text.trim_start()}).to_string());
        }
        let part = self.console.paint.strong(&format!("{part:<6}"));
        self.print_line(&format!("{at_s:6.1} s  {part}  {}", text.trim_start()))
    }

    pub fn print_line(&self, text: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    }

    /// Prints the URLs of the nodes and of the dashboard.
    pub fn print_addresses(&self, urls: &[String], dashboard: Option<&str>) -> Result<()> {
        if self.console.json {
            return self.print_line(&json!({"nodes": urls, "dashboard": dashboard}).to_string());
        }
        self.print_line(&format!("a cluster of {} nodes: {}", urls.len(), urls.join(", ")))?;
        if let Some(dashboard) = dashboard {
            let paint = self.console.paint;
            let about = paint.good("the dashboard, in a browser: it shows all five parts");
            self.print_line(&format!("\n  {}  {about}\n", paint.strong(dashboard)))?;
        }
        Ok(())
    }
}

/// The result of one part of the demo: the part's name, whether the part passed, and a sentence about the result.
pub type PartResult = (&'static str, (bool, String));

/// The final tables and results of all parts of the demo. Each part adds its tables and results when the part ends. The
/// demo prints them together at its end.
#[derive(Debug, Default)]
pub struct ClosingReport {
    tables: Vec<u8>,
    sentences: Vec<PartResult>,
}

/// The order in which the results of the parts are printed.
const PARTS: [&str; 5] = ["topics", "feeds", "nodes", "tasks", "space"];

/// Adds the final tables of one part of the demo, and sentences about the part's results, to `closing`.
pub fn add(closing: &Mutex<ClosingReport>, tables: Vec<u8>, sentences: Vec<PartResult>) {
    let mut closing = closing.lock().unwrap_or_else(PoisonError::into_inner);
    closing.tables.extend(tables);
    closing.sentences.extend(sentences);
    closing.sentences.sort_by_key(|(part, _)| PARTS.iter().position(|known| known == part));
}

impl ClosingReport {
    pub fn holds(&self) -> bool {
        self.sentences.iter().all(|(_, (holds, _))| *holds)
    }

    /// Prints all tables, and then one line for each part with the part's result.
    pub fn write(&self, console: &Console) -> Result<()> {
        let mut out = console.out();
        out.write_all(&self.tables)?;
        if console.json {
            for (part, (holds, text)) in &self.sentences {
                writeln!(out, "{}", json!({"part": part, "holds": holds, "text": text}))?;
            }
            return Ok(out.flush()?);
        }
        writeln!(out)?;
        let mut table = TextTable::new(&["PART", "PASSED", "RESULT"]);
        for (part, (holds, text)) in &self.sentences {
            table.row([(*part).to_owned(), if *holds { "yes" } else { "NO" }.to_owned(), text.clone()]);
        }
        table.write(&mut out, console.paint)?;
        let held = self.sentences.iter().filter(|(_, (holds, _))| *holds).count();
        let result = format!("{held} of {} parts passed", self.sentences.len());
        writeln!(out, "\n{}", console.paint.verdict(self.holds(), &result))?;
        Ok(out.flush()?)
    }
}
