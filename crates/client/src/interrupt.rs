//! Breaking off a wait, for callers who have to look elsewhere now and then, as an interpreter has to at its signals.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use crate::limits::TICK;

type Question = Rc<Asker>;

thread_local! {
    static ASKED: RefCell<Option<Question>> = const { RefCell::new(None) };
}

/// The question whether waits are interrupted, when it was asked last, and whether the answer was yes once: a signal comes once.
struct Asker {
    interrupted: Box<dyn Fn() -> bool>,
    /// Over all waits: where each is short, as with a node that ends every connection, it is asked as often.
    asked_at: Cell<Instant>,
    said: Cell<bool>,
}

/// Whether a wait of this thread was broken off, so that nothing is to be tried again.
pub(crate) fn is_broken_off() -> bool {
    ASKED.with_borrow(|asked| asked.as_ref().is_some_and(|asked| asked.said.get()))
}

/// Runs `call`. About every 100 ms of its waits on this thread ask `interrupted`, and end with
/// [`Why::Interrupted`](crate::Why::Interrupted) when it says so; nothing is lost by that.
pub fn interruptible<T>(interrupted: impl Fn() -> bool + 'static, call: impl FnOnce() -> T) -> T {
    struct Before(Option<Question>);
    impl Drop for Before {
        fn drop(&mut self) {
            ASKED.set(self.0.take());
        }
    }
    let asker = Asker {
        interrupted: Box::new(interrupted),
        asked_at: Cell::new(Instant::now()),
        said: Cell::new(false),
    };
    let _before = Before(ASKED.replace(Some(Rc::new(asker))));
    call()
}

/// What one wait asks.
pub(crate) struct Interrupt(Option<Question>);

impl Interrupt {
    /// Of the thread that is going to wait.
    #[inline]
    pub(crate) fn of_this_thread() -> Interrupt {
        Interrupt(ASKED.with_borrow(Option::clone))
    }

    /// Whether the wait is to end, as far as it is time to ask.
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
