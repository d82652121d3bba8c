//! Interrupts a wait, for callers that must run a check during it, such as an interpreter that checks for
//! signals.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use crate::limits::TICK;

type Question = Rc<InterruptCheck>;

thread_local! {
    static ASKED: RefCell<Option<Question>> = const { RefCell::new(None) };
}

/// The caller's check, the time of its last call, and whether it has already returned `true`. After `true`, the check
/// is not called again, so that each signal is reported once.
struct InterruptCheck {
    interrupted: Box<dyn Fn() -> bool>,
    /// The time of the last call. All waits inside one call of [`interruptible`] share it, so that the interval also
    /// applies to many short waits.
    asked_at: Cell<Instant>,
    said: Cell<bool>,
}

/// Whether a wait of this thread was interrupted. In this case, loops that repeat requests end.
pub(crate) fn is_broken_off() -> bool {
    ASKED.with_borrow(|asked| asked.as_ref().is_some_and(|asked| asked.said.get()))
}

/// Runs `call`. While `call` waits on this thread, `interrupted` runs about every 100 ms. If `interrupted`
/// returns `true`, the wait ends with
/// [`DisconnectReason::Interrupted`](crate::DisconnectReason::Interrupted); no record is lost.
pub fn interruptible<T>(interrupted: impl Fn() -> bool + 'static, call: impl FnOnce() -> T) -> T {
    struct Before(Option<Question>);
    impl Drop for Before {
        fn drop(&mut self) {
            ASKED.set(self.0.take());
        }
    }
    let asker = InterruptCheck {
        interrupted: Box::new(interrupted),
        asked_at: Cell::new(Instant::now()),
        said: Cell::new(false),
    };
    let _before = Before(ASKED.replace(Some(Rc::new(asker))));
    call()
}

/// The interrupt check that one wait uses.
pub(crate) struct Interrupt(Option<Question>);

impl Interrupt {
    /// Takes the check that the current thread has set.
    #[inline]
    pub(crate) fn of_this_thread() -> Interrupt {
        Interrupt(ASKED.with_borrow(Option::clone))
    }

    /// Calls the check if its interval has passed. Returns whether the wait has to end.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        let Some(question) = &self.0 else { return false };
        let now = Instant::now();
        if now < question.asked_at.get() + TICK {
            return false;
        }
        question.asked_at.set(now);
        let interrupted = (question.interrupted)();
        question.said.set(question.said.get() || interrupted);
        interrupted
    }
}
