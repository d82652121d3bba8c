//! Runs the commands of a picture in a shell, and records their output as a user sees it.

use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::workspace;

/// A picture of a terminal: the commands that are run in it, and the picture's file name.
pub struct Picture {
    pub name: &'static str,
    pub steps: &'static [PictureCommand],
}

/// One command of a picture: the line that a user types, the moment at which the user types the line of the next
/// command, and the parts of the output that the picture shows.
#[derive(Clone, Copy)]
pub struct PictureCommand {
    line: &'static str,
    ends: StepEnd,
    sight: StepView,
}

/// When the user types the next command of the picture.
#[derive(Clone, Copy)]
enum StepEnd {
    ByItself,
    /// After this command has ended. The command receives Ctrl-C this many ms after its start, and ends because of the
    /// Ctrl-C.
    Interrupted(u64),
    /// This many ms after the start of this command. The command continues to run in the background.
    Never(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StepView {
    Nothing,
    Command,
    CommandAndOutput,
}

impl PictureCommand {
    pub const fn until_exit(line: &'static str) -> PictureCommand {
        PictureCommand { line, ends: StepEnd::ByItself, sight: StepView::CommandAndOutput }
    }

    pub const fn interrupted(line: &'static str, after_ms: u64) -> PictureCommand {
        PictureCommand { line, ends: StepEnd::Interrupted(after_ms), sight: StepView::CommandAndOutput }
    }

    pub const fn background(line: &'static str, for_ms: u64) -> PictureCommand {
        PictureCommand { line, ends: StepEnd::Never(for_ms), sight: StepView::Command }
    }

    /// Makes the picture show the command's output: the lines that the command prints until the next command is typed.
    pub const fn with_output(self) -> PictureCommand {
        PictureCommand { sight: StepView::CommandAndOutput, ..self }
    }

    /// Makes the picture show neither the command nor its output.
    pub const fn hidden(self) -> PictureCommand {
        PictureCommand { sight: StepView::Nothing, ..self }
    }
}

impl Picture {
    /// Runs the commands of the picture. `programs` is the directory that contains the programs of these commands.
    /// Returns the output, with its colours.
    pub fn play(&self, programs: &Path) -> Result<String> {
        let mut picture = String::new();
        let mut background = Vec::new();
        for step in self.steps {
            let mut running = RunningCommand::start(step.line, programs)?;
            match step.ends {
                StepEnd::ByItself => running.wait()?,
                StepEnd::Interrupted(after_ms) => {
                    thread::sleep(Duration::from_millis(after_ms));
                    running.interrupt()?;
                    running.wait()?;
                }
                StepEnd::Never(for_ms) => thread::sleep(Duration::from_millis(for_ms)),
            }
            if step.sight != StepView::Nothing {
                let ampersand = if matches!(step.ends, StepEnd::Never(_)) { " &" } else { "" };
                let _ = writeln!(picture, "\x1b[32;1m$\x1b[0m \x1b[1m{}{ampersand}\x1b[0m", step.line);
            }
            if step.sight == StepView::CommandAndOutput {
                picture.push_str(&shorten_repeats(&running.output_so_far()));
            }
            if let StepEnd::Never(_) = step.ends {
                let ended = running.child.try_wait()?;
                ensure!(ended.is_none(), "`{}` failed: {}", step.line, running.output_so_far());
                background.push(running);
            }
        }
        for mut running in background.into_iter().rev() {
            running.interrupt()?;
            running.wait()?;
        }
        Ok(picture)
    }
}

/// A command that was started, and the output that it has printed.
struct RunningCommand {
    child: Child,
    output: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl RunningCommand {
    fn start(line: &str, programs: &Path) -> Result<RunningCommand> {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut child = Command::new("sh")
            .args(["-c", &format!("exec 2>&1; {line}")])
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("CLICOLOR_FORCE", "1")
            .env_remove("NO_COLOR")
            .env_remove("DUNLIN_URL")
            .current_dir(workspace::root())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{line}`"))?;
        let output = Arc::new(Mutex::new(Vec::new()));
        let mut pipe = child.stdout.take().context("standard output is not piped")?;
        let into = Arc::clone(&output);
        let reader = thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(bytes @ 1..) = pipe.read(&mut chunk) {
                into.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&chunk[..bytes]);
            }
        });
        Ok(RunningCommand { child, output, reader: Some(reader) })
    }

    /// Sends Ctrl-C to the command.
    fn interrupt(&self) -> Result<()> {
        let group = format!("-{}", self.child.id());
        Command::new("kill").args(["-INT", "--", &group]).status().context("cannot run kill")?;
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        self.child.wait()?;
        if let Some(reader) = self.reader.take() {
            // Ignores the result, because the thread that reads the output cannot fail.
            let _ = reader.join();
        }
        Ok(())
    }

    fn output_so_far(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

/// Shortens each series of more than six consecutive lines that differ only in their first number. Keeps three lines of
/// the series, and adds a line with the number of lines that were left out.
fn shorten_repeats(text: &str) -> String {
    const LINES_SHOWN: usize = 3;
    let lines: Vec<&str> = text.lines().collect();
    let mut shortened = String::new();
    for similar_lines in lines.chunk_by(|line, next| is_repeated(line, next)) {
        let shown = if similar_lines.len() > 2 * LINES_SHOWN { LINES_SHOWN } else { similar_lines.len() };
        for line in &similar_lines[..shown] {
            let _ = writeln!(shortened, "{line}");
        }
        if shown < similar_lines.len() {
            let _ = writeln!(
                shortened,
                "\x1b[2;3m⋮ {} more lines like these\x1b[0m",
                similar_lines.len() - shown
            );
        }
    }
    shortened
}

fn is_repeated(line: &str, next: &str) -> bool {
    let numbered = |line: &str| {
        let plain = strip_colours(line);
        let (number, rest) = plain.split_once(' ')?;
        number.parse::<u64>().is_ok().then(|| rest.to_owned())
    };
    numbered(line).is_some_and(|rest| numbered(next) == Some(rest))
}

fn strip_colours(line: &str) -> String {
    let mut parts = line.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or(part, |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_screen_lines_are_replaced_by_their_count() {
        let ticks: String = (1..=10).map(|n| format!("\x1b[2m{n}\x1b[0m tick\n")).collect();
        let text = shorten_repeats(&format!("{ticks}GAP 11 … 20\n21 tick\n22 tock\n"));
        let lines: Vec<_> = text.lines().map(strip_colours).collect();
        let expected =
            ["1 tick", "2 tick", "3 tick", "⋮ 7 more lines like these", "GAP 11 … 20", "21 tick", "22 tock"];
        assert_eq!(lines, expected);
    }
}
