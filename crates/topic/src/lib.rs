//! The log in memory, and everything a subscriber is promised of it.

mod event;
mod publish;
mod subject;
mod subscribe;

pub use dunlin_frame as frame;
pub use dunlin_frame::{Frame, Meta};
pub use event::{EpochChanged, Event, Gap, Lagging, LogName, Notice, Position, PositionError, Record};
pub use publish::{Acknowledged, Draft, Payload, Publish, PublishError, Receipt};
pub use subject::{SUBJECT_BYTES_MAX, SubjectError};
pub use subscribe::{OnGap, SPIN_US_DEFAULT, Start, Subscribe, SubscribeError, SubscribeOptions, Wait};
