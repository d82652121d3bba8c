//! Reports the error of a failed command: its message, the advice to the user, and the exit code.

use std::io::{ErrorKind, Write, stderr, stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;

use dunlin::Refused;
use dunlin_client::{CallError, KvError, TasksError, WatchError};
use dunlin_topic::{PublishError, SubjectError, SubscribeError};
use dunlin_wire::{CODES, CodeRow, ErrorCode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::json;

use crate::console::Console;
use crate::format::text::escaped_lines;

/// The error for an operation that the command or the node refuses. The command's exit code is then 1.
#[derive(Debug)]
pub struct CommandRefusal(pub String);

impl std::fmt::Display for CommandRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CommandRefusal {}

/// A refusal with advice of its own, which is more specific than the advice in the table of error codes.
#[derive(Debug)]
pub struct ErrorWithAdvice {
    pub code: ErrorCode,
    pub message: String,
    pub advice: String,
}

impl std::fmt::Display for ErrorWithAdvice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ErrorWithAdvice {}

const REFUSED: u8 = 1;
const FAILED: u8 = 2;

/// The explanation of the exit codes, for help texts.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    success; also after Ctrl-C or SIGTERM, if the command runs until then
  1    refused by the node or by a check of the command; nothing is broken
  2    failure: no connection, file error, invalid command line, unknown outcome
  130  ended at once by a second Ctrl-C, without cleanup";

/// Prints the error on standard error, with `--json` as an object, and returns the exit code.
pub fn report(error: &anyhow::Error, console: &Console) -> ExitCode {
    // It is not an error if the program that reads the output has ended, as `head` does.
    if is_end_of_reader(error, [stdout().as_fd(), stderr().as_fd()]) {
        return ExitCode::SUCCESS;
    }
    if console.json {
        let row = row(error);
        let object = json!({
            "error": message_of(error), "code": row.map(|row| row.name),
            "advice": row.map(|row| advice(error, row)),
            "exit_code": exit_code(error),
        });
        let _ = writeln!(std::io::stderr(), "{object}");
        return ExitCode::from(exit_code(error));
    }
    let mark = console.errors.bad("error:");
    // The write fails only if standard error is closed.
    let _ = writeln!(std::io::stderr(), "{mark} {}", escaped_lines(&message_of(error)));
    if let Some(row) = row(error) {
        let more = console.errors.command(&format!("dunlin errors {}", row.name));
        let _ = writeln!(std::io::stderr(), "  {}  ({more})", escaped_lines(advice(error, row)));
    }
    ExitCode::from(exit_code(error))
}

/// Returns the advice in the error if there is one, otherwise the advice for the error's code.
fn advice<'a>(error: &'a anyhow::Error, row: &'a CodeRow) -> &'a str {
    let advised = error.chain().find_map(|cause| cause.downcast_ref::<ErrorWithAdvice>());
    advised.map_or(row.advice, |advised| advised.advice.as_str())
}

/// Joins the texts of the error and of its causes, without repetitions.
fn message_of(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() {
            message = cause;
        } else if !message.ends_with(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}

/// Whether the error occurred because a program that reads one of the outputs has ended. A broken pipe to a child
/// process and a broken socket cause the same error, so this function also checks the outputs themselves.
fn is_end_of_reader(error: &anyhow::Error, outputs: [BorrowedFd<'_>; 2]) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == ErrorKind::BrokenPipe) && outputs.into_iter().any(has_no_reader)
}

fn has_no_reader(output: BorrowedFd<'_>) -> bool {
    // `poll` reports a closed pipe even if the caller requests no event.
    let mut poll_fds = [PollFd::new(&output, PollFlags::empty())];
    let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
    while poll(&mut poll_fds, Some(&no_wait)) == Err(Errno::INTR) {}
    poll_fds[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Returns the row of the table of error codes that applies to the error, if there is one.
fn row(error: &anyhow::Error) -> Option<&'static CodeRow> {
    let code = error.chain().find_map(|cause| {
        if cause.is::<SubjectError>() {
            return Some(ErrorCode::Subject);
        }
        if let Some(advised) = cause.downcast_ref::<ErrorWithAdvice>() {
            return Some(advised.code);
        }
        if let Some(error) = cause.downcast_ref::<KvError>() {
            return error.code();
        }
        if let Some(error) = cause.downcast_ref::<TasksError>() {
            return error.code();
        }
        if let Some(WatchError::Compacted { .. }) = cause.downcast_ref() {
            return Some(ErrorCode::Compacted);
        }
        match (cause.downcast_ref(), cause.downcast_ref(), cause.downcast_ref()) {
            (Some(CallError::Refused(refused)), _, _) => Some(refused.code),
            (_, Some(PublishError::Refused(message)), _) | (_, _, Some(SubscribeError::Refused(message))) => {
                code_of(message)
            }
            (_, Some(PublishError::Unknown(_)), _) | (_, _, Some(SubscribeError::Connection(_))) => None,
            (_, Some(error), _) => Some(Refused::from(error).code),
            (_, _, Some(error)) => Some(Refused::from(error).code),
            _ => None,
        }
    })?;
    code.row()
}

/// Finds the error code at the beginning of a refusal's text.
fn code_of(message: &str) -> Option<ErrorCode> {
    let name = message.split(':').next()?;
    CODES.iter().find(|row| row.name == name).map(|row| row.code)
}

fn exit_code(error: &anyhow::Error) -> u8 {
    let refused = error.chain().any(|cause| {
        cause.is::<CommandRefusal>()
            || cause.is::<ErrorWithAdvice>()
            || cause.is::<SubjectError>()
            || matches!(cause.downcast_ref(), Some(CallError::Refused(_)))
            || cause.downcast_ref::<KvError>().is_some_and(kv_refused)
            || matches!(cause.downcast_ref(), Some(TasksError::Refused(_)))
            || matches!(
                cause.downcast_ref(),
                Some(WatchError::Compacted { .. } | WatchError::Restarted { .. })
            )
            || cause.downcast_ref::<PublishError>().is_some_and(publish_refused)
            || cause.downcast_ref::<SubscribeError>().is_some_and(subscribe_refused)
    });
    if refused { REFUSED } else { FAILED }
}

fn kv_refused(error: &KvError) -> bool {
    !matches!(error, KvError::Unknown(_) | KvError::Disconnected(_))
}

fn publish_refused(error: &PublishError) -> bool {
    !matches!(error, PublishError::Unknown(_) | PublishError::Closed)
}

fn subscribe_refused(error: &SubscribeError) -> bool {
    !matches!(error, SubscribeError::Connection(_) | SubscribeError::Closed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use anyhow::Context;

    #[test]
    fn error_code_is_found_in_an_error_with_added_context() {
        let name =
            |error: anyhow::Error| row(&error.context("cannot publish the record")).map(|row| row.name);
        assert_eq!(name(PublishError::SeqMoved { expected: 1, last_seq: 2 }.into()), Some("SEQ_MOVED"));
        assert_eq!(name(PublishError::Refused("SUBJECT: \"a b\" …".into()).into()), Some("SUBJECT"));
        assert_eq!(name(SubscribeError::Lost.into()), Some("LOST"));
        assert_eq!(name(SubjectError::Empty.into()), Some("SUBJECT"));
        assert_eq!(name(SubscribeError::Connection("refused".into()).into()), None);
    }

    #[test]
    fn advice_inside_an_error_replaces_the_advice_of_its_code() {
        let (message, advice_text) = ("no".to_owned(), "Do this.".to_owned());
        let error =
            anyhow::Error::from(ErrorWithAdvice { code: ErrorCode::NoTopic, message, advice: advice_text })
                .context("cannot publish the record");
        let row = row(&error).unwrap();
        assert_eq!((row.name, advice(&error, row), exit_code(&error)), ("NO_TOPIC", "Do this.", 1));
    }

    #[test]
    fn cause_repeated_in_an_error_context_is_printed_once() {
        let file = std::fs::read("/nonexistent").unwrap_err();
        let error = anyhow::Error::from(file).context("cannot read the file").context("cannot open the log");
        let once = "cannot open the log: cannot read the file: No such file or directory (os error 2)";
        assert_eq!(message_of(&error), once);
        let error = anyhow::anyhow!("No such file or directory (os error 2)").context(once);
        assert_eq!(message_of(&error), once);
    }

    #[test]
    fn broken_pipe_is_a_failure_if_the_output_is_still_read() {
        let error = anyhow::Error::from(std::io::Error::from(ErrorKind::BrokenPipe))
            .context("cannot write the output");
        let (output, reader) = UnixStream::pair().unwrap();
        let (other, _other_reader) = UnixStream::pair().unwrap();
        assert!(!is_end_of_reader(&error, [output.as_fd(), other.as_fd()]));
        drop(reader);
        assert!(is_end_of_reader(&error, [output.as_fd(), other.as_fd()]));
        assert!(is_end_of_reader(&error, [other.as_fd(), output.as_fd()]));
        let full = anyhow::Error::from(std::io::Error::from(ErrorKind::StorageFull));
        assert!(!is_end_of_reader(&full, [output.as_fd(), other.as_fd()]));
    }

    #[test]
    fn exit_code_is_1_for_a_refusal_and_2_for_a_failure() {
        let exit_code_below_context = |error: anyhow::Error| {
            exit_code(&error.context("cannot publish the record").context("the demo failed"))
        };
        assert_eq!(exit_code_below_context(CommandRefusal("no".into()).into()), 1);
        assert_eq!(exit_code_below_context(PublishError::NoTopic("a".into()).into()), 1);
        assert_eq!(exit_code_below_context(PublishError::Unknown("cut".into()).into()), 2);
        assert_eq!(exit_code_below_context(SubscribeError::Lost.into()), 1);
        assert_eq!(exit_code_below_context(SubscribeError::Connection("refused".into()).into()), 2);
        let file = std::fs::read("/nonexistent").context("cannot read the file").unwrap_err();
        assert_eq!(exit_code_below_context(file), 2);
    }
}
