//! Tests of keys and tasks of a node whose data directory is on a small file system that becomes full.

use std::fs::File;
use std::io::Write;
use std::process::Command as Program;
use std::sync::Arc;

use dunlin::journal::RealDisk;
use dunlin::state::ControlCommand;
use dunlin::wire::ErrorCode;
use dunlin::{Config, Consistency, ControlError, Node, Refused, TasksError, block_on};
use tempfile::TempDir;

static VALUE: [u8; 32 << 10] = [b'x'; 32 << 10];

/// A small file system in memory, which one test uses.
struct SmallFileSystem(TempDir);

impl SmallFileSystem {
    /// Mounts a file system of `bytes` bytes. Returns `None` if this user may not mount file systems.
    fn of(bytes: u64) -> Option<SmallFileSystem> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let mounted =
            Program::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then(|| SmallFileSystem(dir))
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = Program::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

fn open(dir: &TempDir) -> Node {
    let mut config = Config::default();
    config.limits.control.raft.reserve_bytes = 1 << 20;
    config.limits.tasks.raft.reserve_bytes = 1 << 20;
    Node::open(config, Arc::new(RealDisk), dir.path()).unwrap().0
}

fn key(number: usize) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

fn put(node: &Node, number: usize) -> Result<(), ControlError> {
    let key = key(number);
    block_on(node.control().unwrap().execute(&ControlCommand::Put { key: &key, value: &VALUE, lease: 0 }))
        .map(drop)
}

/// Writes keys until the disk is full. Returns the number of keys that were written.
fn fill(node: &Node) -> usize {
    for number in 0..10_000 {
        match put(node, number) {
            Ok(()) => {}
            Err(error @ ControlError::DiskFull(_)) => {
                assert_eq!(Refused::from(&error).code, ErrorCode::DiskFull);
                return number;
            }
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the disk never fills up");
}

fn keys(node: &Node) -> usize {
    let count = |state: &dunlin::state::ControlState| {
        (0..10_000).filter(|number| state.get(&key(*number)).is_some()).count()
    };
    block_on(node.control().unwrap().read(Consistency::Linearizable, count)).unwrap()
}

#[test]
fn keys_and_tasks_can_be_used_when_the_disk_has_room_again() {
    let Some(file_system) = SmallFileSystem::of(16 << 20) else {
        return eprintln!("passed over: this user may not mount a file system");
    };
    let node = open(&file_system.0);
    let others = file_system.0.path().join("others");
    let mut file = File::create(&others).unwrap();
    while file.write_all(&[0; 4_096]).is_ok() {}
    drop(file);
    let refused = node.control().unwrap_err();
    assert_eq!(Refused::from(&refused).code, ErrorCode::DiskFull, "{refused}");
    let refused = node.tasks().unwrap_err();
    assert!(matches!(refused, TasksError::Agreeing(ControlError::DiskFull(_))), "{refused}");
    assert_eq!(node.failed_parts().len(), 2, "{:?}", node.failed_parts());
    std::fs::remove_file(&others).unwrap();
    dunlin_wait::until("keys and tasks start by themselves", || {
        node.tick();
        node.failed_parts().is_empty()
    });
    put(&node, 0).unwrap();
    assert_eq!(keys(&node), 1);
    node.stop();
}

#[test]
fn full_disk_refuses_new_keys_until_deletions_make_room() {
    let Some(file_system) = SmallFileSystem::of(16 << 20) else {
        return eprintln!("passed over: this user may not mount a file system");
    };
    let node = open(&file_system.0);
    let keys_put = fill(&node);
    assert!(keys_put > 100, "{keys_put}");
    assert_eq!(keys(&node), keys_put, "refused writes changed nothing, and existing keys are readable");
    node.stop();
    drop(node);
    // The node has to start on a disk that is still full.
    let node = open(&file_system.0);
    assert_eq!(keys(&node), keys_put);
    for number in 0..keys_put {
        let key = key(number);
        block_on(node.control().unwrap().execute(&ControlCommand::Delete { key: &key })).unwrap();
    }
    assert_eq!(keys(&node), 0);
    dunlin_wait::until("the node continues by itself", || match put(&node, 0) {
        Ok(_) => true,
        Err(refused) => {
            assert!(matches!(refused, ControlError::DiskFull(_)), "{refused}");
            false
        }
    });
    assert_eq!(keys(&node), 1);
    node.stop();
    drop(node);
    assert_eq!(keys(&open(&file_system.0)), 1);
}
