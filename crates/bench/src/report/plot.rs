//! Draws plots of lines as SVG, with the crate `plotters`.
//!
//! Invariant: the page's CSS sets the colours of text and axes, so that plots are readable on dark and on light pages.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::metric;

const SIZE: (u32, u32) = (720, 380);
const INK: RGBColor = RGBColor(110, 118, 129);
/// The colours of the lines. The first line of a plot has the first colour. People with colour blindness can tell these
/// colours apart (Okabe and Ito, 2008).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(140, 140, 140),
    RGBColor(160, 82, 45),
];
/// The largest number of lines in a plot: there is one colour for each line.
pub const LINES_MAX: usize = COLOURS.len();

/// The scale of an axis: linear, logarithmic, or a list of words.
#[derive(Clone, Debug, PartialEq)]
pub enum AxisScale {
    /// Linear, from zero.
    Linear,
    /// Logarithmic.
    Log,
    /// These words are shown at the positions 0, 1, 2 and so on.
    Words(Vec<&'static str>),
}

/// One axis of a plot: its label, its unit and its scale.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The label of the axis.
    pub name: String,
    /// The metric, which determines how values are formatted; `None` for plain numbers.
    pub metric: Option<String>,
    /// The scale of the axis.
    pub scale: AxisScale,
}

/// A line of a plot.
#[derive(Clone, Debug)]
pub struct PlotLine {
    /// The name of the line in the legend.
    pub name: String,
    /// The points of the line, sorted by x.
    pub points: Vec<(f64, f64)>,
}

/// A plot to draw: its title, its two axes and its lines.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines; there are at most [`LINES_MAX`].
    pub lines: Vec<PlotLine>,
    /// The number of lines that were left out, because there were too many.
    pub omitted: usize,
}

impl Axis {
    fn to_axis(&self, value: f64) -> f64 {
        if self.scale == AxisScale::Log { value.max(f64::MIN_POSITIVE).log10() } else { value }
    }

    fn label(&self, position: f64) -> String {
        let value = match &self.scale {
            AxisScale::Words(words) => return label_at(words, position),
            AxisScale::Log if (position - position.round()).abs() > 1e-6 => return String::new(),
            AxisScale::Log => 10f64.powf(position),
            AxisScale::Linear => position,
        };
        self.metric
            .as_deref()
            .map_or_else(|| metric::format_scaled(value), |name| metric::format_metric(name, value))
    }

    fn range(&self, values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
        let (least, most) = values
            .map(|value| self.to_axis(value))
            .fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
        match &self.scale {
            AxisScale::Linear => 0.0..if most > 0.0 { most * 1.1 } else { 1.0 },
            AxisScale::Log => (least - 0.05).floor()..(most + 0.05).ceil(),
            AxisScale::Words(words) => -0.25..words.len() as f64 - 0.75,
        }
    }
}

fn label_at(words: &[&'static str], position: f64) -> String {
    let nearest = position.round();
    let is_at_one = (position - nearest).abs() < 0.01 && nearest >= 0.0;
    if is_at_one {
        words.get(nearest as usize).copied().unwrap_or_default().to_owned()
    } else {
        String::new()
    }
}

impl Plot {
    /// Returns the colour (for CSS) and the name of each line. Words that occur in all names are left out.
    pub fn legend(&self) -> Vec<(String, String)> {
        let words = |line: &PlotLine| line.name.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let shared: Vec<String> = match self.lines.as_slice() {
            [] | [_] => Vec::new(),
            [first, others @ ..] => words(first)
                .into_iter()
                .filter(|word| others.iter().all(|line| words(line).contains(word)))
                .collect(),
        };
        let label = |line: &PlotLine| {
            let own: Vec<String> = words(line).into_iter().filter(|word| !shared.contains(word)).collect();
            if own.is_empty() { line.name.clone() } else { own.join(" ") }
        };
        let colour = |RGBColor(red, green, blue)| format!("#{red:02x}{green:02x}{blue:02x}");
        self.lines.iter().zip(COLOURS).map(|(line, of_line)| (colour(of_line), label(line))).collect()
    }

    /// Returns the plot as the text of an SVG element.
    pub fn svg(&self) -> Result<String> {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            self.draw(&area).map_err(|error| anyhow!("cannot draw {}: {error}", self.title))?;
            area.present().map_err(|error| anyhow!("cannot draw {}: {error}", self.title))?;
        }
        Ok(svg)
    }

    fn draw<'a>(
        &self,
        area: &DrawingArea<SVGBackend<'a>, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>> {
        let points = || self.lines.iter().flat_map(|line| line.points.iter().copied());
        let across = self.x.range(points().map(|(x, _)| x));
        let upwards = self.y.range(points().map(|(_, y)| y));
        let text = ("sans-serif", 13).into_font().color(&INK);
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(78)
            .build_cartesian_2d(across, upwards)?;
        let x_labels = if let AxisScale::Words(words) = &self.x.scale { words.len() * 4 } else { 8 };
        chart
            .configure_mesh()
            .x_labels(x_labels)
            .y_labels(8)
            .axis_style(INK)
            .bold_line_style(INK.mix(0.25))
            .light_line_style(INK.mix(0.0))
            .label_style(text)
            .x_desc(self.x.name.as_str())
            .y_desc(self.y.name.as_str())
            .x_label_formatter(&|position| self.x.label(*position))
            .y_label_formatter(&|position| self.y.label(*position))
            .draw()?;
        for (line, colour) in self.lines.iter().zip(COLOURS) {
            let points_on_axes = line.points.iter().map(|&(x, y)| (self.x.to_axis(x), self.y.to_axis(y)));
            chart.draw_series(LineSeries::new(points_on_axes, colour.stroke_width(2)).point_size(3))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(names: &[&str]) -> Plot {
        let axis = |scale| Axis { name: String::new(), metric: None, scale };
        let line = |name: &&str| PlotLine { name: (*name).to_owned(), points: vec![(1.0, 1.0)] };
        Plot {
            title: String::new(),
            x: axis(AxisScale::Linear),
            y: axis(AxisScale::Log),
            lines: names.iter().map(line).collect(),
            omitted: 0,
        }
    }

    #[test]
    fn legend_names_only_the_differences_between_lines() {
        let names = |plot: Plot| plot.legend().into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names(plot(&["dunlin tcp bytes=64", "nats tcp bytes=64"])), ["dunlin", "nats"]);
        assert_eq!(names(plot(&["dunlin tcp", "dunlin tcp spin"])), ["dunlin tcp", "spin"]);
        assert_eq!(names(plot(&["dunlin tcp"])), ["dunlin tcp"]);
    }
}
