//! The handle of a runner, through which other threads run functions on the runner's thread.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use dunlin::space::{Behaviour, Host, check_world_name};

use super::config::SpaceConfig;
use super::error::SpaceError;
use super::poll::PollWaker;
use super::runner::WorldRunner;

/// A function that the runner's thread runs between two ticks.
pub(super) type RunnerCall<const D: usize, B> = Box<dyn FnOnce(&mut WorldRunner<D, B>) + Send>;

/// The receiving end of the queue of functions that the runner's thread must run.
pub(super) struct RunnerCalls<const D: usize, B> {
    pub(super) calls: Receiver<RunnerCall<D, B>>,
    pub(super) waiting: Arc<AtomicUsize>,
    /// Whether the handle was dropped, so that the thread must end.
    pub(super) ended: Arc<AtomicBool>,
}

/// A handle to the thread that runs a process's regions of a world. Dropping the handle ends the thread.
pub struct Space<const D: usize, B> {
    calls: Sender<RunnerCall<D, B>>,
    waiting: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
    orders_max: usize,
    waker: PollWaker,
    thread: Mutex<Option<JoinHandle<Result<(), String>>>>,
    address: SocketAddr,
}

/// The calls of the thread that decides which regions a process runs. They are few, and exempt from
/// `SpaceLimits::orders_max`. Otherwise, too many requests of clients would prevent a region from being stopped or
/// given away.
pub(super) struct OwnerCalls<const D: usize, B>(pub(super) Arc<Space<D, B>>);

/// The socket at which a process accepts connections from the world's other processes. A program can bind this socket
/// before it changes anything, so that it fails early if the address is in use.
#[derive(Debug)]
pub struct RunnerListener {
    socket: TcpListener,
    address: SocketAddr,
}

impl RunnerListener {
    /// Binds the address; port 0 selects a free port. The address must be a loopback address unless `insecure` is set.
    pub fn bind(address: SocketAddr, insecure: bool) -> Result<RunnerListener, SpaceError> {
        if !address.ip().is_loopback() && !insecure {
            return Err(SpaceError::Exposed(address));
        }
        let failed = |why| SpaceError::Listen { address, why };
        let socket = TcpListener::bind(address).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(RunnerListener { socket, address })
    }
}

impl<const D: usize, B: Behaviour<D> + Clone + Send + 'static> Space<D, B> {
    /// Starts the thread that runs the regions of `host`, and listens at the configured address.
    pub fn start(config: SpaceConfig, host: Host<D, B>) -> Result<Space<D, B>, SpaceError> {
        let listener = RunnerListener::bind(config.listen, config.insecure)?;
        Space::start_with(listener, config, host)
    }

    /// Starts the thread with a socket that is already bound. The configured address is not used.
    pub fn start_with(
        listener: RunnerListener,
        config: SpaceConfig,
        host: Host<D, B>,
    ) -> Result<Space<D, B>, SpaceError> {
        check_world_name(&config.world)?;
        host.check_strip()?;
        if config.peers.iter().any(|peer| peer.process == config.process) {
            return Err(SpaceError::Number(config.process));
        }
        let (count, max) = (config.peers.len(), config.limits.peers_max);
        if count > max {
            return Err(SpaceError::Peers { count, max });
        }
        let RunnerListener { socket, address } = listener;
        let (waker, (sender, calls)) = (PollWaker::new().map_err(SpaceError::Thread)?, channel());
        let (waiting, orders_max) = (Arc::new(AtomicUsize::new(0)), config.limits.orders_max);
        let ended = Arc::new(AtomicBool::new(false));
        let runner_calls = RunnerCalls { calls, waiting: Arc::clone(&waiting), ended: Arc::clone(&ended) };
        let mut runner = WorldRunner::new(config, host, socket, waker.clone(), runner_calls);
        let thread = std::thread::Builder::new().name("space".to_owned()).spawn(move || runner.run());
        let thread = Mutex::new(Some(thread.map_err(SpaceError::Thread)?));
        Ok(Space { calls: sender, waiting, ended, orders_max, waker, thread, address })
    }

    /// The address at which this process accepts connections from other processes.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Runs `call` on the runner's thread between two ticks. Does not wait for it.
    pub fn submit(
        &self,
        call: impl FnOnce(&mut WorldRunner<D, B>) + Send + 'static,
    ) -> Result<(), SpaceError> {
        self.enqueue(self.orders_max, Box::new(call))
    }

    /// Runs `call` on the runner's thread between two ticks, waits for it, and returns its result.
    pub fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut WorldRunner<D, B>) -> T + Send + 'static,
    ) -> Result<T, SpaceError> {
        self.enqueue_and_wait(self.orders_max, call)
    }

    /// Fails if `max` calls wait already.
    fn enqueue(&self, max: usize, call: RunnerCall<D, B>) -> Result<(), SpaceError> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= max {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(SpaceError::Busy { max });
        }
        self.calls.send(call).map_err(|_| self.end_reason())?;
        self.waker.wake();
        Ok(())
    }

    fn enqueue_and_wait<T: Send + 'static>(
        &self,
        max: usize,
        call: impl FnOnce(&mut WorldRunner<D, B>) -> T + Send + 'static,
    ) -> Result<T, SpaceError> {
        let (sender, result) = channel();
        // If the send fails, the caller no longer waits for the result, which is then dropped.
        let respond = move |runner: &mut WorldRunner<D, B>| drop(sender.send(call(runner)));
        self.enqueue(max, Box::new(respond))?;
        result.recv().map_err(|_| self.end_reason())
    }

    /// Stops the runner's thread. Returns the thread's error if it failed.
    pub fn stop(&self) -> Result<(), SpaceError> {
        // The error is ignored, because the thread may already have ended.
        let _ = self.enqueue(usize::MAX, Box::new(WorldRunner::<D, B>::end));
        match self.join() {
            None | Some(Ok(())) => Ok(()),
            Some(Err(why)) => Err(SpaceError::Ended(Some(why))),
        }
    }

    fn join(&self) -> Option<Result<(), String>> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(thread.join().unwrap_or_else(|_| Err("the thread that runs the regions panicked".to_owned())))
    }

    fn end_reason(&self) -> SpaceError {
        SpaceError::Ended(self.join().and_then(Result::err))
    }
}

impl<const D: usize, B: Behaviour<D> + Clone + Send + 'static> OwnerCalls<D, B> {
    /// Like [`Space::submit`], but fails only if the runner has ended.
    pub(super) fn submit(
        &self,
        call: impl FnOnce(&mut WorldRunner<D, B>) + Send + 'static,
    ) -> Result<(), SpaceError> {
        self.0.enqueue(usize::MAX, Box::new(call))
    }

    /// Like [`Space::call`], but fails only if the runner has ended.
    pub(super) fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut WorldRunner<D, B>) -> T + Send + 'static,
    ) -> Result<T, SpaceError> {
        self.0.enqueue_and_wait(usize::MAX, call)
    }
}

impl<const D: usize, B> Drop for Space<D, B> {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        self.waker.wake();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Waits until the thread has ended. Before it ends, the thread completes its current work.
        drop(thread.map(JoinHandle::join));
    }
}

impl<const D: usize, B> std::fmt::Debug for Space<D, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space").field("address", &self.address).finish_non_exhaustive()
    }
}
