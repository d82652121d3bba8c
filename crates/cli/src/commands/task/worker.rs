//! `task worker`: does tasks of some kinds, each with a command.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use dunlin_client::{Attachment, AttachmentLoad, Given, Used, WorkerOptions};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;

use super::show;
use super::usage::Usage;
use super::warden::Warden;
use crate::arguments::Global;
use crate::commands::lock::ourselves;
use crate::commands::parse::{duration, header, memory, processors};
use crate::connect::connect;
use crate::console::Console;
use crate::program::Program;
use crate::signals::Stop;
use crate::workers::{NAME_VARIABLE, ends_with_stdin};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin task worker --kind count -- wc -c             the payload is the command's standard input
  dunlin task worker --kind thumb --slots 4 -- ./thumb.sh
  dunlin task worker --kind train --label gpu=a100 --cpu 8 --memory 64GiB -- ./train.sh
  dunlin task worker --kind report --tenant acme -- ./report.sh
  dunlin task worker --kind thumb --queue urgent -- sh -c 'fetch \"$(cat)\" --fence $DUNLIN_TASK_TOKEN'

What the command writes is the task's result. When it fails the task is tried again, as its retries allow; exit code 100 fails it for
good. It finds DUNLIN_TASK, DUNLIN_TASK_TOKEN, DUNLIN_TASK_ATTEMPT, DUNLIN_TASK_KIND and DUNLIN_TASK_TENANT in its environment. A task that is
cancelled, or takes longer than its timeout, has its command sent SIGTERM, and SIGKILL after two seconds.

SIGTERM or Ctrl-C: nothing new is taken, what runs is finished, then it ends with exit code 0.

A node starts such workers itself, as many as the tasks that wait need: `dunlin dev --workers 'dunlin task worker --kind count -- wc -c' --scale 1..8`.")]
pub struct Arguments {
    /// What it can do; may be given several times
    #[arg(long = "kind", required = true, value_name = "KIND")]
    kinds: Vec<String>,
    /// The queues it serves [default: all]
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,
    /// Tasks at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    slots: u32,
    /// A name, for people; for a node that started it, it is who it is [default: host and process]
    #[arg(long, env = NAME_VARIABLE)]
    name: Option<String>,
    /// What it has goes to others when nobody hears from it for so long
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    ttl: Duration,
    /// What it has that tasks may need, as in gpu=a100; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = header)]
    labels: Vec<(String, String)>,
    /// Takes tasks of this tenant only; may be given several times [default: of all]
    #[arg(long = "tenant", value_name = "TENANT")]
    tenants: Vec<String>,
    /// Processors that it has for tasks that say what they need, as in 4, 0.5 or 500m [default: any number]
    #[arg(long, value_name = "PROCESSORS", value_parser = processors)]
    cpu: Option<u32>,
    /// Memory that it has for them, as in 16GiB [default: any amount]
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<u64>,
    /// End after so many tasks
    #[arg(long, short = 'n', value_name = "COUNT")]
    count: Option<u64>,
    /// The command
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// How soon a slot without a task notices that it is time to end.
const LOOK: Duration = Duration::from_millis(50);
/// A command that does not end when it is asked to is killed after so long.
const GRACE: Duration = Duration::from_secs(2);
/// What a command that has failed for good ends with.
const FOR_GOOD: i32 = 100;
/// Of what a command that failed says why, so many bytes are kept.
const ERROR_BYTES_MAX: usize = 4 << 10;
/// Of what it writes; a longer result is refused by the cluster.
const RESULT_BYTES_MAX: u64 = 8 << 20;

pub fn run(arguments: &Arguments, global: &Global, console: &Console) -> Result<()> {
    let stop = Stop::on_signal()?;
    let orphaned = Stop::default();
    if ends_with_stdin() {
        orphaned.when_stdin_ends();
    }
    let program = Program::new(&arguments.command).ok_or_else(|| anyhow!("no command"))?;
    program.check()?;
    let client = connect(global, "dunlin task worker")?;
    let options = WorkerOptions {
        name: ourselves(arguments.name.as_deref()),
        kinds: arguments.kinds.clone(),
        queues: arguments.queues.clone(),
        slots: arguments.slots,
        cpu_milli: arguments.cpu.unwrap_or(0),
        memory_bytes: arguments.memory.unwrap_or(0),
        ttl: arguments.ttl,
        labels: arguments.labels.clone(),
        tenants: arguments.tenants.clone(),
    };
    let warden = Warden::start().context("cannot start this program beside itself")?;
    let attachment = client.tasks().attach(options).context("cannot start a thread")?;
    let running = Running { arguments, warden: &warden, orphaned: &orphaned };
    thread::scope(|scope| {
        for _ in 0..arguments.slots {
            scope.spawn(|| slot(&running, &attachment, &stop, console));
        }
    });
    if orphaned.is_set() {
        // Whoever started it is gone, and most likely the node with it: nobody is there to say good-bye to.
        std::process::exit(1);
    }
    attachment.flush(GRACE);
    let ended = attachment.error();
    said(&attachment.load(), console)?;
    match ended {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

fn said(load: &AttachmentLoad, console: &Console) -> Result<()> {
    if console.json {
        let object =
            json!({"given": load.given, "answered": load.answered, "stale": load.stale, "lost": load.lost});
        return Ok(writeln!(std::io::stdout(), "{object}")?);
    }
    let AttachmentLoad { answered, stale, lost, .. } = load;
    let late = if *stale + *lost > 0 {
        format!(", {stale} answers too late, {lost} went to others")
    } else {
        String::new()
    };
    Ok(writeln!(std::io::stderr(), "{answered} tasks done{late}")?)
}

/// How commands are run.
struct Running<'r> {
    arguments: &'r Arguments,
    warden: &'r Warden,
    orphaned: &'r Stop,
}

fn slot(running: &Running<'_>, attachment: &Attachment, stop: &Stop, console: &Console) {
    while !running.orphaned.is_set() {
        if running.arguments.count.is_some_and(|count| attachment.load().given >= count) {
            stop.set();
        }
        if stop.is_set() {
            attachment.drain();
        }
        // By us, or by somebody who asked the cluster for it.
        if attachment.is_drained() {
            return;
        }
        match attachment.next(LOOK) {
            Ok(Some(given)) => {
                let (came, used) = running.run_one(&given);
                if let Err(failed) = &came {
                    let task = show::hex(given.task());
                    let why = String::from_utf8_lossy(&failed.why);
                    let _ = writeln!(
                        std::io::stderr(),
                        "{} task {task}: {why}",
                        console.errors.warning("failed:")
                    );
                }
                match came {
                    Ok(result) => attachment.complete(&given, &result, &used),
                    Err(Failed { why, retry }) => attachment.fail(&given, &why, retry, &used),
                }
            }
            Ok(None) => {}
            Err(_ended) => return,
        }
    }
}

/// Why a command's task failed.
struct Failed {
    why: Vec<u8>,
    retry: bool,
}

impl Failed {
    fn new(why: impl Into<Vec<u8>>) -> Failed {
        Failed { why: why.into(), retry: true }
    }
}

impl Running<'_> {
    fn run_one(&self, given: &Given) -> (Result<Vec<u8>, Failed>, Used) {
        let began = Instant::now();
        let (came, used) = match start(self.arguments, given) {
            Ok(child) => {
                self.warden.begun(&child);
                self.follow(child, given, began)
            }
            Err(error) => {
                let why = format!("cannot run {}: {error}", self.arguments.command[0]);
                (Err(Failed::new(why)), Used::default())
            }
        };
        (came, Used { run: began.elapsed(), ..used })
    }

    fn follow(&self, mut child: Child, given: &Given, began: Instant) -> (Result<Vec<u8>, Failed>, Used) {
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let payload: Arc<[u8]> = given.payload().into();
        // A command that does not read is no failure.
        let feeding = thread::spawn(move || stdin.is_some_and(|mut stdin| stdin.write_all(&payload).is_ok()));
        let reading = thread::spawn(move || read(stdout, RESULT_BYTES_MAX));
        let hearing = thread::spawn(move || read(stderr, ERROR_BYTES_MAX as u64));
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let (mut asked, deadline) = (None, began + given.timeout());
        let mut usage = Usage::default();
        while !usage.look(pid) {
            let is_over = given.is_stopped() || self.orphaned.is_set() || Instant::now() >= deadline;
            if asked.is_none() && is_over {
                asked = Some(Instant::now());
                signal(pid, Signal::TERM);
            }
            if asked.is_some_and(|asked: Instant| asked.elapsed() > GRACE) {
                signal(pid, Signal::KILL);
            }
            thread::sleep((began.elapsed() / 20).clamp(Duration::from_micros(200), LOOK));
        }
        self.warden.ended(&child);
        let ended = child.wait();
        drop(feeding.join());
        let out = reading.join().unwrap_or_default();
        let said = hearing.join().unwrap_or_default();
        let came = match ended.map(|status| (status.code(), status)) {
            Ok((Some(0), _)) => Ok(out),
            Ok((Some(code), _)) => {
                let why = [format!("exit code {code}: ").as_bytes(), said.trim_ascii()].concat();
                Err(Failed { why, retry: code != FOR_GOOD })
            }
            Ok((None, status)) => Err(Failed::new(format!("it was ended: {status}"))),
            Err(error) => Err(Failed::new(format!("cannot wait for it: {error}"))),
        };
        (came, Used { cpu: usage.cpu, memory_bytes: usage.memory_bytes, ..Used::default() })
    }
}

fn start(arguments: &Arguments, given: &Given) -> std::io::Result<Child> {
    use std::os::unix::process::CommandExt;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut command = Command::new(&arguments.command[0]);
    command
        .args(&arguments.command[1..])
        .env("DUNLIN_TASK", show::hex(given.task()))
        .env("DUNLIN_TASK_TOKEN", given.token().to_string())
        .env("DUNLIN_TASK_ATTEMPT", given.attempt().to_string())
        .env("DUNLIN_TASK_KIND", text(given.kind()))
        .env("DUNLIN_TASK_TENANT", text(given.tenant()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C is for us alone; what it starts is ended with it.
        .process_group(0);
    command.spawn()
}

fn signal(pid: Option<Pid>, signal: Signal) {
    if let Some(pid) = pid {
        // It may have ended meanwhile.
        let _ = kill_process_group(pid, signal);
    }
}

fn read(from: Option<impl Read>, bytes_max: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        let _ = from.by_ref().take(bytes_max + 1).read_to_end(&mut bytes);
        // What is beyond is read, so that the command does not wait for us, and dropped.
        let _ = std::io::copy(&mut from, &mut std::io::sink());
    }
    bytes
}
