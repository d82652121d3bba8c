//! Raises the limit of files that this process may open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's soft limit of open files to the hard limit. Returns the new limit.
pub fn raise_open_files() -> u64 {
    let now = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: now.maximum, maximum: now.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => now.maximum.unwrap_or(1 << 20),
        Err(_) => now.current.unwrap_or(1 << 20),
    }
}
