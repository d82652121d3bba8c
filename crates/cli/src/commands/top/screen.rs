//! Draws the overview of a node on a terminal. On a small terminal, it shows fewer rows and columns.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};

use super::figures::{self, StatusTable};
use super::report::NodeReport;

/// The smallest width of a terminal, in columns, in which tables are shown side by side.
const WIDE: u16 = 110;
/// The height of the chart of rates, in lines.
const CHART_HEIGHT: u16 = 5;
/// The maximum width of a column in a table, in characters. Longer texts are cut.
const COLUMN_MAX: usize = 32;

pub fn draw(report: &NodeReport, frame: &mut Frame<'_>) {
    let figures = figures::figures(report);
    let figures_height = figures.len() as u16;
    let rows = [
        Constraint::Length(1),
        Constraint::Length(figures_height),
        Constraint::Length(CHART_HEIGHT),
        Constraint::Fill(1),
        Constraint::Length(1),
    ];
    let [head, now, chart, tables, keys] = Layout::vertical(rows).areas(frame.area());
    draw_head(report, frame, head);
    let lines = figures.into_iter().map(|(name, figure)| {
        Line::from(vec![Span::from(format!(" {name:<11}")).style(Color::Cyan), Span::from(figure)])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), now);
    draw_chart(report, frame, chart);
    draw_tables(report, frame, tables);
    frame.render_widget(
        Paragraph::new(
            " q: quit   dunlin top --once: print as text   dashboard: the node's HTTP address, in a browser",
        )
        .dim(),
        keys,
    );
}

fn draw_head(report: &NodeReport, frame: &mut Frame<'_>, area: Rect) {
    let style =
        if report.outage().is_some() { Style::new().white().on_red() } else { Style::new().reversed() };
    let text = format!(" {}  {}", figures::node_title(report), figures::node_address_or_outage(report));
    frame.render_widget(Paragraph::new(text).style(style).bold(), area);
}

fn draw_chart(report: &NodeReport, frame: &mut Frame<'_>, area: Rect) {
    let block = Block::bordered().title(" records per second ").border_style(Style::new().dim());
    let history = report.history(block.inner(area).width.into());
    frame.render_widget(Sparkline::default().block(block).data(history).style(Style::new().green()), area);
}

fn draw_tables(report: &NodeReport, frame: &mut Frame<'_>, area: Rect) {
    let (subscribers, topics) = (figures::subscribers(report), figures::topics(report));
    let (nodes, work, spaces) = (figures::nodes(report), figures::work(report), figures::spaces(report));
    let halves = |area: Rect| Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas::<2>(area);
    if area.width < WIDE {
        let tables = [subscribers, topics, nodes, work, spaces];
        let heights = tables.each_ref().map(|table| Constraint::Fill(1 + table.rows.len().min(8) as u16));
        let areas: [Rect; 5] = Layout::vertical(heights).areas(area);
        tables.iter().zip(areas).for_each(|(table, area)| draw_table(table, frame, area));
        return;
    }
    let below = [nodes.rows.len(), work.rows.len(), spaces.rows.len()].into_iter().max().unwrap_or(0);
    let [above, below] =
        Layout::vertical([Constraint::Fill(1), Constraint::Max((below.max(3) + 3) as u16)]).areas(area);
    let [left, right] = halves(above);
    draw_table(&subscribers, frame, left);
    draw_table(&topics, frame, right);
    let thirds = [Constraint::Fill(4), Constraint::Fill(5), Constraint::Fill(3)];
    let [left, middle, right] = Layout::horizontal(thirds).areas(below);
    draw_table(&nodes, frame, left);
    draw_table(&work, frame, middle);
    draw_table(&spaces, frame, right);
}

fn draw_table(listed: &StatusTable, frame: &mut Frame<'_>, area: Rect) {
    let block = Block::bordered().title(format!(" {} ", listed.title)).border_style(Style::new().dim());
    if listed.rows.is_empty() {
        return frame.render_widget(Paragraph::new(" none").dim().block(block), area);
    }
    let width = |column: usize| {
        let cells = listed.rows.iter().map(|row| row[column].as_str()).chain([listed.heading[column]]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).min(COLUMN_MAX) as u16
    };
    let room = block.inner(area).width;
    let mut widths = Vec::new();
    let mut used = 0;
    for column in 0..listed.heading.len() {
        let full_width = width(column);
        // Cut the first column that does not fit, and omit the columns after it.
        let shown_width = full_width.min(room.saturating_sub(used));
        if shown_width < full_width.min(4) {
            break;
        }
        widths.push(Constraint::Length(shown_width));
        used += shown_width + 2;
    }
    let shown = widths.len();
    let heading = Row::new(listed.heading.iter().take(shown).copied()).style(Style::new().bold().cyan());
    let rows = listed.rows.iter().map(|row| {
        let is_down = row.iter().any(|cell| cell == "DOWN");
        let style = if is_down { Style::new().red().bold() } else { Style::new() };
        Row::new(row.iter().take(shown).cloned()).style(style)
    });
    frame.render_widget(Table::new(rows, widths).header(heading).column_spacing(2).block(block), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    fn report() -> NodeReport {
        let mut report = NodeReport::new("dunlin://127.0.0.1:4220");
        let stats = json!({
            "id": 1, "name": "dev", "version": "0.1.0", "uptime_s": 75.2, "topics": 3, "subscriptions": 2,
            "rates": {"records_per_s": 1204331.0, "bytes_per_s": 5e6, "gaps_per_s": 0.0},
            "totals": {"records": 12, "bytes": 900, "gaps": 1, "gap_records": 41},
            "listeners": [{"protocol": "tcp", "address": "127.0.0.1:4220", "open": 2}],
            "connections": {"open": 2, "limit": 100, "refused": 0}, "memory": {"used_bytes": 1024, "limit_bytes": 4096, "keys": {"used_bytes": 12, "limit_bytes": 9216}, "tasks": null},
            "process": {"rss_bytes": 4096, "cpu_percent": 41.5, "threads": 9, "open_files": 44},
            "slowest": [{"name": "me", "topic": "orders", "protocol": "tcp", "lag": 5120, "missed": 41, "why": "it sleeps"}],
        });
        report.update("stats".to_owned(), stats);
        let topic = json!({"name": "orders", "records_per_s": 10.0, "bytes_per_s": 10.0, "records": 1, "subscribers": 1, "gaps": 0});
        report.update("topics".to_owned(), json!({"total": 3, "topics": [topic]}));
        let node = json!({"node": 3, "alive": false, "removed": null, "topics_owned": 0, "listeners": {"tcp": "a:1"}});
        report.update("cluster".to_owned(), json!({"leader": 1, "term": 4, "nodes": [node]}));
        let tenant =
            json!({"name": "acme", "share": 0.25, "queued": 7, "running": 2, "completed": 9, "failed": 0});
        report.update(
            "work".to_owned(),
            json!({"known": 9, "held": 2, "workers_up": 1, "jain": 0.98, "tenants": [tenant]}),
        );
        let region = json!({"region": 2, "process": 12, "epoch": 31, "standby": 14});
        report.update("spaces".to_owned(), json!({"worlds": [{"world": "birds", "regions": [region]}]}));
        report
    }

    fn drawn(report: &NodeReport, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(report, frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn wide_and_narrow_terminals_show_every_panel() {
        for (width, height) in [(160, 45), (80, 60)] {
            let text = drawn(&report(), width, height);
            for text_part in [
                "node 1 dev",
                "for keys",
                "1.20 M/s",
                "slowest subscribers",
                "5,120",
                "orders",
                "DOWN",
                "acme",
                "Jain's index 0.980",
                "birds",
            ] {
                assert!(text.contains(text_part), "{text_part} on {width} × {height}:\n{text}");
            }
        }
    }

    #[test]
    fn dunlin_top_shows_an_outage_above_the_last_figures() {
        let mut report = report();
        report.mark_unreachable("connection refused".to_owned());
        let text = drawn(&report, 120, 40);
        let first = text.lines().next().unwrap();
        assert!(first.contains("unreachable for ") && first.contains(" ms: connection refused"), "{text}");
        assert!(text.contains("1.20 M/s"), "{text}");
    }

    #[test]
    fn dunlin_top_draws_in_tiny_terminals_without_a_panic() {
        for (width, height) in [(1, 1), (10, 3), (30, 12), (111, 9)] {
            drawn(&report(), width, height);
            drawn(&NodeReport::new("dunlin://a"), width, height);
        }
    }
}
