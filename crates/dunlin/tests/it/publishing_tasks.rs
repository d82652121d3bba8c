//! Tests of tasks of kind `publish`, which publish a record when they are due.

use std::time::Duration;

use dunlin::scheduler::{CommandReply, NewTask, TaskCommand, TaskQuery, TaskQueryResult, TaskStage};
use dunlin::topic::{
    OnFull, Publish, PublishError, ReliableOptions, Retention, SubscribeOptions, TopicConfig,
};
use dunlin::{Node, block_on};
use dunlin_wait::until;

use crate::{all, from_earliest, node};

pub fn submit(node: &Node, subject: &str, payload: &[u8]) -> u64 {
    let (tasks, tenant) = (node.tasks().unwrap(), &b"t"[..]);
    let task = NewTask { subject: subject.as_bytes(), ..NewTask::new(b"publish", payload) };
    block_on(tasks.execute(&TaskCommand::EnsureTenant { tenant })).unwrap();
    match block_on(tasks.execute(&TaskCommand::Submit { tenant, tasks: vec![task] })) {
        Ok(CommandReply::Submitted { tasks, .. }) => tasks[0].task,
        other => panic!("{other:?}"),
    }
}

pub fn stage(node: &Node, task: u64) -> TaskStage {
    match node.tasks().unwrap().answer(&TaskQuery::Get { task }) {
        Ok(TaskQueryResult::Task { task, .. }) => task.stage,
        other => panic!("{other:?}"),
    }
}

#[test]
fn full_topic_delays_no_task_that_publishes_elsewhere() {
    let node = node();
    let reliable = ReliableOptions { subscribers_max: 1, wait_max: Duration::MAX, on_full: OnFull::Refuse };
    let retention = Retention { bytes: 64 << 10, ..Retention::default() };
    let config = TopicConfig { reliable: Some(reliable), retention, ..TopicConfig::default() };
    node.create_topic("full", config, false).unwrap();
    let registered = SubscribeOptions { name: "slow".to_owned(), registered: true, ..from_earliest() };
    let mut slow = node.subscribe("full", &registered).unwrap();
    let mut publisher = node.publisher("full").unwrap().without_room_wait(false);
    let refused = loop {
        if let Err(refused) = publisher.publish(&[0_u8; 1_000][..]) {
            break refused;
        }
    };
    assert!(matches!(refused, PublishError::Full { .. }), "{refused}");
    let (blocked, free) = (submit(&node, "full", &[1; 1_000]), submit(&node, "free", b"2"));
    until("the other task has published", || stage(&node, free) == TaskStage::Completed);
    assert_eq!(stage(&node, blocked), TaskStage::Running);
    until("the task publishes once there is room", || {
        all(&mut slow);
        stage(&node, blocked) == TaskStage::Completed
    });
}

/// After a restart without a data directory, a client may still know a task's id from before. The client must not read
/// or cancel another client's task with this id.
#[test]
fn restart_without_a_data_directory_reuses_no_task_id() {
    let old = {
        let node = node();
        let task = submit(&node, "a", b"1");
        node.wait_for_epoch();
        task
    };
    let node = node();
    let new = submit(&node, "a", b"2");
    let tasks = node.tasks().unwrap();
    assert!(tasks.answer(&TaskQuery::Get { task: old }).is_err(), "{old:x}, then {new:x}");
    assert!(block_on(tasks.execute(&TaskCommand::Cancel { task: old })).is_err());
    assert!(tasks.answer(&TaskQuery::Get { task: new }).is_ok());
    assert!(new < 1 << 53, "a JSON number holds it");
}

#[test]
fn task_with_a_record_over_the_limit_becomes_a_dead_letter() {
    let node = node();
    let config = TopicConfig { record_bytes_max: 4 << 10, ..TopicConfig::default() };
    node.create_topic("small", config, false).unwrap();
    let task = submit(&node, "small", &[0; 8 << 10]);
    until("the task is a dead letter", || stage(&node, task) == TaskStage::Dead);
}
