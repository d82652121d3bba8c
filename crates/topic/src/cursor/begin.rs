//! Chooses where a new cursor starts, and from which log it reads: if another node owns the topic, from the mirror that
//! all subscribers at this node share, or from a private mirror.
//!
//! Invariant: a cursor is counted as a subscriber of a mirror before it waits for the mirror's feed. Otherwise, the
//! feed could end for lack of subscribers.

use std::sync::Arc;

use super::follower::FollowerState;
use super::select::{Filter, LossInjector, Selector};
use super::{ConsumeMode, Cursor, Hint};
use crate::event::Position;
use crate::log::Log;
use crate::subscribe::{Start, SubscribeError, SubscribeOptions};

impl Cursor {
    /// Creates a cursor that starts where `options` says. `filter` selects the subjects that the subscriber receives.
    pub fn new(
        log: Arc<Log>,
        options: &SubscribeOptions,
        filter: Option<Filter>,
        consumption: ConsumeMode,
    ) -> Result<Cursor, SubscribeError> {
        Cursor::with_start(log, options, options.start, filter, consumption)
    }

    /// Like [`Cursor::new`], but starts at `start` instead of the start in `options`.
    pub fn with_start(
        log: Arc<Log>,
        options: &SubscribeOptions,
        start: Start,
        filter: Option<Filter>,
        consumption: ConsumeMode,
    ) -> Result<Cursor, SubscribeError> {
        let follows = check_follower(&log, options, filter.is_some())?;
        // With `local_only`, the records go to a mirror at another node. The mirror's subscribers apply
        // `test_loss_every` themselves.
        let loss_injector = options
            .test_loss_every
            .or(log.config().test_loss_every)
            .filter(|_| !options.local_only)
            .map(LossInjector::new);
        let select = Selector { filter, appended_from_ns: 0, loss_injector, subject_sleep: None };
        log.subscribers.add(select.filter.as_ref(), options.local_only);
        let mut cursor = Cursor {
            log,
            hint: Hint::None,
            next: Position::default(),
            default_start: None,
            skipped: 0,
            offset: 0,
            on_gap: options.on_gap,
            consumption,
            warned: false,
            armed: None,
            ended: false,
            local_only: options.local_only,
            keeps_history: options.keeps_history,
            is_subscribed: true,
            subscriber: None,
            select: (!select.is_empty()).then(|| Box::new(select)),
            follower: None,
            progress: None,
        };
        cursor.begin(options, start, follows)?;
        Ok(cursor)
    }

    fn begin(
        &mut self,
        options: &SubscribeOptions,
        mut start: Start,
        follows: bool,
    ) -> Result<(), SubscribeError> {
        // With other consumption, the caller lists the subscriber. A private mirror changes the consumption.
        let must_list = self.consumption == ConsumeMode::Reads && !options.name.is_empty();
        let may_change_owner = self.log.upstream.get().is_some();
        match options.local_only {
            true if may_change_owner => self.log.check_can_feed(start)?,
            false if may_change_owner => start = self.begin_in_mirror(options, start),
            _ => {}
        }
        let begin = match start {
            Start::Time(since_ns) if options.feeds_mirror() => self.log.feed_start(since_ns)?,
            start => self.log.start(start, follows)?,
        };
        self.next = begin.next;
        if options.registered || self.log.is_private() {
            self.subscriber = self.log.register(&options.name, begin.next)?;
        }
        let names_no_position = matches!(start, Start::Latest | Start::Snapshot);
        self.default_start = (may_change_owner && names_no_position).then_some(begin.next);
        if begin.appended_from_ns > 0 {
            self.select.get_or_insert_default().appended_from_ns = begin.appended_from_ns;
        }
        if must_list {
            let before = Position { seq: begin.next.seq - 1, ..begin.next };
            self.progress = Some(self.log.list_subscriber(options, self.subscriber.is_some(), before));
        }
        // A subscriber that resumes always receives the publisher presence at first, because the node from which it
        // read before may have reported another presence.
        let resumes = options.feeds_mirror() || matches!(start, Start::After(_));
        self.follower =
            follows.then(|| Box::new(FollowerState::new(options.conflate, begin.request, resumes)));
        Ok(())
    }

    /// Starts the feed of the shared mirror at this start, or switches the cursor to a private mirror. Returns the
    /// start within the mirror from which the cursor reads.
    #[cold]
    fn begin_in_mirror(&mut self, options: &SubscribeOptions, start: Start) -> Start {
        if let Start::After(_) = start
            && !self.log.is_positioned()
        {
            // The shared mirror has no feed yet. The feed will start at this position, unless another subscriber starts
            // the feed at another position first.
            self.log.request_feed(start);
        }
        match self.log.find_private_mirror(options, start) {
            // A private mirror's feed begins at the start of this subscriber.
            Some(private) => {
                self.switch_log(private);
                if let Start::After(_) = start { start } else { Start::Earliest }
            }
            None => {
                self.log.request_feed(start);
                start
            }
        }
    }

    /// Switches the cursor to a private mirror, because the shared mirror lacks the next records. Returns whether the
    /// cursor has switched. A cursor that follows the state stays at the shared mirror, because a private mirror keeps
    /// no state.
    #[cold]
    pub(super) fn switch_to_private_mirror(&mut self) -> bool {
        if self.local_only || self.follower.is_some() {
            return false;
        }
        let start = Start::After(Position { seq: self.next.seq - 1, ..self.next });
        let Some(upstream) = self.log.upstream.get() else { return false };
        let private = upstream.private_mirror(&self.log, start, false, self.keeps_history);
        let Some(log) = private else { return false };
        let Ok(subscriber) = log.register("", self.next) else { return false };
        self.switch_log(log);
        self.subscriber = subscriber;
        true
    }

    fn switch_log(&mut self, log: Arc<Log>) {
        self.end_subject_sleep();
        let filter = self.select.as_ref().and_then(|select| select.filter.as_ref());
        log.subscribers.add(filter, self.local_only);
        self.log.subscribers.remove(filter, self.local_only);
        (self.log, self.consumption) = (log, ConsumeMode::Reads);
    }
}

/// Whether the options make the subscriber a follower of the log's state.
///
/// # Errors
/// [`SubscribeError::NoState`] if the options require a state, but the log keeps none, or a filter selects only some of
/// the log's subjects.
fn check_follower(log: &Log, options: &SubscribeOptions, has_filter: bool) -> Result<bool, SubscribeError> {
    let no_state = |why| SubscribeError::NoState { topic: log.name().topic.clone(), why };
    match (options.follows_state(), log.is_stateful(), has_filter) {
        (false, ..) => Ok(false),
        (true, true, false) => Ok(true),
        (true, false, _) => {
            Err(no_state("keeps no state; a start from a snapshot and conflation need a state topic"))
        }
        (true, true, true) => {
            Err(no_state("keeps one state for all its subjects, but the pattern selects only some of them"))
        }
    }
}
