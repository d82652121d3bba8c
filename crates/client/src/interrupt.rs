//! Interrupts waits if a check of the caller requests this. A Python interpreter, for example, has to check for signals
//! during a wait.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use crate::limits::TICK;

type SharedCheck = Rc<InterruptCheck>;

thread_local! {
    static CURRENT: RefCell<Option<SharedCheck>> = const { RefCell::new(None) };
}

/// A check that a caller has passed to [`interruptible`], and whether the check has ever returned `true`.
struct InterruptCheck {
    interrupted: Box<dyn Fn() -> bool>,
    /// The time of the last call of `interrupted`. All waits inside one call of [`interruptible`] share this time, so
    /// that many short waits do not call `interrupted` more often than one long wait does.
    last_call: Cell<Instant>,
    has_fired: Cell<bool>,
}

/// Whether a check has interrupted a wait of this thread. If so, loops that repeat a request end.
pub(crate) fn is_interrupted() -> bool {
    CURRENT.with_borrow(|check| check.as_ref().is_some_and(|check| check.has_fired.get()))
}

/// Runs `call` and returns its result. While `call` waits on this thread, `interrupted` is called about every 100 ms.
/// If `interrupted` returns `true`, the wait ends with
/// [`DisconnectReason::Interrupted`](crate::DisconnectReason::Interrupted). No record is lost.
pub fn interruptible<T>(interrupted: impl Fn() -> bool + 'static, call: impl FnOnce() -> T) -> T {
    struct RestoreCheck(Option<SharedCheck>);
    impl Drop for RestoreCheck {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let check = InterruptCheck {
        interrupted: Box::new(interrupted),
        last_call: Cell::new(Instant::now()),
        has_fired: Cell::new(false),
    };
    let _restore = RestoreCheck(CURRENT.replace(Some(Rc::new(check))));
    call()
}

/// The check that the caller of [`interruptible`] has passed, for use during one wait. `None` if the thread is not in a
/// call of [`interruptible`].
pub(crate) struct Interrupt(Option<SharedCheck>);

impl Interrupt {
    /// Returns the check that applies to waits of the current thread.
    #[inline]
    pub(crate) fn current() -> Interrupt {
        Interrupt(CURRENT.with_borrow(Option::clone))
    }

    /// Calls the check if 100 ms have passed since its last call. Returns whether the check requests the end of the
    /// wait.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        let Some(check) = &self.0 else { return false };
        let now = Instant::now();
        if now < check.last_call.get() + TICK {
            return false;
        }
        check.last_call.set(now);
        let interrupted = (check.interrupted)();
        check.has_fired.set(check.has_fired.get() || interrupted);
        interrupted
    }
}
