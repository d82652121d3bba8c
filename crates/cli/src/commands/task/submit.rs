//! The command `dunlin task submit`, which submits one task, or one for each line of a file.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use dunlin_client::Tasks;
use dunlin_client::scheduler::{
    Label, NewTask, RetryPolicy, SubmittedTask, TaskDependency, TaskStage, TaskView,
};
use serde_json::json;

use super::show;
use crate::commands::kv::read_value;
use crate::commands::parse::{duration, header, memory, moment, processors, span, unix_ns};
use crate::commands::publish::open_input;
use crate::console::Console;
use crate::format::text::escaped;
use crate::input::{Chunk, Input, RECORD_BYTES_MAX};
use crate::outcome::CommandRefusal;
use crate::signals::StopFlag;

/// Arguments of `dunlin task submit`, which submits tasks.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin task submit thumb https://example.org/a.jpg --wait
  dunlin task submit thumb --tenant acme --each urls.txt  one task for each line
  dunlin task submit train data.csv --needs gpu=a100 --cpu 4 --memory 16GiB
  dunlin task submit report --in 10m --timeout 5m --retries 5
  dunlin task submit publish 'wake up' --subject alarms --at 2026-11-23T07:00:00Z
  dunlin task submit merge --after 100000003 --after 100000004  run when both are done

The command prints the number of each task. With --wait, it prints the results instead; exit code 1 means that a task
failed.")]
pub struct Arguments {
    /// Kind of the task; the node itself runs tasks of kind `publish` and publishes their payload
    kind: String,
    /// Payload of the task; `-` is standard input [default: empty]
    #[arg(default_value = "", hide_default_value = true)]
    payload: String,
    /// Tenant of the task [default: the user's own tenant, or `default`]
    #[arg(long, default_value = "", hide_default_value = true)]
    tenant: String,
    /// Queue of the task
    #[arg(long, default_value = "default")]
    queue: String,
    /// Submit one task for each line of this file, with the line as payload; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["payload", "key"])]
    each: Option<PathBuf>,
    /// Priority: 0 is the lowest, 9 the highest
    #[arg(long, default_value_t = 5, allow_negative_numbers = true, value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: u8,
    /// Delay before the task may start, such as 10m [default: none]
    #[arg(long = "in", value_name = "DURATION", value_parser = duration, conflicts_with = "at")]
    delay: Option<Duration>,
    /// Earliest start of the task: RFC 3339 or `now` [default: none]
    #[arg(long, value_name = "TIME", value_parser = moment)]
    at: Option<SystemTime>,
    /// Time at which an unfinished task becomes a dead letter: RFC 3339 [default: none]
    #[arg(long, value_name = "TIME", value_parser = moment)]
    deadline: Option<SystemTime>,
    /// Maximum duration of one attempt [default: 5m]
    #[arg(long, value_name = "DURATION", value_parser = span)]
    timeout: Option<u32>,
    /// Maximum number of retries after the first attempt [default: 3]
    #[arg(long, value_name = "COUNT")]
    retries: Option<u16>,
    /// Idempotency key: if a task with this key exists, the command prints that task instead of submitting another;
    /// it fails if the two tasks differ or the existing one was cancelled
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    key: Option<String>,
    /// Id of a task that must be completed first; may be given several times
    #[arg(long, value_name = "TASK", value_parser = show::id)]
    after: Vec<u64>,
    /// Label to find the task by; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = header)]
    labels: Vec<(String, String)>,
    /// Subject to which a task of kind `publish` publishes
    #[arg(long)]
    subject: Option<String>,
    /// Label that the worker must have; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = header)]
    needs: Vec<(String, String)>,
    /// Processors that the task needs, such as 2, 0.5 or 500m
    #[arg(long, value_name = "PROCESSORS", value_parser = processors)]
    cpu: Option<u32>,
    /// Memory that the task needs in bytes, such as 2GiB
    #[arg(long, value_name = "BYTES", value_parser = memory)]
    memory: Option<u64>,
    /// Wait until the task is over and print its result
    #[arg(long)]
    wait: bool,
    /// Print nothing on success
    #[arg(long, short, conflicts_with = "wait")]
    quiet: bool,
}

/// The largest number of lines submitted in one request.
const BATCH_MAX: usize = 500;
/// The largest total size in bytes of the lines in one request. A single line that is larger has a request of its own.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// The shortest and the longest interval at which a command that waits for a task's end reads the task.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));

/// If a task has not started after this time, a command that waits for the task prints the reason. The command then
/// checks again every [`REASON_INTERVAL`].
const REASON_AFTER: Duration = Duration::from_secs(2);
/// The interval at which a command that waits for a task checks again why the task has not started.
const REASON_INTERVAL: Duration = Duration::from_secs(1);

pub fn run(arguments: &Arguments, tasks: &Tasks, console: &Console) -> Result<()> {
    let payload = arguments.each.is_none().then(|| read_value(&arguments.payload)).transpose()?;
    // Until here, while standard input was read, the first signal ended the command at once. From here on, a signal
    // only sets `stop`.
    let stop = StopFlag::on_signal()?;
    let mut submitted = Vec::new();
    if let Some(payload) = payload {
        submit(arguments, tasks, &[payload], console, &mut submitted)?;
    }
    if let Some(path) = &arguments.each {
        let lines = open_input(path, &stop)?;
        submit_lines(&lines, &stop, |batch| submit(arguments, tasks, batch, console, &mut submitted))?;
    }
    if arguments.wait { wait(tasks, &submitted, &stop, console) } else { Ok(()) }
}

/// Submits each line as a task. Submits all complete lines before it waits for more input.
fn submit_lines(
    lines: &Input,
    stop: &StopFlag,
    mut submit: impl FnMut(&[Vec<u8>]) -> Result<()>,
) -> Result<()> {
    const CONTEXT: &str = "cannot read lines";
    let (mut batch, mut bytes, mut line) = (Vec::new(), 0, Vec::new());
    loop {
        let chunk = match lines.try_next().context(CONTEXT)? {
            Chunk::None => {
                if !batch.is_empty() {
                    submit(&batch)?;
                    (batch, bytes) = (Vec::new(), 0);
                }
                lines.next().context(CONTEXT)?
            }
            chunk => chunk,
        };
        let Chunk::Bytes(chunk) = chunk else { break };
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            let end = part.strip_suffix(b"\n");
            line.extend_from_slice(end.unwrap_or(part));
            if line.len() > RECORD_BYTES_MAX {
                if !batch.is_empty() {
                    submit(&batch)?;
                }
                bail!("a line has more than {RECORD_BYTES_MAX} bytes");
            }
            if end.is_some() {
                bytes += line.len();
                batch.push(std::mem::take(&mut line));
            }
            if batch.len() == BATCH_MAX || bytes > BATCH_BYTES_MAX {
                submit(&batch)?;
                (batch, bytes) = (Vec::new(), 0);
            }
            if stop.is_set() {
                break;
            }
        }
    }
    if !line.is_empty() && !stop.is_set() {
        batch.push(line);
    }
    if batch.is_empty() { Ok(()) } else { submit(&batch) }
}

fn submit(
    arguments: &Arguments,
    tasks: &Tasks,
    payloads: &[Vec<u8>],
    console: &Console,
    submitted: &mut Vec<u64>,
) -> Result<()> {
    // A time before 1970 means a start in the past. Such a time becomes 1 ms, because 0 means that no time is given.
    let unix_ms = |at: SystemTime| (unix_ns(at) / 1_000_000).max(1);
    let at = match arguments.delay {
        Some(delay) => Some(
            SystemTime::now()
                .checked_add(delay)
                .ok_or_else(|| anyhow!("--in is too long: use a shorter duration"))?,
        ),
        None => arguments.at,
    };
    let retries = arguments.retries.map(|retries| RetryPolicy { retries, ..RetryPolicy::default() });
    let (labels, needs) = (borrow_labels(&arguments.labels), borrow_labels(&arguments.needs));
    let after: Vec<_> = arguments.after.iter().map(|&task| TaskDependency::Task { task }).collect();
    let new = payloads.iter().map(|payload| NewTask {
        queue: arguments.queue.as_bytes(),
        kind: arguments.kind.as_bytes(),
        payload,
        priority: arguments.priority,
        not_before_ms: at.map_or(0, unix_ms),
        deadline_ms: arguments.deadline.map_or(0, unix_ms),
        timeout_ms: arguments.timeout.unwrap_or(0),
        retry: retries,
        idempotency_key: arguments.key.as_deref().unwrap_or("").as_bytes(),
        after: after.clone(),
        labels: labels.clone(),
        cpu_milli: arguments.cpu.unwrap_or(0),
        memory_bytes: arguments.memory.unwrap_or(0),
        subject: arguments.subject.as_deref().unwrap_or("").as_bytes(),
        needs: needs.clone(),
    });
    let done = tasks.submit_all(&arguments.tenant, new.collect())?;
    submitted.extend(done.tasks.iter().map(|taken| taken.task));
    if !arguments.wait && !arguments.quiet {
        print_submitted(&done.tasks, console)?;
    }
    if !arguments.quiet && !console.json {
        done.tasks
            .iter()
            .filter(|taken| taken.known)
            .try_for_each(|taken| print_existing(tasks, taken.task))?;
    }
    // The cluster requests this pause before the next submission.
    std::thread::sleep(done.slow_down);
    Ok(())
}

/// Prints that a task with the same idempotency key already exists, and the status of that task. No new task was
/// created.
fn print_existing(tasks: &Tasks, task: u64) -> Result<()> {
    let reason = tasks.why(task).unwrap_or_else(|error| error.to_string());
    Ok(writeln!(std::io::stderr(), "task {} with this key already exists; it is {reason}", show::hex(task))?)
}

fn borrow_labels(labels: &[(String, String)]) -> Vec<Label<'_>> {
    labels.iter().map(|(key, value)| Label { key: key.as_bytes(), value: value.as_bytes() }).collect()
}

fn print_submitted(submitted: &[SubmittedTask], console: &Console) -> Result<()> {
    let mut out = console.out();
    for SubmittedTask { task, known } in submitted {
        match console.json {
            true => writeln!(out, "{}", json!({"task": show::hex(*task), "known": known}))?,
            false => writeln!(out, "{}", show::hex(*task))?,
        }
    }
    Ok(out.flush()?)
}

fn wait(tasks: &Tasks, submitted: &[u64], stop: &StopFlag, console: &Console) -> Result<()> {
    let mut failed = 0;
    for &task in submitted {
        let Some((over, now_ms)) = wait_for(tasks, task, stop, console)? else {
            return Err(anyhow!("interrupted while waiting; task {} continues", show::hex(task)));
        };
        let mut out = console.out();
        if over.stage != TaskStage::Completed {
            failed += 1;
        }
        if console.json {
            writeln!(out, "{}", show::task_object(&over, now_ms))?;
        } else if over.stage == TaskStage::Completed {
            let result = over.outcome.as_ref().map_or(&b""[..], |outcome| &outcome.bytes);
            out.write_all(result)?;
            if !result.is_empty() && !result.ends_with(b"\n") {
                writeln!(out)?;
            }
        } else {
            let why = escaped(tasks.why(task)?.as_bytes());
            writeln!(std::io::stderr(), "task {}: {why}", show::hex(task))?;
        }
        out.flush()?;
    }
    match failed {
        0 => Ok(()),
        1 if submitted.len() == 1 => Err(CommandRefusal("the task failed".to_owned()).into()),
        _ => Err(CommandRefusal(format!("{failed} of {} tasks failed", submitted.len())).into()),
    }
}

fn wait_for(tasks: &Tasks, task: u64, stop: &StopFlag, console: &Console) -> Result<Option<(TaskView, u64)>> {
    let began = Instant::now();
    let (mut last_reason, mut print_at) = (String::new(), began + REASON_AFTER);
    while !stop.is_set() {
        let (found, now_ms) = tasks.get_at(task)?;
        if matches!(found.stage, TaskStage::Completed | TaskStage::Cancelled | TaskStage::Dead) {
            return Ok(Some((found, now_ms)));
        }
        if Instant::now() >= print_at {
            print_at = Instant::now() + REASON_INTERVAL;
            if !matches!(found.stage, TaskStage::Running | TaskStage::Stopping) {
                last_reason = print_reason(task, &tasks.why(task)?, last_reason, console)?;
            }
        }
        std::thread::sleep((began.elapsed() / 4).clamp(POLL_INTERVALS.0, POLL_INTERVALS.1));
    }
    Ok(None)
}

/// Prints why a task has not started. Prints nothing if `why` equals `last_reason` apart from numbers. Returns `why`
/// without numbers.
fn print_reason(task: u64, why: &str, last_reason: String, console: &Console) -> Result<String> {
    let without_numbers: String = why.chars().filter(|c| !c.is_ascii_digit()).collect();
    if without_numbers != last_reason {
        let mark = console.errors.warning(&format!("task {}:", show::hex(task)));
        writeln!(std::io::stderr(), "{mark} {}", escaped(why.as_bytes()))?;
    }
    Ok(without_numbers)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};

    use super::*;

    #[test]
    fn complete_lines_are_submitted_before_more_input_is_awaited() {
        /// An input without an end: after the given bytes, every read blocks.
        struct Waiting(Option<&'static [u8]>);

        impl Read for Waiting {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                while self.0.is_none() {
                    std::thread::park();
                }
                self.0.take().unwrap().read(into)
            }
        }

        let stop = StopFlag::never();
        let lines = Input::new(Waiting(Some(b"a\nb\nc")), stop.clone());
        let mut batches = Vec::new();
        let submit = |batch: &[Vec<u8>]| {
            batches.push(batch.to_vec());
            stop.set();
            Ok(())
        };
        submit_lines(&lines, &stop, submit).unwrap();
        assert_eq!(batches, [[b"a", b"b"]]);
    }

    #[test]
    fn overlong_line_is_refused_after_earlier_lines_are_sent() {
        let lines = Input::new((&b"a\n"[..]).chain(io::repeat(b'x')), StopFlag::never());
        let mut submitted = Vec::new();
        let submit = |batch: &[Vec<u8>]| {
            submitted.extend_from_slice(batch);
            Ok(())
        };
        let refused = submit_lines(&lines, &StopFlag::never(), submit).unwrap_err();
        assert_eq!(refused.to_string(), "a line has more than 16777216 bytes");
        assert_eq!(submitted, [b"a"], "the line before it");
    }
}
