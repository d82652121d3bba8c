//! Where a cursor begins, and in which log: where that is another process's, in its mirror or in one of the cursor's own.
//!
//! Invariant: it counts as a reader before it waits for a mirror to be fed, so that whatever feeds mirrors goes on for it.

use std::sync::Arc;

use super::following::Following;
use super::select::{Filter, Lose, Select};
use super::{Consumption, Cursor, Hint};
use crate::event::Position;
use crate::log::Log;
use crate::subscribe::{Start, SubscribeError, SubscribeOptions};

impl Cursor {
    /// A place at the start that `options` asks for. `filter` skips subjects.
    pub fn new(
        log: Arc<Log>,
        options: &SubscribeOptions,
        filter: Option<Filter>,
        consumption: Consumption,
    ) -> Result<Cursor, SubscribeError> {
        Cursor::starting(log, options, options.start, filter, consumption)
    }

    /// [`Cursor::new`] with another start than the options'.
    pub fn starting(
        log: Arc<Log>,
        options: &SubscribeOptions,
        start: Start,
        filter: Option<Filter>,
        consumption: Consumption,
    ) -> Result<Cursor, SubscribeError> {
        let follows = check_follower(&log, options, filter.is_some())?;
        // The readers of another node's mirror lose for themselves.
        let lose = options.lose_every.or(log.config().lose_every).filter(|_| !options.here).map(Lose::every);
        let select = Select { filter, appended_from_ns: 0, lose, narrow: None };
        log.listeners.enter(select.filter.as_ref(), options.feeds_mirror());
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
            feeds_mirror: options.feeds_mirror(),
            listens: true,
            reader: None,
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
        let begin = self.log.start(start, follows)?;
        self.next = begin.next;
        if options.registered || self.log.is_private() {
            self.reader = self.log.register(&options.name, begin.next)?;
        }
        let names_no_place = matches!(start, Start::Latest | Start::Snapshot);
        self.unasked = (may_move && names_no_place).then_some(begin.next);
        if begin.appended_from_ns > 0 {
            self.select.get_or_insert_default().appended_from_ns = begin.appended_from_ns;
        }
        if self.consumption == Consumption::Reads && !options.name.is_empty() {
            let before = Position { seq: begin.next.seq - 1, ..begin.next };
            self.reading = Some(self.log.show_reader(options, self.reader.is_some(), before));
        }
        // A reader that goes on may have been told otherwise where it read before.
        let goes_on = options.feeds_mirror() || matches!(start, Start::After(_));
        self.following = follows.then(|| Box::new(Following::new(options.conflate, begin.owed, goes_on)));
        Ok(())
    }

    /// Has the log that is another process's fed where this reader begins, or goes to a mirror of its own; where it begins there.
    #[cold]
    fn begin_elsewhere(&mut self, options: &SubscribeOptions, start: Start) -> Start {
        if let Start::After(_) = start
            && !self.log.is_placed()
        {
            // The mirror's feed begins there, where nobody else has it begin elsewhere meanwhile.
            self.log.tell_read(start);
        }
        match self.log.detour(options, start) {
            // Its feed begins where this reader does.
            Some(private) => {
                self.go_to_log(private);
                if let Start::After(_) = start { start } else { Start::Earliest }
            }
            None => {
                self.log.tell_read(start);
                start
            }
        }
    }

    /// Goes on in a mirror of its own, where the one that is shared does not hold what comes next. Not who follows the state:
    /// such a mirror keeps none.
    #[cold]
    pub(super) fn make_detour(&mut self) -> bool {
        if self.here || self.following.is_some() {
            return false;
        }
        let start = Start::After(Position { seq: self.next.seq - 1, ..self.next });
        let way = self.log.upstream.get().and_then(|upstream| upstream.detour(&self.log, start, false));
        let Some(log) = way else { return false };
        let Ok(reader) = log.register("", self.next) else { return false };
        self.go_to_log(log);
        self.reader = reader;
        true
    }

    fn go_to_log(&mut self, log: Arc<Log>) {
        self.rouse_narrow();
        let filter = self.select.as_ref().and_then(|select| select.filter.as_ref());
        log.listeners.enter(filter, self.feeds_mirror);
        self.log.listeners.leave(filter, self.feeds_mirror);
        (self.log, self.consumption) = (log, Consumption::Reads);
    }
}

/// Whether the reader follows the log's state; refused where that has none, or none for this reader.
fn check_follower(log: &Log, options: &SubscribeOptions, filtered: bool) -> Result<bool, SubscribeError> {
    let no_state = |why| SubscribeError::NoState { topic: log.name().topic.clone(), why };
    match (options.follows_state(), log.is_stateful(), filtered) {
        (false, ..) => Ok(false),
        (true, true, false) => Ok(true),
        (true, false, _) => {
            Err(no_state("keeps no state to begin with, to go on with, or to merge records into"))
        }
        (true, true, true) => {
            Err(no_state("keeps one state of all its subjects, of which the pattern selects some"))
        }
    }
}
