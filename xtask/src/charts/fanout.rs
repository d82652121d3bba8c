//! Draws a chart of fan-out: how many records a second one publisher delivers to all subscribers together, for
//! different numbers of subscribers.

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde_json::json;

use super::stored::{BenchRun, MeasuredValue};
use super::{DUNLIN, INK, WIDTH, source_note, text_style};

const HEIGHT: u32 = 380;
const SUBSCRIBERS: [u32; 5] = [10, 100, 1_000, 10_000, 100_000];

/// Draws the chart. Returns `None` if the run lacks one of the chart's values.
pub fn draw(run: &BenchRun) -> Option<Result<String>> {
    let figure = |subscribers: u32| {
        let params = [("bytes", json!(64)), ("subscribers", json!(subscribers))];
        run.figure("fanout", "dunlin", &params, "deliveries_per_s")
    };
    let figures: Option<Vec<(u32, MeasuredValue)>> =
        SUBSCRIBERS.iter().map(|&n| Some((n, figure(n)?))).collect();
    Some(draw_figures(run, &figures?))
}

fn draw_figures(run: &BenchRun, figures: &[(u32, MeasuredValue)]) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        let max = figures.iter().map(|(_, figure)| figure.max).fold(0.0, f64::max) / 1e6;
        let mut chart = ChartBuilder::on(&area)
            .caption(
                "One publisher, many subscribers in its process: 64 B records, each read and checked",
                text_style(17),
            )
            .margin(14)
            .margin_bottom(34)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d((7f64..150_000f64).log_scale(), 0f64..(max * 1.15))
            .map_err(drawing_error)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh().bold_line_style(INK.mix(0.35)).light_line_style(INK.mix(0.0)).axis_style(INK);
        mesh.x_desc("subscribers").y_desc("million deliveries a second").label_style(text_style(13));
        mesh.x_label_formatter(&|n| thousands(*n)).y_label_formatter(&|m| format!("{m:.0}"));
        mesh.draw().map_err(drawing_error)?;
        let points: Vec<_> = figures.iter().map(|(n, figure)| (f64::from(*n), figure.median / 1e6)).collect();
        chart
            .draw_series([PathElement::new(points.clone(), DUNLIN.stroke_width(2))])
            .map_err(drawing_error)?;
        let ranges = figures.iter().map(|(n, figure)| {
            let n = f64::from(*n);
            PathElement::new(
                vec![(n, figure.min / 1e6), (n, figure.max / 1e6)],
                DUNLIN.mix(0.5).stroke_width(5),
            )
        });
        chart.draw_series(ranges).map_err(drawing_error)?;
        let above = Pos::new(HPos::Center, VPos::Bottom);
        for (n, median) in points {
            chart.draw_series([Circle::new((n, median), 4, DUNLIN.filled())]).map_err(drawing_error)?;
            let (x, y) = chart.backend_coord(&(n, median));
            area.draw(&Text::new(format!("{median:.0}"), (x, y - 16), text_style(13).pos(above)))
                .map_err(drawing_error)?;
        }
        let note = format!("Bars: least to most of the runs. {}.", source_note(run));
        area.draw(&Text::new(note, (20, HEIGHT as i32 - 24), text_style(11))).map_err(drawing_error)?;
        area.present().map_err(drawing_error)?;
    }
    Ok(svg)
}

fn thousands(n: f64) -> String {
    if n >= 1_000.0 { format!("{:.0},000", n / 1_000.0) } else { format!("{n:.0}") }
}

fn drawing_error<E: std::fmt::Display>(error: E) -> anyhow::Error {
    anyhow!("cannot draw the chart of fan-out: {error}")
}
