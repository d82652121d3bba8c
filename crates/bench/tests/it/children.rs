//! Tests that no child process outlives a run, and that no child process can block a run.

use std::path::Path;
use std::time::Duration;

use dunlin_bench::child::Child;

use crate::program::child_program;

fn is_alive(id: u32) -> bool {
    Path::new(&format!("/proc/{id}")).exists()
}

fn sleeper() -> Child {
    child_program().start_program(Path::new("/bin/sleep"), &["60".to_owned()]).unwrap()
}

#[test]
fn dropped_child_is_killed_and_reaped() {
    let child = sleeper();
    let id = child.id();
    assert!(is_alive(id));
    drop(child);
    assert!(!is_alive(id));
}

#[test]
fn silent_child_process_times_out_and_keeps_running() {
    let mut child = sleeper();
    let error = child.read_line::<u64>(Duration::from_millis(50)).unwrap_err();
    assert!(error.to_string().contains("sleep printed nothing"), "{error}");
    assert!(child.try_wait().unwrap().is_none(), "the child has ended");
}

#[test]
fn error_output_of_a_failed_child_is_quoted() {
    let mut child = child_program().start("no-such-role", &[]).unwrap();
    let error = child.read_line::<u64>(Duration::from_secs(120)).unwrap_err().to_string();
    assert!(error.contains("unknown role `no-such-role`"), "{error}");
}
