//! `charts`: draws charts from the benchmark runs that are stored in `bench-runs/`.
//!
//! All values of a chart come from one run: the newest run that contains all values of the chart. Text and lines have
//! colours that suit the reader's colour scheme, light or dark.

mod fanout;
mod round_trips;
mod stored;

use std::fs;

use anyhow::{Context, Result};
use plotters::prelude::*;

use crate::workspace;
use stored::BenchRun;

/// The directory in which the charts are stored.
const FOLDER: &str = "docs/pictures";
/// The width of a chart in pixels.
const WIDTH: u32 = 820;
/// The colour of text and lines for programs that ignore a chart's style sheet.
const INK: RGBColor = RGBColor(0x76, 0x7d, 0x87);
/// The colour in which charts show Dunlin's values.
const DUNLIN: RGBColor = RGBColor(0x3b, 0x82, 0xf6);
const FONT: &str = "sans-serif";
const STYLE: &str = "<style>text{fill:#30363d}@media(prefers-color-scheme:dark){text{fill:#d0d7de}}</style>";

/// A function that draws one chart. Returns `None` if the run lacks one of the chart's values.
type Draw = fn(&BenchRun) -> Option<Result<String>>;

pub fn run() -> Result<()> {
    let runs = stored::newest_first()?;
    let folder = workspace::root().join(FOLDER);
    let charts: [(&str, Draw); 2] = [("fan-out", fanout::draw), ("round-trips", round_trips::draw)];
    for (name, draw) in charts {
        let svg = runs
            .iter()
            .find_map(draw)
            .with_context(|| format!("no stored run has all results of {name}"))??;
        let path = folder.join(format!("{name}.svg"));
        fs::write(&path, add_style(&svg)).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{FOLDER}/{name}.svg");
    }
    Ok(())
}

/// Inserts [`STYLE`] into an SVG text, directly after the opening tag `<svg …>`.
fn add_style(svg: &str) -> String {
    match svg.find("<svg").and_then(|at| Some(at + svg[at..].find('>')? + 1)) {
        Some(at) => format!("{}{STYLE}{}", &svg[..at], &svg[at..]),
        None => svg.to_owned(),
    }
}

fn text_style(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

/// Returns the line below a chart, which names the run that measured the chart's values.
fn source_note(run: &BenchRun) -> String {
    format!("{}; run of {}, commit {}", run.machine, run.date, run.commit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_style_is_inserted_inside_the_svg_element() {
        assert_eq!(add_style("<svg width=\"1\"><g/></svg>"), format!("<svg width=\"1\">{STYLE}<g/></svg>"));
    }

    #[test]
    fn stored_runs_of_benchmarks_have_the_data_of_every_chart() {
        let runs = stored::newest_first().unwrap();
        assert!(runs.iter().any(|run| fanout::draw(run).is_some_and(|svg| svg.is_ok())));
        assert!(runs.iter().any(|run| round_trips::draw(run).is_some_and(|svg| svg.is_ok())));
    }
}
