//! Reports to the user once that the connection is lost, and pauses the command. The client connects again and
//! continues its subscriptions by itself.

use std::io::Write;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use dunlin_client::{CallError, Client, DisconnectReason, Disconnection, RefusedError};
use dunlin_topic::SubscribeError;
use dunlin_wire::{CODES, RetryAdvice};

use crate::console::TextPainter;
use crate::format::text::escaped_lines;

/// The pause between two attempts of a command. A call of the client may fail at once: without this pause, the command
/// would repeat such a call in a busy loop.
const PAUSE: Duration = Duration::from_millis(10);

/// The time after which a lost connection is reported.
const REPORT_AFTER: Duration = Duration::from_secs(1);

/// Returns why the node is unreachable, if the outage has lasted at least `REPORT_AFTER`.
pub fn unreachable(client: &Client) -> Option<Disconnection> {
    client.disconnection().filter(|lost| lost.since.elapsed() >= REPORT_AFTER)
}

/// Informs the user of a lost connection, once for each outage.
#[derive(Debug, Default)]
pub struct OutageReport {
    is_reported: bool,
}

impl OutageReport {
    /// If the error is a lost connection, reports it and pauses. Returns any other error.
    pub fn handle_error(&mut self, error: SubscribeError, paint: TextPainter) -> Result<()> {
        let SubscribeError::Connection(why) = error else { return Err(error.into()) };
        self.report_once(&why, paint)
    }

    /// Reports a lost connection unless this outage was reported before. Pauses in either case. Returns an error if the
    /// node refused the client and will refuse it again.
    pub fn report_once(&mut self, why: &str, paint: TextPainter) -> Result<()> {
        self.report(why, paint)?;
        thread::sleep(PAUSE);
        Ok(())
    }

    fn report(&mut self, why: &str, paint: TextPainter) -> Result<()> {
        // The connection is not lost: a signal interrupted the wait, because the command is about to end.
        if why == DisconnectReason::Interrupted.to_string() {
            return Ok(());
        }
        if let Some(refused) = permanent_refusal(why) {
            return Err(CallError::Refused(refused).into());
        }
        if !self.is_reported {
            self.is_reported = true;
            let why = escaped_lines(why);
            writeln!(std::io::stderr(), "{} {why}; reconnecting", paint.warning("connection lost:"))?;
        }
        Ok(())
    }

    /// Reports that the connection is lost or restored, and pauses during an outage. A command that runs until it is
    /// stopped calls this method in each iteration of its loop, because events may be rare.
    pub fn check_connection(&mut self, client: &Client, paint: TextPainter) -> Result<()> {
        self.check_connection_nowait(client, paint)?;
        if unreachable(client).is_some() {
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Like [`check_connection`](Self::check_connection), but never pauses. A command that also receives events over
    /// other connections uses this method: if it paused for each of these events during an outage, the events would
    /// pile up.
    pub fn check_connection_nowait(&mut self, client: &Client, paint: TextPainter) -> Result<()> {
        match unreachable(client) {
            Some(lost) => self.report(&lost.why, paint),
            None if client.is_up() => {
                self.report_restored();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Reports that the connection is restored, if the outage was reported.
    #[inline]
    pub fn report_restored(&mut self) {
        if std::mem::take(&mut self.is_reported) {
            // The write fails only if standard error is closed.
            let _ = writeln!(std::io::stderr(), "connected again");
        }
    }
}

/// The beginning of the client's text for a connection that the node refused.
const REFUSED: &str = "refused by the node: ";

/// Returns the node's refusal that the text contains, if another attempt would be refused too.
fn permanent_refusal(why: &str) -> Option<RefusedError> {
    let (_, refusal) = why.split_once(REFUSED)?;
    let name = refusal.split([':', ' ']).next()?;
    let row = CODES.iter().find(|row| row.name == name && row.retry == RetryAdvice::No)?;
    let text = refusal[name.len()..].trim_start_matches([':', ' ']).to_owned();
    Some(RefusedError { code: row.code, numbers: [0; 3], text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_wait_is_not_reported_as_a_lost_connection() {
        let mut outage = OutageReport::default();
        outage.report_once("interrupted", TextPainter::PLAIN).unwrap();
        assert!(!outage.is_reported);
        outage.report_once("connecting to 127.0.0.1:1: refused", TextPainter::PLAIN).unwrap();
        assert!(outage.is_reported);
    }

    #[test]
    fn temporary_refusal_is_retried_and_a_permanent_one_is_not() {
        let mut outage = OutageReport::default();
        for why in [
            "refused by the node: TLS_REQUIRED",
            "refused by the node: UNAUTHENTICATED: user ana was removed",
        ] {
            assert!(outage.report_once(why, TextPainter::PLAIN).is_err(), "{why}");
        }
        for why in ["connecting to 127.0.0.1:1: refused", "refused by the node: LIMIT: sessions_max"] {
            assert!(outage.report_once(why, TextPainter::PLAIN).is_ok(), "{why}");
        }
    }
}
