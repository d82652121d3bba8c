//! The command `dunlin top`, which shows an overview of a node in the terminal: rates, listeners, memory, slowest
//! subscribers, topics, cluster, tasks and worlds.
//!
//! The command subscribes to `$node.>`, as the dashboard does. While these subjects have a subscriber, the node
//! publishes its status to them once a second. If the node becomes unreachable, the command continues to show the last
//! status.

mod figures;
mod follow;
mod plain;
mod report;
mod screen;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use self::follow::{StatusFollower, StatusUpdate};
use self::report::NodeReport;
use crate::arguments::GlobalOptions;
use crate::console::Console;
use crate::signals::StopFlag;

/// Arguments of `dunlin top`, which shows a node's rates and status.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin top                                  watch until q or Ctrl-C
  dunlin top --once                           print plain text once, as in a pipe: dunlin top | less
  dunlin top --json                           print one object per second; with --once, one object
  dunlin top --url dunlin://10.0.0.1,10.0.0.2 a cluster; if one node fails, the other is shown

The command needs the permission `surveys`. The dashboard at the node's HTTP address shows more.")]
pub struct Arguments {
    /// Print the values once as plain text, and end
    #[arg(long)]
    once: bool,
}

/// The maximum time that the command waits for the complete status.
const PATIENCE: Duration = Duration::from_secs(20);
/// The interval at which the command checks for pressed keys.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The longest interval between two drawings, so that displayed durations stay current.
const REDRAW_INTERVAL: Duration = Duration::from_millis(500);

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let stop = StopFlag::on_signal()?;
    let follow = StatusFollower::start(global)?;
    let report = NodeReport::new(global.url.as_deref().unwrap_or(crate::connect::URL_DEFAULT));
    match (console.json, arguments.once || !console.is_terminal) {
        (true, _) => objects(report, &follow, arguments.once, console, &stop),
        (false, true) => once(report, &follow, console, &stop),
        (false, false) => watch(report, &follow, &stop),
    }
}

/// Waits for the complete status, which includes rates.
fn wait_complete(report: &mut NodeReport, follow: &StatusFollower, stop: &StopFlag) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !report.is_complete() && !stop.is_set() {
        if let Some(StatusUpdate::Refused(error)) = follow.next(POLL_INTERVAL, report) {
            return Err(error);
        }
        if Instant::now() > deadline {
            let why = report
                .outage()
                .map_or_else(|| "it published no status".to_owned(), |outage| outage.why.clone());
            bail!("the node at {} sent no status within {PATIENCE:?}: {why}", report.url());
        }
    }
    Ok(())
}

fn once(mut report: NodeReport, follow: &StatusFollower, console: &Console, stop: &StopFlag) -> Result<()> {
    wait_complete(&mut report, follow, stop)?;
    let mut out = console.out();
    plain::write(&report, &mut out, console.paint)?;
    Ok(out.flush()?)
}

/// Prints the complete status as a JSON object, each time that the node publishes it and when the node becomes
/// unreachable or reachable. With `once`, prints the status only once.
fn objects(
    mut report: NodeReport,
    follow: &StatusFollower,
    once: bool,
    console: &Console,
    stop: &StopFlag,
) -> Result<()> {
    wait_complete(&mut report, follow, stop)?;
    stop.set_when_stdout_closes();
    let mut out = console.out_shared();
    while !stop.is_set() {
        writeln!(out, "{}", report.object())?;
        out.flush()?;
        if once {
            break;
        }
        let (at, is_down) = (report.published_at(), report.outage().is_some());
        while !stop.is_set() && report.published_at() == at && report.outage().is_some() == is_down {
            if let Some(StatusUpdate::Refused(error)) = follow.next(POLL_INTERVAL, &mut report) {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Draws on the whole terminal until the user presses a key that ends the command. Then restores the terminal.
fn watch(mut report: NodeReport, follow: &StatusFollower, stop: &StopFlag) -> Result<()> {
    let mut terminal = ratatui::try_init()?;
    let watched = (|| {
        let mut drawn = None::<Instant>;
        let mut changed = true;
        while !stop.is_set() {
            if changed || drawn.is_none_or(|drawn| drawn.elapsed() > REDRAW_INTERVAL) {
                terminal.draw(|frame| screen::draw(&report, frame))?;
                (drawn, changed) = (Some(Instant::now()), false);
            }
            match follow.next(POLL_INTERVAL, &mut report) {
                Some(StatusUpdate::Refused(error)) => return Err(error),
                Some(StatusUpdate::NodeReport) => changed = true,
                None => {}
            }
            while event::poll(Duration::ZERO)? {
                match event::read()? {
                    Event::Key(key) if is_quit_key(key) => return Ok(()),
                    Event::Resize(..) => changed = true,
                    _ => {}
                }
            }
        }
        Ok(())
    })();
    ratatui::try_restore()?;
    watched
}

/// Whether the key ends the command. In raw mode, the terminal reports Ctrl-C as a key and sends no signal.
fn is_quit_key(key: KeyEvent) -> bool {
    let is_control_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind == KeyEventKind::Press && (is_control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dunlin_top_ends_only_on_q_escape_or_ctrl_c() {
        let key = |code, modifiers| is_quit_key(KeyEvent::new(code, modifiers));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE) && key(KeyCode::Esc, KeyModifiers::NONE));
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE) && !key(KeyCode::Enter, KeyModifiers::NONE));
    }
}
