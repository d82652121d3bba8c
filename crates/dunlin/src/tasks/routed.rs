//! Splits commands by shard, and puts the responses of the shards back into the order of the commands.

use bytes::Bytes;
use dunlin_raft::CommandBatch;
use dunlin_tasks::{ShardRoute, TaskCommand, TaskCommandOutcome};

use super::TasksError;

/// Commands that are split by shard. The commands for a shard keep their order.
pub(super) struct RoutedCommands {
    pub(super) commands: Vec<CommandBatch>,
    routes: Vec<ShardRoute>,
}

impl RoutedCommands {
    pub(super) fn of(commands: &CommandBatch, shards: u8) -> Result<RoutedCommands, TasksError> {
        let mut routed = RoutedCommands {
            commands: (0..shards).map(|_| CommandBatch::default()).collect(),
            routes: Vec::new(),
        };
        for bytes in commands.iter() {
            let route = TaskCommand::decode(bytes)?.route(shards);
            match route {
                ShardRoute::One(shard) => routed.commands[usize::from(shard)].push(bytes),
                ShardRoute::All => routed.commands.iter_mut().for_each(|commands| commands.push(bytes)),
            }
            routed.routes.push(route);
        }
        Ok(routed)
    }

    /// Takes the responses of each shard. Returns one response for each command, in the order of the commands.
    pub(super) fn join(self, responses: Vec<Vec<Bytes>>) -> Result<Vec<Bytes>, TasksError> {
        let mut responses: Vec<_> = responses.into_iter().map(Vec::into_iter).collect();
        let join = |route: &ShardRoute| match route {
            ShardRoute::One(shard) => responses[usize::from(*shard)].next().ok_or_else(TasksError::unknown),
            ShardRoute::All => {
                let parts =
                    responses.iter_mut().map(|responses| responses.next().ok_or_else(TasksError::unknown));
                let parts: Vec<Bytes> = parts.collect::<Result<_, _>>()?;
                let parts =
                    parts.iter().map(|part| TaskCommandOutcome::decode(part)).collect::<Result<_, _>>()?;
                let mut out = Vec::new();
                TaskCommandOutcome::join(parts).ok_or_else(TasksError::unknown)?.encode(&mut out);
                Ok(out.into())
            }
        };
        self.routes.iter().map(join).collect()
    }
}

#[cfg(test)]
mod tests {
    use dunlin_tasks::{CommandReply, shard_of_tenant};

    use super::*;

    fn encode_reply(reply: CommandReply) -> Bytes {
        let mut out = Vec::new();
        TaskCommandOutcome::Done { reply }.encode(&mut out);
        out.into()
    }

    #[test]
    fn responses_of_shards_are_joined_in_command_order() {
        let names: Vec<String> = (0..9).map(|number| format!("tenant-{number}")).collect();
        let shard_of = |name: &String| usize::from(shard_of_tenant(name.as_bytes(), 2));
        let mut commands = CommandBatch::default();
        for name in &names {
            commands.push_with(|out| TaskCommand::EnsureTenant { tenant: name.as_bytes() }.encode(out));
            commands.push_with(|out| TaskCommand::Renew { workers: vec![7] }.encode(out));
        }
        let routed = RoutedCommands::of(&commands, 2).unwrap();
        let of_first = names.iter().filter(|name| shard_of(name) == 0).count();
        assert_eq!(routed.commands[0].len(), of_first + names.len());
        let mut responses = vec![Vec::new(), Vec::new()];
        for (at, name) in names.iter().enumerate() {
            responses[shard_of(name)]
                .push(encode_reply(CommandReply::Changed { tasks: at as u64, more: false }));
            responses[0].push(encode_reply(CommandReply::Renewed { gone: vec![] }));
            responses[1].push(encode_reply(CommandReply::Renewed { gone: vec![at as u64] }));
        }
        let expected = (0..names.len() as u64).flat_map(|at| {
            [
                encode_reply(CommandReply::Changed { tasks: at, more: false }),
                encode_reply(CommandReply::Renewed { gone: vec![at] }),
            ]
        });
        assert_eq!(routed.join(responses.clone()).unwrap(), expected.collect::<Vec<_>>());
        responses[1].pop();
        assert!(
            RoutedCommands::of(&commands, 2).unwrap().join(responses).is_err(),
            "a missing response is an unknown outcome"
        );
    }
}
