//! The state that a region's standby follows, and the records that change it.
//!
//! ```text
//!  record = section*        section = kind u8, content
//!   1 entry    a step of a handover
//!   2 insert   id u64, generation u32, state: bytes            a new entity, at the end
//!   3 remove   id u64                                          the last row takes its place
//!   4 put      id u64, generation u32, state: bytes            in its row
//!   6 moved    tick u64, rows u32, turned u8, columns          columns: the positions of all rows, by axis, f32 each; then velocities.
//!                                                              turned: 0 no velocities, 1 those of all rows,
//!                                                              2 of some rows: count u32, rows u32 each, velocities by axis
//!   7 frozen   id u64, u8                                      1: the entity is frozen; 0: it moves again
//!   8 tick     u64                                             a tick in which nothing moved
//!   9 whole    snapshot: bytes                                 a whole state; the only section of its record
//!  10 sort     first u32, step u32, count u32                  sorts these rows into the curve's order
//! ```

use crate::entity::EntityId;
use crate::handover::{Handover, HandoverEffect, HandoverEntry, HandoverMessage, TransferredEntity};
use crate::layout::{Fields, SpaceDecodeError, put_bytes, put_u32, put_u64};
use crate::store::{EntityStore, SortWindow, StoreError};
use crate::world::WorldBox;

/// A region's entities and handovers, as its owner and its standby store them.
#[derive(Debug, Clone)]
pub struct RegionState<const D: usize> {
    world: WorldBox<D>,
    store: EntityStore<D>,
    handover: Handover,
    tick: u64,
}

/// A part of a region's record: one change of the region's state, except movements of entities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordSection {
    /// A step of a handover.
    HandoverEntry(HandoverEntry),
    /// A new entity is inserted.
    Insert(TransferredEntity),
    /// An entity is removed from the world.
    Remove(EntityId),
    /// An entity's state is replaced.
    Put(TransferredEntity),
    /// Rows are sorted.
    Sort(SortWindow),
    /// An entity is frozen because its behaviour failed (`true`), or moves again (`false`).
    Frozen(EntityId, bool),
    /// A tick in which nothing moved.
    Tick(u64),
    /// A snapshot that replaces everything.
    Whole(Vec<u8>),
}

/// The reason why a record cannot be applied to a region's state.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The record cannot be decoded.
    #[error(transparent)]
    Decode(#[from] SpaceDecodeError),
    /// The record contains an invalid change, for example a change of an entity that does not exist.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The record contains a section `whole` and other sections. Or the record with a section `whole` is in a batch
    /// with other records.
    #[error("a record that replaces a region's whole state must be published alone")]
    NotAlone,
    /// The state would have too many handovers.
    #[error("a region's state may have at most {max} entries about handovers")]
    Transfers {
        /// The limit.
        max: usize,
    },
    /// The record moves more or fewer rows than the region has, or sorts rows that do not exist.
    #[error("the record is for {rows} entities, but the region has {held}")]
    Rows {
        /// Number of rows in the record.
        rows: usize,
        /// Number of rows in the region.
        held: usize,
    },
}

const ENTRY: u8 = 1;
const INSERT: u8 = 2;
const REMOVE: u8 = 3;
const PUT: u8 = 4;
const MOVED: u8 = 6;
const FROZEN: u8 = 7;
const TICK: u8 = 8;
const WHOLE: u8 = 9;
const SORT: u8 = 10;

const TURNED_NONE: u8 = 0;
const TURNED_ALL: u8 = 1;
const TURNED_SOME: u8 = 2;

impl RecordSection {
    /// Appends the encoded section.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let put_entity = |out: &mut Vec<u8>, kind: u8, entity: &TransferredEntity| {
            out.push(kind);
            put_u64(out, entity.id.0);
            put_u32(out, entity.generation);
            put_bytes(out, &entity.state);
        };
        match self {
            RecordSection::HandoverEntry(entry) => {
                out.push(ENTRY);
                entry.encode(out);
            }
            RecordSection::Insert(given) => put_entity(out, INSERT, given),
            RecordSection::Put(given) => put_entity(out, PUT, given),
            RecordSection::Remove(id) => {
                out.push(REMOVE);
                put_u64(out, id.0);
            }
            RecordSection::Sort(window) => {
                out.push(SORT);
                window.write(out);
            }
            RecordSection::Frozen(id, frozen) => {
                out.push(FROZEN);
                put_u64(out, id.0);
                out.push(u8::from(*frozen));
            }
            RecordSection::Tick(tick) => {
                out.push(TICK);
                put_u64(out, *tick);
            }
            RecordSection::Whole(snapshot) => {
                out.push(WHOLE);
                put_bytes(out, snapshot);
            }
        }
    }
}

impl<const D: usize> RegionState<D> {
    /// Creates a state from its parts.
    pub fn new(world: WorldBox<D>, store: EntityStore<D>, handover: Handover) -> RegionState<D> {
        RegionState { world, store, handover, tick: 0 }
    }

    /// The entities.
    pub fn store(&self) -> &EntityStore<D> {
        &self.store
    }

    /// The state of the region's handovers to and from other regions.
    pub fn handover(&self) -> &Handover {
        &self.handover
    }

    /// The last tick in the state.
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// Copies the state for a new standby.
    pub fn copy_for_standby(&mut self) -> RegionState<D> {
        let handover = self.handover.copy_for_standby();
        RegionState { world: self.world, store: self.store.clone(), handover, tick: self.tick }
    }

    pub(super) fn store_mut(&mut self) -> &mut EntityStore<D> {
        &mut self.store
    }

    pub(super) fn handover_mut(&mut self) -> &mut Handover {
        &mut self.handover
    }

    pub(super) fn set_tick(&mut self, tick: u64) {
        self.tick = tick;
    }

    pub(super) fn receive_handover(
        &mut self,
        message: HandoverMessage,
        now: u64,
        effects: &mut Vec<HandoverEffect>,
    ) {
        self.handover.receive(message, &self.store, now, effects);
    }

    /// Applies the effect of a handover to the entities. This cannot fail, because the region reserved room for the
    /// entities when it accepted them.
    pub(super) fn apply_effect(&mut self, effect: HandoverEffect) {
        match effect {
            HandoverEffect::Suspend(ids) => ids.into_iter().for_each(|id| self.store.set_suspended(id, true)),
            HandoverEffect::Release(ids) => {
                ids.into_iter().for_each(|id| self.store.set_suspended(id, false))
            }
            HandoverEffect::Depart(ids) => ids.into_iter().for_each(|id| drop(self.store.remove(id))),
            HandoverEffect::Admit(entities) => {
                for entity in entities {
                    let taken = self.store.insert_transferred(&entity);
                    assert!(taken.is_ok(), "prepared entity {} was refused: {taken:?}", entity.id);
                }
            }
            HandoverEffect::Send { .. }
            | HandoverEffect::Write(_)
            | HandoverEffect::Refused(_)
            | HandoverEffect::Lost { .. } => {}
        }
    }

    /// Sorts the rows of a window. All these rows must exist.
    pub(super) fn sort(&mut self, window: SortWindow) {
        self.store.sort(window, &self.world);
    }

    /// Appends a section `moved`, which contains the positions of all rows after a tick. If `turned` is `None`, the
    /// section also contains the velocities of all rows; otherwise, only those of the rows in `turned`.
    pub(super) fn write_moved(&self, turned: Option<&[u32]>, out: &mut Vec<u8>) {
        let (rows, listed) = (self.store.len(), turned.unwrap_or(&[]));
        let choice = match turned {
            Some([]) => TURNED_NONE,
            Some(_) => TURNED_SOME,
            None => TURNED_ALL,
        };
        out.reserve(
            20 + rows * 4 * if choice == TURNED_ALL { 2 * D } else { D } + listed.len() * 4 * (D + 1),
        );
        out.push(MOVED);
        put_u64(out, self.tick);
        put_u32(out, rows as u32);
        out.push(choice);
        self.store.positions().into_iter().for_each(|column| put_column(out, column));
        let velocities = self.store.velocities();
        match choice {
            TURNED_ALL => velocities.into_iter().for_each(|column| put_column(out, column)),
            TURNED_SOME => {
                put_u32(out, listed.len() as u32);
                listed.iter().for_each(|row| put_u32(out, *row));
                for column in velocities {
                    listed.iter().for_each(|row| out.extend_from_slice(&column[*row as usize].to_le_bytes()));
                }
            }
            _ => {}
        }
    }

    /// Applies a record. After an error the state is undefined.
    pub fn follow(&mut self, record: &[u8]) -> Result<(), RecordError> {
        let mut sections = Sections::new(record);
        let mut effects = Vec::new();
        while let Some(step) = sections.next::<D>()? {
            match step {
                Step::HandoverEntry(entry) => {
                    self.handover.follow(entry, &mut effects);
                    effects.drain(..).for_each(|effect| self.apply_effect(effect));
                }
                Step::Insert(entity) => drop(self.store.insert_transferred(&entity)?),
                Step::Put(entity) => self.store.overwrite_transferred(&entity)?,
                Step::Remove(id) => self.store.remove(id)?,
                Step::Sort(window) => {
                    check_window(window, self.store.len())?;
                    self.sort(window);
                }
                Step::Moved(moved) => self.follow_moved(&moved)?,
                Step::Frozen(id, frozen) => {
                    let row = self.store.row(id).ok_or(StoreError::Unknown(id))?;
                    self.store.set_frozen(row, frozen);
                }
                Step::Tick(tick) => self.tick = tick,
                Step::Whole(snapshot) => *self = self.read(snapshot)?,
            }
        }
        Ok(())
    }

    fn follow_moved(&mut self, moved: &Moved<'_>) -> Result<(), RecordError> {
        moved.check_rows(self.store.len())?;
        let (position, velocity) = self.store.columns_mut();
        let mut finite = true;
        let each = (moved.rows * 4).max(1);
        let columns = position.iter_mut().chain(&mut *velocity);
        for (column, bytes) in columns.zip(moved.columns.chunks_exact(each)) {
            let (numbers, _) = bytes.as_chunks::<4>();
            for (along, bytes) in column.iter_mut().zip(numbers) {
                *along = f32::from_le_bytes(*bytes);
                finite &= along.is_finite();
            }
        }
        let (rows, _) = moved.turned.as_chunks::<4>();
        let (numbers, _) = moved.turned_columns.as_chunks::<4>();
        for (column, numbers) in velocity.iter_mut().zip(numbers.chunks_exact(rows.len().max(1))) {
            for (row, bytes) in rows.iter().zip(numbers) {
                let along = f32::from_le_bytes(*bytes);
                column[u32::from_le_bytes(*row) as usize] = along;
                finite &= along.is_finite();
            }
        }
        self.tick = moved.tick;
        if finite { Ok(()) } else { Err(SpaceDecodeError::NotFinite.into()) }
    }

    pub(crate) fn world(&self) -> &WorldBox<D> {
        &self.world
    }

    pub(crate) fn restored(
        world: WorldBox<D>,
        store: EntityStore<D>,
        handover: Handover,
        tick: u64,
    ) -> RegionState<D> {
        RegionState { world, store, handover, tick }
    }
}

/// A decoded section of a record.
pub(super) enum Step<'a> {
    HandoverEntry(HandoverEntry),
    Insert(TransferredEntity),
    Remove(EntityId),
    Put(TransferredEntity),
    Sort(SortWindow),
    Moved(Moved<'a>),
    Frozen(EntityId, bool),
    Tick(u64),
    Whole(&'a [u8]),
}

/// The content of a section `moved`: the tick, the positions of all rows, and velocities.
pub(super) struct Moved<'a> {
    tick: u64,
    rows: usize,
    /// The positions of all rows, by axis. If the record contains the velocities of all rows, these velocities follow.
    columns: &'a [u8],
    /// The numbers of the rows whose velocities are listed; `turned_columns` contains these velocities by axis. Both
    /// are empty if `columns` contains the velocities of all rows, or if the record contains no velocities.
    turned: &'a [u8],
    turned_columns: &'a [u8],
}

impl<'a> Moved<'a> {
    fn read<const D: usize>(fields: &mut Fields<'a>) -> Result<Moved<'a>, SpaceDecodeError> {
        let (tick, rows, choice) = (fields.u64()?, fields.u32()? as usize, fields.u8()?);
        let columns = match choice {
            TURNED_NONE | TURNED_SOME => D,
            TURNED_ALL => 2 * D,
            number => return Err(SpaceDecodeError::Unknown { what: "choice of velocities", number }),
        };
        let columns = fields.take(rows.saturating_mul(4 * columns))?;
        let some = if choice == TURNED_SOME { fields.count(4 + 4 * D)? } else { 0 };
        let (turned, turned_columns) = (fields.take(some * 4)?, fields.take(some * 4 * D)?);
        Ok(Moved { tick, rows, columns, turned, turned_columns })
    }

    /// Checks the number of rows, and that all numbers are finite.
    pub(super) fn check(&self, held: usize) -> Result<(), RecordError> {
        self.check_rows(held)?;
        let finite = |bytes: &[u8]| {
            let (numbers, _) = bytes.as_chunks::<4>();
            numbers.iter().fold(true, |finite, bytes| finite & f32::from_le_bytes(*bytes).is_finite())
        };
        let finite = finite(self.columns) && finite(self.turned_columns);
        if finite { Ok(()) } else { Err(SpaceDecodeError::NotFinite.into()) }
    }

    fn check_rows(&self, held: usize) -> Result<(), RecordError> {
        let (turned, _) = self.turned.as_chunks::<4>();
        let last = turned.iter().map(|row| u32::from_le_bytes(*row) as usize + 1).max().unwrap_or(0);
        let rows = self.rows;
        if rows != held {
            return Err(RecordError::Rows { rows, held });
        }
        if last <= held { Ok(()) } else { Err(RecordError::Rows { rows: last, held }) }
    }
}

/// Checks that the rows to be sorted exist.
pub(super) fn check_window(window: SortWindow, held: usize) -> Result<(), RecordError> {
    let rows = window.end();
    if rows <= held { Ok(()) } else { Err(RecordError::Rows { rows, held }) }
}

/// Iterates over the sections of a record.
pub(super) struct Sections<'a> {
    fields: Fields<'a>,
}

impl<'a> Sections<'a> {
    pub(super) fn new(record: &'a [u8]) -> Sections<'a> {
        Sections { fields: Fields::plain(record) }
    }

    /// Whether no section follows.
    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    pub(super) fn next<const D: usize>(&mut self) -> Result<Option<Step<'a>>, SpaceDecodeError> {
        let fields = &mut self.fields;
        if fields.is_empty() {
            return Ok(None);
        }
        Ok(Some(match fields.u8()? {
            ENTRY => Step::HandoverEntry(HandoverEntry::read(fields)?),
            INSERT => Step::Insert(entity(fields)?),
            PUT => Step::Put(entity(fields)?),
            REMOVE => Step::Remove(EntityId(fields.u64()?)),
            SORT => Step::Sort(SortWindow::read(fields)?),
            MOVED => Step::Moved(Moved::read::<D>(fields)?),
            FROZEN => Step::Frozen(EntityId(fields.u64()?), fields.u8()? != 0),
            TICK => Step::Tick(fields.u64()?),
            WHOLE => Step::Whole(fields.bytes()?),
            number => return Err(SpaceDecodeError::Unknown { what: "section", number }),
        }))
    }
}

fn entity(fields: &mut Fields<'_>) -> Result<TransferredEntity, SpaceDecodeError> {
    let (id, generation) = (EntityId(fields.u64()?), fields.u32()?);
    Ok(TransferredEntity { id, generation, state: fields.bytes()?.into() })
}

/// Appends a column of numbers.
pub(crate) fn put_column(out: &mut Vec<u8>, column: &[f32]) {
    let start = out.len();
    out.resize(start + column.len() * 4, 0);
    let (places, _) = out[start..].as_chunks_mut::<4>();
    places.iter_mut().zip(column).for_each(|(place, along)| *place = along.to_le_bytes());
}
