//! Where workers come from: processes of this machine, machines of a cloud, or nothing but virtual time.
//!
//! A provider does what it is told and says what came of it; neither waits for the other. Each instance is known by a number that the
//! scaler gives it, never twice.

/// The number of an instance.
pub type Instance = u64;

/// How an instance is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Market {
    /// Ours until we give it back.
    OnDemand,
    /// Cheaper, and may be taken away after a notice.
    Spot,
}

/// What a provider is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Starts one. It says [`Event::Ready`], or [`Event::Prepared`] if it is for the warm pool, or [`Event::Failed`].
    Launch {
        /// Which.
        instance: Instance,
        /// How it is paid for.
        market: Market,
        /// It is not to work yet.
        is_warm: bool,
    },
    /// One of the warm pool is to work: [`Event::Ready`] or [`Event::Failed`].
    Wake {
        /// Which.
        instance: Instance,
    },
    /// It is to take nothing new and do what it holds: [`Event::Drained`], after `grace_ms` at the latest, with whatever it still holds.
    Drain {
        /// Which.
        instance: Instance,
        /// For how long at most.
        grace_ms: u64,
    },
    /// It is to end: [`Event::Gone`].
    Terminate {
        /// Which.
        instance: Instance,
    },
    /// It has drained, and is kept in the warm pool: [`Event::Prepared`] or [`Event::Failed`].
    Park {
        /// Which.
        instance: Instance,
    },
}

/// What a provider says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It works.
    Ready {
        /// Which.
        instance: Instance,
    },
    /// It is in the warm pool.
    Prepared {
        /// Which.
        instance: Instance,
    },
    /// It did not come up, and is gone.
    Failed {
        /// Which.
        instance: Instance,
        /// There was no room for it, rather than that it broke.
        is_capacity: bool,
    },
    /// It will be taken away.
    Interrupted {
        /// Which.
        instance: Instance,
        /// After so long.
        notice_ms: u64,
    },
    /// It holds nothing any more.
    Drained {
        /// Which.
        instance: Instance,
    },
    /// It is gone, whether it was told to or not.
    Gone {
        /// Which.
        instance: Instance,
    },
}

impl Event {
    /// Of which instance.
    pub fn instance(&self) -> Instance {
        match *self {
            Event::Ready { instance }
            | Event::Prepared { instance }
            | Event::Failed { instance, .. }
            | Event::Interrupted { instance, .. }
            | Event::Drained { instance }
            | Event::Gone { instance } => instance,
        }
    }
}

/// Does what it is told, and says what came of it when it is asked. Time is an argument, so that one may run in virtual time.
pub trait Provider {
    /// Begins to do it. What it does not know it takes as done.
    fn act(&mut self, now_ms: u64, action: &Action);

    /// What happened until now and was not said yet, in order.
    fn events(&mut self, now_ms: u64, events: &mut Vec<Event>);

    /// When it is to be asked again, if it knows.
    fn next_due_ms(&self) -> Option<u64>;
}
