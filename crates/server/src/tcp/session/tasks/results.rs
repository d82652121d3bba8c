//! Encodes the results of a request's commands for the client. There is one result for each command, in the same order.

use dunlin::Refused;
use dunlin::scheduler::{ExcessValues, TaskCommandOutcome};
use dunlin::wire::{ErrorCode, TaskCommandResult};

use super::CommandResult;

/// The second byte of each encoded [`TaskCommandOutcome::Done`].
const DONE: u8 = 1;

/// Encodes the results. If a result cannot be decoded, the client receives a refusal that says that the outcome is
/// unknown.
pub(super) fn write_all(results: &[CommandResult]) -> Vec<u8> {
    let mut out = Vec::with_capacity(results.iter().map(|(result, _)| result.len() + 8).sum());
    let mut done = Vec::new();
    for (result, excess) in results {
        match **result {
            // An encoded result consists of a version, its kind, and the reply. A separate reply begins with the
            // version.
            [version, DONE, ref reply @ ..] => {
                done.clear();
                done.push(version);
                done.extend_from_slice(reply);
                TaskCommandResult::Done(&done).write(&mut out);
            }
            _ => TaskCommandResult::Refused(refused(result, excess.as_deref()).as_wire()).write(&mut out),
        }
    }
    out
}

fn refused(result: &[u8], excess: Option<&ExcessValues>) -> Refused {
    match TaskCommandOutcome::decode(result) {
        Ok(TaskCommandOutcome::Refused { refusal }) => Refused::from_task_refusal(&refusal, excess),
        _ => Refused::new(
            ErrorCode::CommandUnknown,
            "this node cannot read the reply; update all nodes to the same version",
        ),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use dunlin::scheduler::{CommandReply, SubmittedTask, TaskRefusal};

    use super::*;

    fn encoded(outcome: &TaskCommandOutcome) -> Bytes {
        let mut bytes = Vec::new();
        outcome.encode(&mut bytes);
        bytes.into()
    }

    #[test]
    fn unreadable_task_response_leaves_other_responses_in_order() {
        let tasks = vec![SubmittedTask { task: 7, known: false }];
        let done = TaskCommandOutcome::Done {
            reply: CommandReply::Submitted { tasks: tasks.clone(), slow_down_ms: 3 },
        };
        let refused = TaskCommandOutcome::Refused { refusal: TaskRefusal::NoTask { task: 9 } };
        let results = [Bytes::new(), encoded(&refused), Bytes::from_static(&[255, 9, 9]), encoded(&done)];
        let results = results.map(|result| -> CommandResult { (result, None) });
        let written = write_all(&results);
        let read: Vec<_> = TaskCommandResult::read_all(&written).map(Result::unwrap).collect();
        let codes = read[..3].iter().map(|result| match result {
            TaskCommandResult::Refused(refusal) => refusal.code,
            TaskCommandResult::Done(_) => panic!("{result:?} was not taken in"),
        });
        let expected = [ErrorCode::CommandUnknown, ErrorCode::NoTask, ErrorCode::CommandUnknown];
        assert!(codes.eq(expected), "{read:?}");
        let [_, _, _, TaskCommandResult::Done(reply)] = read[..] else { panic!("{read:?}") };
        assert_eq!(CommandReply::decode(reply), Ok(CommandReply::Submitted { tasks, slow_down_ms: 3 }));
    }
}
