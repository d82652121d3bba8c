//! Chooses a cursor's start and its log: the shared mirror of another node's log, or a private mirror.
//!
//! Invariant: a cursor counts as a subscriber before it waits for a mirror's feed, so that the feed does not end.

use std::sync::Arc;

use super::following::FollowerState;
use super::select::{Filter, LossInjector, Selector};
use super::{ConsumeMode, Cursor, Hint};
use crate::event::Position;
use crate::log::Log;
use crate::subscribe::{Start, SubscribeError, SubscribeOptions};

impl Cursor {
    /// Creates a cursor at the start that `options` names. `filter` selects subjects.
    pub fn new(
        log: Arc<Log>,
        options: &SubscribeOptions,
        filter: Option<Filter>,
        consumption: ConsumeMode,
    ) -> Result<Cursor, SubscribeError> {
        Cursor::starting(log, options, options.start, filter, consumption)
    }

    /// Like [`Cursor::new`], but with the given start instead of the one in `options`.
    pub fn starting(
        log: Arc<Log>,
        options: &SubscribeOptions,
        start: Start,
        filter: Option<Filter>,
        consumption: ConsumeMode,
    ) -> Result<Cursor, SubscribeError> {
        let follows = check_follower(&log, options, filter.is_some())?;
        // The subscribers of a mirror at another node apply `test_loss_every` themselves.
        let lose = options
            .test_loss_every
            .or(log.config().test_loss_every)
            .filter(|_| !options.here)
            .map(LossInjector::every);
        let select = Selector { filter, appended_from_ns: 0, lose, narrow: None };
        log.subscribers.enter(select.filter.as_ref(), options.here);
        let mut cursor = Cursor {
            log,
            hint: Hint::None,
            next: Position::default(),
            unasked: None,
            skipped: 0,
            offset: 0,
            on_gap: options.on_gap,
            consumption,
            warned: false,
            armed: None,
            ended: false,
            here: options.here,
            listens: true,
            subscriber: None,
            select: (!select.is_empty()).then(|| Box::new(select)),
            following: None,
            reading: None,
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
        let may_move = self.log.upstream.get().is_some();
        match options.here {
            true if may_move => self.log.check_feeds(start)?,
            false if may_move => start = self.begin_elsewhere(options, start),
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
        let names_no_place = matches!(start, Start::Latest | Start::Snapshot);
        self.unasked = (may_move && names_no_place).then_some(begin.next);
        if begin.appended_from_ns > 0 {
            self.select.get_or_insert_default().appended_from_ns = begin.appended_from_ns;
        }
        if self.consumption == ConsumeMode::Reads && !options.name.is_empty() {
            let before = Position { seq: begin.next.seq - 1, ..begin.next };
            self.reading = Some(self.log.list_subscriber(options, self.subscriber.is_some(), before));
        }
        // A subscriber that resumes always receives the publisher presence, because the node to which it was connected
        // before may have reported another one.
        let goes_on = options.feeds_mirror() || matches!(start, Start::After(_));
        self.following = follows.then(|| Box::new(FollowerState::new(options.conflate, begin.owed, goes_on)));
        Ok(())
    }

    /// Starts the feed of a mirror at this start, or switches to a private mirror. Returns the start within that log.
    #[cold]
    fn begin_elsewhere(&mut self, options: &SubscribeOptions, start: Start) -> Start {
        if let Start::After(_) = start
            && !self.log.is_placed()
        {
            // Starts the shared mirror's feed at this position, unless another subscriber has already started the feed
            // at another position.
            self.log.request_feed(start);
        }
        match self.log.detour(options, start) {
            // The feed of a private mirror begins at this subscriber's start.
            Some(private) => {
                self.go_to_log(private);
                if let Start::After(_) = start { start } else { Start::Earliest }
            }
            None => {
                self.log.request_feed(start);
                start
            }
        }
    }

    /// Switches to a private mirror if the shared mirror lacks the next records. A follower of the state stays at the
    /// shared mirror, because a private mirror keeps no state.
    #[cold]
    pub(super) fn switch_to_private_mirror(&mut self) -> bool {
        if self.here || self.following.is_some() {
            return false;
        }
        let start = Start::After(Position { seq: self.next.seq - 1, ..self.next });
        let way = self.log.upstream.get().and_then(|upstream| upstream.detour(&self.log, start, false));
        let Some(log) = way else { return false };
        let Ok(subscriber) = log.register("", self.next) else { return false };
        self.go_to_log(log);
        self.subscriber = subscriber;
        true
    }

    fn go_to_log(&mut self, log: Arc<Log>) {
        self.rouse_narrow();
        let filter = self.select.as_ref().and_then(|select| select.filter.as_ref());
        log.subscribers.enter(filter, self.here);
        self.log.subscribers.leave(filter, self.here);
        (self.log, self.consumption) = (log, ConsumeMode::Reads);
    }
}

/// Whether the subscriber follows the log's state.
///
/// # Errors
/// [`SubscribeError::NoState`] if the log keeps no state, or if a filter selects some subjects only.
fn check_follower(log: &Log, options: &SubscribeOptions, filtered: bool) -> Result<bool, SubscribeError> {
    let no_state = |why| SubscribeError::NoState { topic: log.name().topic.clone(), why };
    match (options.follows_state(), log.is_stateful(), filtered) {
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
