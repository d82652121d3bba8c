//! `reply`: answers requests.
//!
//! One at a time, in the order in which they come: a command that takes long makes the next requester wait. Whoever
//! wants more at once runs more of these, with a work group in between.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin_topic::{Draft, Event, Meta, Payload, Record, Subscribe, SubscribeOptions};

use crate::arguments::Global;
use crate::commands::request::ERROR_HEADER;
use crate::connect::connect;
use crate::console::Console;
use crate::outage::Outage;
use crate::program::Program;
use crate::signals::Stop;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin reply echo --echo                       what was sent
  dunlin reply motd --text 'mind the gap'        always the same
  dunlin reply time.now -- date -u               a command's output
  dunlin reply 'math.*' -- bc                    the request is the command's standard input

A command finds DUNLIN_SUBJECT, DUNLIN_POSITION, DUNLIN_KEY and DUNLIN_HEADER_<NAME> in its environment. When it fails, the reply carries
the header dunlin-error with its exit code.")]
#[command(group = clap::ArgGroup::new("answer").required(true))]
pub struct Arguments {
    /// What to answer; wildcards are fine
    pub pattern: String,
    /// Answer with what was sent
    #[arg(long, group = "answer")]
    pub echo: bool,
    /// Answer with this text
    #[arg(long, group = "answer")]
    pub text: Option<String>,
    /// Answer with the output of this command
    #[arg(last = true, group = "answer", value_name = "COMMAND")]
    pub command: Vec<String>,
    /// End after this many requests
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub count: Option<u64>,
}

/// How often a responder with nothing to do looks for a signal.
const LOOK: Duration = Duration::from_millis(100);

pub fn run(arguments: &Arguments, global: &Global, console: &Console) -> Result<()> {
    let stop = Stop::on_signal()?;
    if let Some(program) = Program::new(&arguments.command) {
        program.check()?;
    }
    let client = connect(global, "dunlin reply")?;
    let options = SubscribeOptions { name: "dunlin reply".to_owned(), ..SubscribeOptions::default() };
    let mut requests = client
        .subscribe(&arguments.pattern, options)
        .with_context(|| format!("cannot subscribe to {}", arguments.pattern))?;
    let mut responder = client.responder();
    let mut outage = Outage::default();
    let mut answered = 0;
    while !stop.is_set() && arguments.count.is_none_or(|count| answered < count) {
        let Some(event) = next(&mut requests, &mut outage, console)? else { continue };
        let Event::Record(record) = event else { continue };
        let Some(reply_to) = record.frame.reply() else { continue };
        // Whoever asked is told, too, when the command cannot be run.
        let answer = answer(arguments, &record).unwrap_or_else(|error| {
            let _ = writeln!(std::io::stderr(), "{} {error:#}", console.errors.bad("error:"));
            Answer { payload: Vec::new(), error: Some(format!("{error:#}")) }
        });
        let error = answer.error.as_ref().map(|error| (ERROR_HEADER, error.as_bytes()));
        let meta = Meta { headers: error.as_slice(), ..Meta::default() };
        let draft = Draft { meta, payload: Payload::Copied(&answer.payload) };
        // A requester that has gone is no reason to leave the others alone.
        if let Err(error) = responder.reply(reply_to, draft) {
            writeln!(std::io::stderr(), "{} {error}", console.errors.warning("not answered:"))?;
        }
        answered += 1;
    }
    Ok(())
}

fn next<'s>(
    requests: &'s mut impl Subscribe,
    outage: &mut Outage,
    console: &Console,
) -> Result<Option<Event<'s>>> {
    match requests.ready() {
        Ok(true) => {
            outage.over();
            return Ok(Some(requests.take()));
        }
        Ok(false) => {}
        Err(error) => outage.wait_out(error, console.errors)?,
    }
    if let Err(error) = requests.wait(Some(LOOK)) {
        outage.wait_out(error, console.errors)?;
    }
    Ok(None)
}

struct Answer {
    payload: Vec<u8>,
    error: Option<String>,
}

fn answer(arguments: &Arguments, request: &Record<'_>) -> Result<Answer> {
    match (&arguments.text, Program::new(&arguments.command)) {
        (Some(text), _) => Ok(Answer { payload: text.clone().into_bytes(), error: None }),
        (None, Some(program)) => {
            let output = program.output(request)?;
            let error = (!output.status.success()).then(|| format!("{}: {}", program.name(), output.status));
            Ok(Answer { payload: output.stdout, error })
        }
        (None, None) => Ok(Answer { payload: request.payload().to_vec(), error: None }),
    }
}
