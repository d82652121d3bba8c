//! The command `dunlin reply`, which replies to requests, one at a time in order of arrival.
//!
//! To reply to several requests at the same time, run several of these commands in a work group.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin_client::Client;
use dunlin_topic::{
    Draft, Event, Pattern, Payload, Record, RecordMeta, Subscribe, SubscribeOptions, check_reply_subject,
};

use crate::arguments::GlobalOptions;
use crate::commands::request::ERROR_HEADER;
use crate::connect::connect;
use crate::console::Console;
use crate::format::text::escaped;
use crate::format::{json, text};
use crate::outage::OutageReport;
use crate::program::ExternalProgram;
use crate::signals::{GRACE, StopFlag};

/// Arguments of `dunlin reply`, which replies to requests.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin reply echo --echo                       reply with the request
  dunlin reply motd --text 'mind the gap'        always reply with this text
  dunlin reply time.now -- date -u               reply with a command's output
  dunlin reply 'math.*' -- bc                    the command reads the request from standard input

COMMAND has DUNLIN_SUBJECT, DUNLIN_POSITION, DUNLIN_KEY and DUNLIN_HEADER_<NAME> in its environment. If it fails, the
reply has the header dunlin-error with its exit code.

Replies go only to inboxes (subjects that start with _INBOX.) and to subjects that match --reply-to. Otherwise a request
could make this command publish to a subject to which the requester may not publish.")]
#[command(group = clap::ArgGroup::new("answer").required(true))]
pub struct Arguments {
    /// Subjects of the requests to reply to; `*` and `>` are wildcards
    pub pattern: String,
    /// Reply with the payload of the request
    #[arg(long, group = "answer")]
    pub echo: bool,
    /// Reply with this text
    #[arg(long, group = "answer")]
    pub text: Option<String>,
    /// Reply with the output of this command
    #[arg(last = true, group = "answer", value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Pattern of subjects, besides inboxes, to which replies may go; may be given several times
    #[arg(long, value_name = "PATTERN")]
    pub reply_to: Vec<Pattern>,
    /// End after this number of requests [default: no end]
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub count: Option<u64>,
}

/// The interval at which the command checks for a signal while it waits for requests.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let stop = StopFlag::on_signal()?;
    if let Some(program) = ExternalProgram::new(&arguments.command) {
        program.check()?;
    }
    let client = connect(global, "dunlin reply")?;
    stop.run_interruptible_after(GRACE, || reply_to_requests(&client, arguments, &stop, console)).map(drop)
}

fn reply_to_requests(
    client: &Client,
    arguments: &Arguments,
    stop: &StopFlag,
    console: &Console,
) -> Result<()> {
    let options = SubscribeOptions { name: "dunlin reply".to_owned(), ..SubscribeOptions::default() };
    let mut requests = client
        .subscribe(&arguments.pattern, options)
        .with_context(|| format!("cannot subscribe to {}", arguments.pattern))?;
    let mut responder = client.responder();
    let mut outage = OutageReport::default();
    let mut replies = 0;
    while !stop.is_set() && arguments.count.is_none_or(|count| replies < count) {
        let Some(event) = next_request(&mut requests, &mut outage, console)? else { continue };
        let record = match event {
            Event::Record(record) => record,
            // Requests in a gap were missed, so the command cannot reply to them.
            Event::Notice(notice) => {
                match console.json {
                    true => json::notice(&notice, &mut std::io::stderr())?,
                    false => text::notice(&notice, true, console.errors, &mut std::io::stderr())?,
                }
                continue;
            }
        };
        let Some(reply_to) = record.frame.reply() else { continue };
        if check_reply_subject(reply_to, &arguments.reply_to).is_err() {
            let reply_to = escaped(reply_to.as_bytes());
            let mark = console.errors.warning("not replied:");
            writeln!(
                std::io::stderr(),
                "{mark} the request's reply subject {reply_to} is not an inbox; --reply-to '{reply_to}' allows it"
            )?;
            continue;
        }
        // If the command cannot be run, the requester receives the error as its reply.
        let reply = build_reply(arguments, &record).unwrap_or_else(|error| {
            let _ = writeln!(std::io::stderr(), "{} {error:#}", console.errors.bad("error:"));
            ReplyContent { payload: Vec::new(), error: Some(format!("{error:#}")) }
        });
        let error = reply.error.as_ref().map(|error| (ERROR_HEADER, error.as_bytes()));
        let meta = RecordMeta { headers: error.as_slice(), ..RecordMeta::default() };
        let draft = Draft { meta, payload: Payload::Copied(&reply.payload) };
        // The reply may fail, for example because the requester has disconnected.
        if let Err(error) = responder.reply_within(&arguments.reply_to, reply_to, draft) {
            writeln!(std::io::stderr(), "{} {error}", console.errors.warning("not replied:"))?;
        }
        replies += 1;
    }
    Ok(())
}

fn next_request<'s>(
    requests: &'s mut impl Subscribe,
    outage: &mut OutageReport,
    console: &Console,
) -> Result<Option<Event<'s>>> {
    match requests.ready() {
        Ok(true) => {
            outage.report_restored();
            return Ok(Some(requests.take()));
        }
        Ok(false) => {}
        Err(error) => outage.handle_error(error, console.errors)?,
    }
    if let Err(error) = requests.wait(Some(POLL_INTERVAL)) {
        outage.handle_error(error, console.errors)?;
    }
    Ok(None)
}

struct ReplyContent {
    payload: Vec<u8>,
    error: Option<String>,
}

fn build_reply(arguments: &Arguments, request: &Record<'_>) -> Result<ReplyContent> {
    match (&arguments.text, ExternalProgram::new(&arguments.command)) {
        (Some(text), _) => Ok(ReplyContent { payload: text.clone().into_bytes(), error: None }),
        (None, Some(program)) => {
            let output = program.output(request)?;
            let error = (!output.status.success()).then(|| format!("{}: {}", program.name(), output.status));
            Ok(ReplyContent { payload: output.stdout, error })
        }
        (None, None) => Ok(ReplyContent { payload: request.payload().to_vec(), error: None }),
    }
}
