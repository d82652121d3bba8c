//! Interrupts waits of callers that have to run a check while they wait, such as a Python interpreter that checks for
//! signals.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use crate::limits::TICK;

type SharedCheck = Rc<InterruptCheck>;

thread_local! {
    static CURRENT: RefCell<Option<SharedCheck>> = const { RefCell::new(None) };
}

/// The caller's check, the time at which it was last called, and whether it has already returned `true`. After `true`,
/// the check is not called again, so that each signal is reported once.
struct InterruptCheck {
    interrupted: Box<dyn Fn() -> bool>,
    /// The time of the last call. All waits inside one call of [`interruptible`] share this time, so that many short
    /// waits together do not call the check more often.
    last_call: Cell<Instant>,
    has_fired: Cell<bool>,
}

/// Whether a wait of this thread was interrupted. Loops that send a request again then end.
pub(crate) fn is_interrupted() -> bool {
    CURRENT.with_borrow(|check| check.as_ref().is_some_and(|check| check.has_fired.get()))
}

/// Runs `call`. While `call` waits on this thread, `interrupted` runs about every 100 ms. If `interrupted`
/// returns `true`, the wait ends with
/// [`DisconnectReason::Interrupted`](crate::DisconnectReason::Interrupted); no record is lost.
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

/// The interrupt check that one wait uses.
pub(crate) struct Interrupt(Option<SharedCheck>);

impl Interrupt {
    /// Takes the check that the current thread has set.
    #[inline]
    pub(crate) fn current() -> Interrupt {
        Interrupt(CURRENT.with_borrow(Option::clone))
    }

    /// Calls the check if its interval has passed. Returns whether the wait has to end.
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
