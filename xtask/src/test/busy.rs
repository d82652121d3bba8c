//! Keeps all processor cores busy while tests run, to show that no test depends on an idle machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// The busy threads. They end when this value is dropped.
pub struct BusyThreads(Arc<AtomicBool>);

impl BusyThreads {
    pub fn start(on_each_core: usize) -> BusyThreads {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let end = Arc::new(AtomicBool::new(false));
        for _ in 0..on_each_core * cores {
            let end = Arc::clone(&end);
            thread::spawn(move || {
                while !end.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        BusyThreads(end)
    }
}

impl Drop for BusyThreads {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
