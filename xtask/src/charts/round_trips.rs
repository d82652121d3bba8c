//! Draws a chart of the round trip times of Dunlin and other systems.

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde_json::{Value, json};

use super::stored::BenchRun;
use super::{DUNLIN, INK, WIDTH, source_note, text_style};

const BAR: i32 = 22;
const TITLE: i32 = 34;
const TOP: i32 = 40;
const BOTTOM: i32 = 58;
const LEFT: i32 = 130;
const RIGHT: i32 = 90;
const FROM_NS: f64 = 100.0;
const TO_NS: f64 = 200_000.0;

/// One panel of the chart, with the systems that it shows.
struct ChartPanel {
    title: &'static str,
    params: &'static [(&'static str, &'static str)],
    systems: &'static [(&'static str, &'static [(&'static str, &'static str)])],
}

const PANELS: &[ChartPanel] = &[
    ChartPanel {
        title: "in one process, between two threads, as each waits by default",
        params: &[("transport", "inproc"), ("pin", "apart")],
        systems: &[("dunlin", &[("wait", "default")]), ("libzmq", &[("pattern", "pair")])],
    },
    ChartPanel {
        title: "TCP, a client and the node, both spinning",
        params: &[("transport", "tcp"), ("topology", "embedded"), ("wait", "spin"), ("pin", "apart")],
        systems: &[("dunlin", &[]), ("raw", &[])],
    },
    ChartPanel {
        title: "TCP, a client and the node, both parked",
        params: &[("transport", "tcp"), ("topology", "embedded"), ("wait", "parked"), ("pin", "free")],
        systems: &[("dunlin", &[]), ("libzmq", &[("pattern", "pair")]), ("raw", &[])],
    },
    ChartPanel {
        title: "TCP, two clients through a broker, all parked",
        params: &[("transport", "tcp"), ("topology", "brokered"), ("wait", "parked"), ("pin", "apart")],
        systems: &[("dunlin", &[]), ("nats", &[]), ("raw", &[])],
    },
];

/// Draws the chart. Returns `None` if the run lacks one of the chart's values.
pub fn draw(run: &BenchRun) -> Option<Result<String>> {
    let mut bars = Vec::new();
    for panel in PANELS {
        for (target, more_params) in panel.systems {
            let text = |(name, value): &(&'static str, &'static str)| (*name, json!(*value));
            let mut params: Vec<(&str, Value)> = panel.params.iter().chain(*more_params).map(text).collect();
            params.extend([("bytes", json!(64)), ("in_flight", json!(1))]);
            bars.push(run.figure("latency", target, &params, "p50_ns")?.median);
        }
    }
    Some(draw_bars(run, &bars))
}

fn draw_bars(run: &BenchRun, bars: &[f64]) -> Result<String> {
    let height = TOP + BOTTOM + PANELS.len() as i32 * TITLE + bars.len() as i32 * BAR;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height as u32)).into_drawing_area();
        let draw_text = |content: String, at, size| {
            area.draw(&Text::new(content, at, text_style(size))).map_err(drawing_error)
        };
        let title = "A question of 64 B and its answer: half of them take no longer (p50, logarithmic)";
        draw_text(title.to_owned(), (14, 12), 17)?;
        let width = f64::from(WIDTH as i32 - LEFT - RIGHT);
        let end = |ns: f64| LEFT + (width * (ns / FROM_NS).ln() / (TO_NS / FROM_NS).ln()) as i32;
        let (middle_right, middle_left) =
            (Pos::new(HPos::Right, VPos::Center), Pos::new(HPos::Left, VPos::Center));
        for decade in [100.0, 1_000.0, 10_000.0, 100_000.0] {
            let line = [(end(decade), TOP + 8), (end(decade), height - BOTTOM + 6)];
            area.draw(&PathElement::new(line, INK.mix(0.35))).map_err(drawing_error)?;
            let at = (end(decade), height - BOTTOM + 14);
            let centred = text_style(13).pos(Pos::new(HPos::Center, VPos::Top));
            area.draw(&Text::new(format_time(decade), at, centred)).map_err(drawing_error)?;
        }
        let (mut y, mut bars) = (TOP, bars.iter());
        for panel in PANELS {
            draw_text(panel.title.to_owned(), (LEFT + 6, y + 14), 13)?;
            y += TITLE;
            for ((target, _), &ns) in panel.systems.iter().zip(&mut bars) {
                let bar = Rectangle::new([(LEFT, y + 3), (end(ns), y + BAR - 3)], colour(target).filled());
                area.draw(&bar).map_err(drawing_error)?;
                let middle = y + BAR / 2;
                let label =
                    Text::new(display_name(target), (LEFT - 8, middle), text_style(13).pos(middle_right));
                area.draw(&label).map_err(drawing_error)?;
                let value =
                    Text::new(format_time(ns), (end(ns) + 6, middle), text_style(13).pos(middle_left));
                area.draw(&value).map_err(drawing_error)?;
                y += BAR;
            }
        }
        draw_text(format!("{}.", source_note(run)), (14, height - 22), 11)?;
        area.present().map_err(drawing_error)?;
    }
    Ok(svg)
}

fn display_name(target: &str) -> &str {
    match target {
        "dunlin" => "Dunlin",
        "nats" => "nats-server",
        "raw" => "bare sockets",
        other => other,
    }
}

fn colour(target: &str) -> RGBColor {
    match target {
        "dunlin" => DUNLIN,
        "libzmq" => RGBColor(0xd9, 0x8a, 0x2b),
        "nats" => RGBColor(0x2e, 0xa0, 0x6f),
        _ => RGBColor(0x9a, 0xa2, 0xad),
    }
}

fn format_time(ns: f64) -> String {
    match ns {
        ..1_000.0 => format!("{ns:.0} ns"),
        ..10_000.0 => format!("{:.1} µs", ns / 1_000.0),
        _ => format!("{:.0} µs", ns / 1_000.0),
    }
}

fn drawing_error<E: std::fmt::Display>(error: E) -> anyhow::Error {
    anyhow!("cannot draw the chart of round trips: {error}")
}
