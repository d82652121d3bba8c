//! Ends the start of a raft group with an error if the group's disk stays full.

use std::pin::pin;
use std::time::{Duration, Instant};

use dunlin_raft::{GroupHandle, RaftGroupError, StateMachine};
use futures_util::future::{Either, select};

use super::ControlError;

/// The longest time for which the start of a group waits for room on the disk. Meanwhile, the group may make room
/// itself by removing old log entries.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(3);
/// The interval at which the group's log is checked for lack of room.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `start`, which starts a group. If the group's log lacks room on the disk for too long, returns the log's error
/// instead.
pub(crate) async fn with_room<M: StateMachine, E: From<ControlError>>(
    group: &GroupHandle<M>,
    start: impl Future<Output = Result<(), E>>,
) -> Result<(), E> {
    let (start, full) = (pin!(start), pin!(wait_until_full(group)));
    match select(start, full).await {
        Either::Left((started, _)) => started,
        Either::Right((error, _)) => Err(ControlError::from(error).into()),
    }
}

/// Returns the error once the group's log has waited for room without interruption for [`ROOM_WAIT_MAX`].
async fn wait_until_full<M: StateMachine>(group: &GroupHandle<M>) -> RaftGroupError {
    let mut since = None;
    loop {
        group.pause(CHECK_INTERVAL).await;
        match group.room_shortage() {
            None => since = None,
            Some(error) if since.get_or_insert_with(Instant::now).elapsed() >= ROOM_WAIT_MAX => return error,
            Some(_) => {}
        }
    }
}
