//! Providers of workers: processes of this machine, cloud machines, or simulated ones.
//!
//! A provider starts each action immediately and reports its result later; the scaler does not wait for it. The scaler
//! numbers instances and never reuses a number.

/// The id of a worker instance, which the scaler assigns.
pub type InstanceId = u64;

/// The market in which an instance is bought: on demand, or as a cheaper spot instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstanceMarket {
    /// On demand: stays until it is released.
    OnDemand,
    /// Spot: cheaper, and may be interrupted after a notice.
    Spot,
}

/// An action that a scaler requests from its provider, such as starting an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProviderAction {
    /// Starts an instance. The result is [`ProviderEvent::Ready`], for the warm pool [`ProviderEvent::Prepared`], or
    /// [`ProviderEvent::Failed`].
    Launch {
        /// The instance.
        instance: InstanceId,
        /// How the instance is paid for.
        market: InstanceMarket,
        /// Whether the instance starts for the warm pool.
        is_warm: bool,
    },
    /// Wakes an instance of the warm pool. The result is [`ProviderEvent::Ready`] or [`ProviderEvent::Failed`].
    Wake {
        /// The instance.
        instance: InstanceId,
    },
    /// Lets the instance finish its tasks and take no new ones. [`ProviderEvent::Drained`] follows within `grace_ms`,
    /// even if the instance still holds tasks.
    Drain {
        /// The instance.
        instance: InstanceId,
        /// The longest time to drain, ms.
        grace_ms: u64,
    },
    /// Ends the instance. The result is [`ProviderEvent::Gone`].
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

/// An event that a provider reports, such as an instance that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderEvent {
    /// The instance can run tasks.
    Ready {
        /// The instance.
        instance: InstanceId,
    },
    /// The instance is in the warm pool.
    Prepared {
        /// The instance.
        instance: InstanceId,
    },
    /// The instance failed to start and is gone.
    Failed {
        /// The instance.
        instance: InstanceId,
        /// Whether the market had no capacity; otherwise the instance has a defect.
        is_capacity: bool,
    },
    /// The market will interrupt the instance.
    Interrupted {
        /// The instance.
        instance: InstanceId,
        /// Time until the interruption, ms.
        notice_ms: u64,
    },
    /// The instance's last task has ended.
    Drained {
        /// The instance.
        instance: InstanceId,
    },
    /// The instance has ended, whether or not the scaler requested it.
    Gone {
        /// The instance.
        instance: InstanceId,
    },
}

impl ProviderEvent {
    /// Returns the instance that the event is about.
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

/// Starts and ends instances. The time is an argument, so that a provider can be simulated.
pub trait Provider {
    /// Starts an action. An action on an unknown instance counts as done.
    fn act(&mut self, now_ms: u64, action: &ProviderAction);

    /// Appends to `events` all events up to `now_ms` that were not reported yet, in order.
    fn events(&mut self, now_ms: u64, events: &mut Vec<ProviderEvent>);

    /// Returns the time of the next event in ms, if it is known.
    fn next_due_ms(&self) -> Option<u64>;
}
