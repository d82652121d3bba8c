//! Waits for all sockets of a runner, and for calls by other threads, in one `poll`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::links::{LinkId, ProcessLinks};

/// A handle with which other threads wake the runner's thread.
#[derive(Debug, Clone)]
pub(super) struct PollWaker(Arc<OwnedFd>);

impl PollWaker {
    pub(super) fn new() -> io::Result<PollWaker> {
        Ok(PollWaker(Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?)))
    }

    pub(super) fn wake(&self) {
        // The write fails only if the counter is full, and then the thread wakes anyway.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    fn clear(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0_u8; 8]);
    }
}

/// The sockets that are ready after a wait.
#[derive(Debug, Default)]
pub(super) struct ReadySockets {
    pub(super) listener: bool,
    pub(super) readable: Vec<LinkId>,
    pub(super) writable: Vec<LinkId>,
}

/// Waits until a socket is ready, another thread uses the waker, or the time has passed.
pub(super) fn wait(
    links: &ProcessLinks,
    waker: &PollWaker,
    timeout_ns: u64,
    ready: &mut ReadySockets,
) -> io::Result<()> {
    ready.listener = false;
    ready.readable.clear();
    ready.writable.clear();
    let keys: Vec<LinkId> = links.all().map(|(key, _)| key).collect();
    let mut fds = Vec::with_capacity(keys.len() + 2);
    let accepts = if links.is_accepting() { PollFlags::IN } else { PollFlags::empty() };
    fds.push(PollFd::new(&links.listener, accepts));
    fds.push(PollFd::from_borrowed_fd(waker.0.as_fd(), PollFlags::IN));
    for (_, link) in links.all() {
        let mut interest = PollFlags::empty();
        if !link.must_wait {
            interest |= PollFlags::IN;
        }
        if link.connection.connecting || link.connection.queued() > 0 {
            interest |= PollFlags::OUT;
        }
        fds.push(PollFd::new(&link.connection.stream, interest));
    }
    let timeout =
        Timespec { tv_sec: (timeout_ns / 1_000_000_000) as i64, tv_nsec: (timeout_ns % 1_000_000_000) as _ };
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    ready.listener = fds[0].revents().contains(PollFlags::IN);
    if fds[1].revents().contains(PollFlags::IN) {
        waker.clear();
    }
    for (key, fd) in keys.iter().zip(&fds[2..]) {
        let revents = fd.revents();
        if revents.contains(PollFlags::OUT) {
            ready.writable.push(*key);
        }
        if revents.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            ready.readable.push(*key);
        }
    }
    Ok(())
}
