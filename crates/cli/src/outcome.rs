//! How a command ends when it does not end well: what is said, and the exit code.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use dunlin_client::AskError;
use dunlin_topic::{PublishError, SubscribeError};

use crate::console::Console;

/// Someone who was able to do it said no: exit code 1.
#[derive(Debug)]
pub struct Refusal(pub String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

const REFUSED: u8 = 1;
const FAILED: u8 = 2;

/// Says what went wrong on standard error.
pub fn tell(error: &anyhow::Error, console: &Console) -> ExitCode {
    // Whoever read our output has gone, as `head` does: they have what they wanted.
    if is_broken_pipe(error) {
        return ExitCode::SUCCESS;
    }
    let mark = console.errors.bad("error:");
    // Nothing is left to tell it to when standard error is closed.
    let _ = writeln!(std::io::stderr(), "{mark} {error:#}");
    ExitCode::from(code(error))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == ErrorKind::BrokenPipe)
}

fn code(error: &anyhow::Error) -> u8 {
    let refused = error.chain().any(|cause| {
        cause.is::<Refusal>()
            || matches!(cause.downcast_ref(), Some(AskError::Refused(_)))
            || cause.downcast_ref::<PublishError>().is_some_and(publish_refused)
            || cause.downcast_ref::<SubscribeError>().is_some_and(subscribe_refused)
    });
    if refused { REFUSED } else { FAILED }
}

fn publish_refused(error: &PublishError) -> bool {
    !matches!(error, PublishError::Unknown(_) | PublishError::Closed)
}

fn subscribe_refused(error: &SubscribeError) -> bool {
    !matches!(error, SubscribeError::Connection(_) | SubscribeError::Closed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn a_refusal_is_one_and_a_failure_two_however_deep_it_lies() {
        let deep = |error: anyhow::Error| code(&error.context("publishing").context("demo"));
        assert_eq!(deep(Refusal("no".into()).into()), 1);
        assert_eq!(deep(PublishError::NoTopic("a".into()).into()), 1);
        assert_eq!(deep(PublishError::Unknown("cut".into()).into()), 2);
        assert_eq!(deep(SubscribeError::Lost.into()), 1);
        assert_eq!(deep(SubscribeError::Connection("refused".into()).into()), 2);
        let file = std::fs::read("/nonexistent").context("reading").unwrap_err();
        assert_eq!(deep(file), 2);
    }
}
