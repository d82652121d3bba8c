//! Reads records as a member of a group. Each record is printed or passed to a command. The member then acknowledges
//! the record or returns it to the group.
//!
//! A printed record of a work group is acknowledged only after the output was flushed. If the member is killed between
//! the two steps, the group delivers the record a second time, so the record is not lost. While a command runs for a
//! record, the record's claim is renewed.

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use dunlin_client::{CallError, GroupEvent, GroupKind, Member};
use dunlin_topic::{Frame, Record};

use super::{BATCH_EVENTS_MAX, EventCount, FollowOutput};
use crate::program::ExternalProgram;

/// The number of records that a member claims in advance if it only prints them, without pauses and without running a
/// command.
const CLAIMS_AHEAD: u64 = 64;
/// How many times a claim is renewed during its time limit. With 3, two renewals may fail before the claim ends.
const RENEWALS_PER_CLAIM: u32 = 3;

/// How a group member handles each record: whether it prints the record or runs a command, and whether it then
/// acknowledges the record.
#[derive(Debug)]
pub struct RecordHandling {
    pub kind: GroupKind,
    /// Whether the member acknowledges the records that it has handled.
    pub acks: bool,
    /// The command to run for each record; `None` to print the record instead. If the command succeeds, the record is
    /// acknowledged.
    pub program: Option<ExternalProgram>,
    /// How long the group waits after the command of a record has failed, before it delivers the record again.
    pub retry_after: Duration,
    /// The number of attempts after which the group no longer delivers a record. `last_attempt_note` says where such a
    /// record goes.
    pub attempts_max: u32,
    pub last_attempt_note: String,
}

/// Reads records as a group member, and prints them or runs a command for each.
#[derive(Debug)]
pub struct MemberLoop<'a> {
    member: &'a mut Member,
    handling: &'a RecordHandling,
    /// The number of requested records that have not arrived yet.
    requested: u64,
    /// The claim tokens of the records that were printed, but not acknowledged yet.
    unacknowledged: Vec<u64>,
}

/// How the handling of one record ended.
enum Outcome {
    Done,
    Failed(String),
    /// The command was interrupted because the member has to end. The group delivers the record to another member.
    Dropped,
}

impl<'a> MemberLoop<'a> {
    pub fn new(member: &'a mut Member, handling: &'a RecordHandling) -> MemberLoop<'a> {
        MemberLoop { member, handling, requested: 0, unacknowledged: Vec::new() }
    }

    pub(super) fn wait(&mut self, timeout: Duration) -> Result<(), dunlin_topic::SubscribeError> {
        self.member.wait(Some(timeout)).map(drop)
    }

    /// Handles the records that have arrived, and then acknowledges or returns them.
    pub(super) fn handle_batch<W: Write>(&mut self, follow: &FollowOutput<W>) -> Result<EventCount> {
        let mut events = 0;
        while events < BATCH_EVENTS_MAX && !follow.is_over() {
            self.claim(follow);
            if !self.member.ready()? {
                break;
            }
            self.handle_next(follow)?;
            events += 1;
        }
        follow.out().flush()?;
        self.acknowledge(follow)?;
        Ok(EventCount(events))
    }

    /// Requests more records if all requested ones have arrived: at most as many as the member may still handle.
    fn claim<W: Write>(&mut self, follow: &FollowOutput<W>) {
        if self.handling.kind == GroupKind::Share || self.requested > 0 {
            return;
        }
        let one_by_one = self.handling.program.is_some() || follow.rules.sleep.is_some();
        let remaining = follow.remaining().unwrap_or(u64::MAX);
        self.requested = remaining.min(if one_by_one { 1 } else { CLAIMS_AHEAD });
        self.member.claim(self.requested);
    }

    fn handle_next<W: Write>(&mut self, follow: &FollowOutput<W>) -> Result<()> {
        let (token, outcome, description, is_last_attempt) = match self.member.take() {
            GroupEvent::Notice(notice) => {
                return Ok(follow.writer.notice(&notice, &mut *follow.out(), &mut std::io::stderr())?);
            }
            GroupEvent::Record { token, position, attempt, claim, frame, log } => {
                let record = Record { position, prev_seq: position.seq - 1, frame, log };
                let description = format!("{} {position}, attempt {attempt}", record.subject());
                let is_last_attempt = self.handling.attempts_max > 0 && attempt >= self.handling.attempts_max;
                let outcome = match &self.handling.program {
                    None => self.handling.write(&record, attempt, follow)?,
                    Some(program) => {
                        let (mut copy, log) = (Vec::new(), Arc::clone(log));
                        frame.append_to(&mut copy);
                        let (frame, _) = Frame::split(&copy).expect("the copy is a whole frame");
                        let record = Record { frame, log: &log, ..record };
                        let claim = (self.handling.kind == GroupKind::Work).then_some((token, claim));
                        run(program, &record, attempt, self.member, claim, follow)?
                    }
                };
                (token, outcome, description, is_last_attempt)
            }
        };
        self.requested = self.requested.saturating_sub(1);
        follow.count_record();
        match outcome {
            Outcome::Done if self.handling.acks => self.unacknowledged.push(token),
            Outcome::Failed(why) => {
                self.nack(token, &format!("{description}: {why}"), is_last_attempt, follow)?
            }
            Outcome::Done | Outcome::Dropped => {}
        }
        if let Some(sleep) = follow.rules.sleep {
            follow.out().flush()?;
            follow.stop.sleep(sleep);
            self.acknowledge(follow)?;
        } else if self.handling.program.is_some() {
            self.acknowledge(follow)?;
        }
        Ok(())
    }

    fn acknowledge<W: Write>(&mut self, follow: &FollowOutput<W>) -> Result<()> {
        let done = std::mem::take(&mut self.unacknowledged);
        if self.handling.kind == GroupKind::Share || done.is_empty() {
            return Ok(());
        }
        let late = match self.member.ack(&done) {
            Ok(settlement) => settlement.stale.len(),
            Err(CallError::Refused(refused)) => return Err(CallError::Refused(refused).into()),
            Err(CallError::Disconnected(_) | CallError::Unknown(_)) => done.len(),
            Err(other) => return Err(other.into()),
        };
        if late > 0 {
            let mark = follow.writer.errors.warning("too late:");
            let records = if late == 1 { "record" } else { "records" };
            writeln!(
                std::io::stderr(),
                "{mark} {late} {records} may be delivered again: acknowledged after the deadline, or while the connection was lost"
            )?;
        }
        Ok(())
    }

    fn nack<W: Write>(
        &mut self,
        token: u64,
        description: &str,
        is_last_attempt: bool,
        follow: &FollowOutput<W>,
    ) -> Result<()> {
        let mark = follow.writer.errors.bad("failed:");
        let next_step = match self.handling.kind {
            GroupKind::Share => String::new(),
            GroupKind::Work => match self.member.nack(&[(token, self.handling.retry_after)]) {
                Ok(settlement) if settlement.settled == 1 && is_last_attempt => {
                    format!("; last attempt failed: {}", self.handling.last_attempt_note)
                }
                Ok(settlement) if settlement.settled == 1 => {
                    let after = humantime::format_duration(self.handling.retry_after);
                    format!("; retry after {after}")
                }
                Err(CallError::Refused(refused)) => return Err(CallError::Refused(refused).into()),
                _ => "; another member has claimed the record".to_owned(),
            },
        };
        Ok(writeln!(std::io::stderr(), "{mark} {description}{next_step}")?)
    }
}

impl RecordHandling {
    fn write<W: Write>(
        &self,
        record: &Record<'_>,
        attempt: u32,
        follow: &FollowOutput<W>,
    ) -> Result<Outcome> {
        let attempt = (self.kind == GroupKind::Work).then_some(attempt);
        follow.writer.record(record, attempt, &mut *follow.out())?;
        Ok(Outcome::Done)
    }
}

/// Runs the command for a record until the command ends, and renews the record's claim in the meantime.
fn run<W: Write>(
    program: &ExternalProgram,
    record: &Record<'_>,
    attempt: u32,
    member: &mut Member,
    claim: Option<(u64, Duration)>,
    follow: &FollowOutput<W>,
) -> Result<Outcome> {
    follow.out().flush()?;
    let ran = thread::scope(|scope| {
        let (ended, end) = mpsc::channel();
        if let Some((token, claim)) = claim {
            scope.spawn(move || renew(member, token, claim / RENEWALS_PER_CLAIM, &end));
        }
        let ran = program.run(record, attempt);
        drop(ended);
        ran
    });
    Ok(match ran {
        Ok(status) if status.success() => Outcome::Done,
        // Ctrl-C has ended the command too, so the command's exit status says nothing about the record.
        _ if follow.stop.is_set() => Outcome::Dropped,
        Ok(status) => Outcome::Failed(format!("{}: {status}", program.name())),
        // The command could be run when the member started, but cannot be run now. The member leaves the group, which
        // then delivers the record to another member.
        Err(error) => return Err(error),
    })
}

/// Renews the claim with this token until the command has ended or the claim is lost. After a loss, the node refuses
/// the acknowledgement of the record as stale.
fn renew(member: &mut Member, token: u64, every: Duration, end: &mpsc::Receiver<()>) {
    while end.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        match member.renew(&[token]) {
            Ok(settlement) if settlement.settled == 0 => return,
            Err(CallError::Refused(_)) => return,
            // The claim was renewed, or the attempt failed with a temporary error. In both cases, the next attempt
            // follows after `every`.
            Ok(_) | Err(_) => {}
        }
    }
}
