//! Handles the operations that a NATS client sends.

use dunlin::wire::nats::{NatsOperation, OK};

use super::publish::{PublishedBatch, RetryFrom};
use super::{Phase, Session};
use crate::session::turn::COMMAND_WORK;

impl Session {
    /// Handles an operation. If it publishes a record, adds the record to the batch. Before any other operation,
    /// appends the batch. If the batch must wait for room, the operation is handled later.
    #[inline]
    pub(super) fn handle<'b>(
        &mut self,
        operation: NatsOperation<'b>,
        offset: usize,
        batch: &mut PublishedBatch<'b>,
    ) -> Result<(), RetryFrom> {
        if !self.is_logged_in() && !self.log_in(&operation, offset)? {
            return Ok(());
        }
        if let Phase::Greeting = self.phase {
            self.phase = Phase::Open;
            self.start_ping_timer();
        }
        if let NatsOperation::Publish(published) = operation {
            return self.add_to_batch(published, offset, batch);
        }
        self.publish_batch(batch)?;
        self.reset_pings();
        self.commands.add(match operation {
            NatsOperation::Subscribe { .. } | NatsOperation::Unsubscribe { .. } => COMMAND_WORK,
            _ => 1,
        });
        match operation {
            NatsOperation::Connect(json) => self.connect(json),
            NatsOperation::Ping => {
                self.handle_notifications();
                if self.has_unfinished() || !self.woken.is_empty() {
                    // The `PONG` may have to wait for channels that are opened in the next turn.
                    self.has_unhandled = true;
                    return Err(RetryFrom { from: offset });
                }
                self.pong()
            }
            NatsOperation::Pong | NatsOperation::Publish(_) => {}
            NatsOperation::Subscribe { subject, queue, sid } => {
                self.subscribe(subject, queue, sid, offset)?
            }
            NatsOperation::Unsubscribe { sid, max } => {
                self.unsubscribe(sid, max);
                self.write_ok();
            }
        }
        Ok(())
    }

    /// Sends `+OK` if the client set `"verbose": true`.
    pub(super) fn write_ok(&mut self) {
        if self.connect.verbose {
            self.outbound.control.extend_from_slice(OK);
        }
    }
}
