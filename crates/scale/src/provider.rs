//! Defines the interface of providers, which start and end worker instances: processes on this machine, cloud machines,
//! or simulated machines.
//!
//! A provider begins an action at once and reports the result later, so the scaler does not wait. The scaler gives each
//! instance a number, and never uses a number twice.

/// The number of a worker instance, which the scaler has chosen.
pub type InstanceId = u64;

/// How an instance is paid: at the full price (on demand), or as a cheaper spot instance that may be interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstanceMarket {
    /// An on-demand instance, which stays until it is released.
    OnDemand,
    /// A spot instance, which costs less, and which the provider may interrupt after a notice.
    Spot,
}

/// An action that a scaler requests from its provider, such as the start of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderAction {
    /// Starts an instance. The result is [`ProviderEvent::Ready`], or [`ProviderEvent::Prepared`] if the instance is
    /// for the warm pool. If the start fails, the result is [`ProviderEvent::Failed`].
    Launch {
        /// The new instance.
        instance: InstanceId,
        /// Whether to start an on-demand or a spot instance.
        market: InstanceMarket,
        /// Whether the instance is for the warm pool.
        is_warm: bool,
    },
    /// Takes an instance from the warm pool, so that it runs tasks. The result is [`ProviderEvent::Ready`] or
    /// [`ProviderEvent::Failed`].
    Wake {
        /// The instance.
        instance: InstanceId,
    },
    /// Lets an instance finish its tasks and take no new ones. The result is the event [`ProviderEvent::Drained`],
    /// which comes at the latest after `grace_ms`, even if the instance still has tasks.
    Drain {
        /// The instance.
        instance: InstanceId,
        /// The longest time for the instance to finish its tasks, in ms.
        grace_ms: u64,
    },
    /// Ends an instance. The result is [`ProviderEvent::Gone`].
    Terminate {
        /// The instance.
        instance: InstanceId,
    },
    /// Moves a drained instance to the warm pool. The result is [`ProviderEvent::Prepared`] or [`ProviderEvent::Failed`].
    Park {
        /// The instance.
        instance: InstanceId,
    },
}

/// An event that a provider reports to the scaler, for example that an instance is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderEvent {
    /// The instance is ready to run tasks.
    Ready {
        /// The instance.
        instance: InstanceId,
    },
    /// The instance is prepared, and is in the warm pool.
    Prepared {
        /// The instance.
        instance: InstanceId,
    },
    /// The instance has failed to start, and no longer exists.
    Failed {
        /// The instance.
        instance: InstanceId,
        /// `true` if the provider had no capacity for the instance; `false` if the instance itself has failed.
        is_capacity: bool,
    },
    /// The provider will soon interrupt the instance, which is a spot instance.
    Interrupted {
        /// The instance.
        instance: InstanceId,
        /// The time left until the interruption, in ms.
        notice_ms: u64,
    },
    /// The last task of the instance has ended, or the time for draining is over.
    Drained {
        /// The instance.
        instance: InstanceId,
    },
    /// The instance has ended, at the scaler's request or for another reason.
    Gone {
        /// The instance.
        instance: InstanceId,
    },
}

impl ProviderEvent {
    /// Returns the instance to which the event belongs.
    pub fn instance(&self) -> InstanceId {
        match *self {
            ProviderEvent::Ready { instance }
            | ProviderEvent::Prepared { instance }
            | ProviderEvent::Failed { instance, .. }
            | ProviderEvent::Interrupted { instance, .. }
            | ProviderEvent::Drained { instance }
            | ProviderEvent::Gone { instance } => instance,
        }
    }
}

/// Starts and ends instances. The caller passes the time, so that a provider can be simulated.
pub trait Provider {
    /// Begins an action. An action on an instance that does not exist counts as done.
    fn act(&mut self, now_ms: u64, action: &ProviderAction);

    /// Appends to `events` all events up to `now_ms` that were not returned before, in order of time.
    fn events(&mut self, now_ms: u64, events: &mut Vec<ProviderEvent>);

    /// Returns the time of the next event in ms; `None` if it is not known.
    fn next_due_ms(&self) -> Option<u64>;
}
