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

/// The caller's check, the time of its last call, and whether it has returned `true`: each signal is reported
/// once.
struct InterruptCheck {
    interrupted: Box<dyn Fn() -> bool>,
    /// Shared by all waits of the call, so that the interval also holds over many short waits.
    asked_at: Cell<Instant>,
    said: Cell<bool>,
}

/// Whether a wait of this thread was interrupted. If so, no caller retries.
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

/// The check for one wait.
pub(crate) struct Interrupt(Option<Question>);

impl Interrupt {
    /// The check of the current thread.
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
