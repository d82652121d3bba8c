//! Sorts rows into the Morton order, a part in each tick. Rows in the same cell are sorted by id.
//!
//! Sorting all rows of a large region takes longer than a tick may. Every tick therefore sorts the rows of one
//! [`SortWindow`] among themselves. A sweep consists of as many windows of about equal size as are necessary to include
//! all rows once. Three kinds of sweeps alternate. In the first kind, the rows of a window are far apart, so that
//! appended rows find their place. In the second kind, the rows of a window are adjacent. In the third kind they are
//! adjacent too, but the windows are shifted by half of their size. Three sweeps nearly sort rows in any order. The
//! order only affects how near to each other entities are in memory.

use super::{EntityStore, hash};
use crate::curve::{Curve, MortonCurve};
use crate::layout::{Fields, SpaceDecodeError, put_u32};
use crate::world::WorldBox;

/// Minimum number of rows in a window, if there are enough rows.
const ROWS_MIN: usize = 512;

/// The rows of an entity store that one sorting step sorts among themselves: `count` rows at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortWindow {
    first: u32,
    step: u32,
    count: u32,
}

impl SortWindow {
    /// The window that a tick sorts if each sweep takes `every` ticks; `None` if the tick has nothing to sort.
    pub(crate) fn of_tick(tick: u64, every: u32, rows: usize) -> Option<SortWindow> {
        let every = u64::from(every.max(1));
        let (nth, sweep) = ((tick % every) as usize, tick / every % 3);
        let part_rows = rows.div_ceil(every as usize).max(ROWS_MIN);
        let parts = rows.div_ceil(part_rows);
        let (first, step) = match sweep {
            0 => (nth, parts),
            1 => (nth * part_rows, 1),
            _ => (nth * part_rows + part_rows / 2, 1),
        };
        if nth >= parts || first >= rows {
            return None;
        }
        let count = (rows - first).div_ceil(step).min(part_rows);
        let [first, step, count] = [first, step, count].map(|number| u32::try_from(number).ok());
        let window = SortWindow { first: first?, step: step?, count: count? };
        (window.count > 1).then_some(window)
    }

    /// The row after the window's last row.
    pub(crate) fn end(self) -> usize {
        self.row(self.count.saturating_sub(1) as usize) + 1
    }

    fn row(self, nth: usize) -> usize {
        self.first as usize + nth * self.step as usize
    }

    pub(crate) fn write(self, out: &mut Vec<u8>) {
        [self.first, self.step, self.count].into_iter().for_each(|number| put_u32(out, number));
    }

    pub(crate) fn read(fields: &mut Fields<'_>) -> Result<SortWindow, SpaceDecodeError> {
        let window = SortWindow { first: fields.u32()?, step: fields.u32()?, count: fields.u32()? };
        if window.step == 0 {
            Err(SpaceDecodeError::Unknown { what: "step of rows", number: 0 })
        } else {
            Ok(window)
        }
    }
}

/// A row of an entity store that changes its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowMove {
    pub(super) from: u32,
    pub(super) to: u32,
}

impl<const D: usize> EntityStore<D> {
    /// Sorts the rows of a window. All these rows must exist.
    pub(crate) fn sort(&mut self, window: SortWindow, world: &WorldBox<D>) {
        // The buffers for sorting are allocated anew for each call. Keeping them would need as much memory as the rows.
        let rows = (0..window.count as usize).map(|nth| window.row(nth));
        let mut order: Vec<(u64, u32)> = rows
            .clone()
            .map(|row| (MortonCurve::key(world.grid_point(&self.position(row))), row as u32))
            .collect();
        <MortonCurve as Curve<D>>::sort(&mut order, &mut Vec::new());
        for run in order.chunk_by_mut(|a, b| a.0 == b.0).filter(|run| run.len() > 1) {
            run.sort_unstable_by_key(|(_, row)| self.ids[*row as usize]);
        }
        let moves = rows.zip(&order).map(|(to, (_, from))| RowMove { from: *from, to: to as u32 });
        let moves: Vec<RowMove> = moves.filter(|moved| moved.from != moved.to).collect();
        self.renumber(&moves);
        permute(&mut self.ids, &moves);
        permute(&mut self.generations, &moves);
        permute(&mut self.kinds, &moves);
        permute(&mut self.flags, &moves);
        permute(&mut self.cooldown_until, &moves);
        self.position.iter_mut().chain(&mut self.velocity).for_each(|column| permute(column, &moves));
        self.components.iter_mut().for_each(|column| column.permute(&moves));
    }

    /// Updates the index from ids to rows. Must run before the ids move.
    fn renumber(&mut self, moves: &[RowMove]) {
        let (ids, rows) = (&self.ids, &mut self.rows);
        // First finds all entries, and only then changes them: entries with equal hashes are told apart by their rows,
        // which must not have changed.
        let bucket = |moved: &RowMove| {
            rows.find_bucket_index(hash(ids[moved.from as usize]), |row| *row == moved.from)
        };
        let buckets: Vec<Option<usize>> = moves.iter().map(bucket).collect();
        for (bucket, moved) in buckets.into_iter().zip(moves) {
            if let Some(row) = bucket.and_then(|bucket| rows.get_bucket_mut(bucket)) {
                *row = moved.to;
            }
        }
    }
}

pub(super) fn permute<T: Copy>(column: &mut [T], moves: &[RowMove]) {
    let values: Vec<T> = moves.iter().map(|moved| column[moved.from as usize]).collect();
    moves.iter().zip(values).for_each(|(moved, value)| column[moved.to as usize] = value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::RegionLimits;
    use crate::store::{ComponentKind, Entity, Schema};

    fn scattered(count: u64) -> EntityStore<3> {
        let mut schema = Schema::default();
        schema.register("number", ComponentKind::F32).unwrap();
        schema.register("name", ComponentKind::Bytes(3)).unwrap();
        let mut store = EntityStore::new(schema, RegionLimits::default());
        for id in 0..count {
            let along = |axis: u64| ((id + 1) * (7 + axis) * 40_503 % 10_007) as f32 / 101.0;
            let components = [&(id as f32).to_le_bytes()[..], &id.to_le_bytes()[..3]].concat();
            let entity = Entity { components: &components, ..Entity::at(id, [along(0), along(1), along(2)]) };
            store.insert(&entity).unwrap();
        }
        store
    }

    /// Mean distance of rows from their place in the sorted order.
    fn disorder(store: &EntityStore<3>, world: &WorldBox<3>) -> f64 {
        let key = |row: &usize| (MortonCurve::key(world.grid_point(&store.position(*row))), store.ids[*row]);
        let mut order: Vec<usize> = (0..store.len()).collect();
        order.sort_by_key(key);
        order.iter().enumerate().map(|(at, row)| at.abs_diff(*row) as f64).sum::<f64>() / store.len() as f64
    }

    #[test]
    fn every_sweep_of_the_sort_visits_almost_every_row_once() {
        for (rows, every) in [(0, 32), (1, 32), (511, 32), (10_000, 32), (10_001, 7), (100, 1), (70_000, 32)]
        {
            for sweep in 0..3_u64 {
                let ticks = sweep * u64::from(every)..(sweep + 1) * u64::from(every);
                let windows = ticks.filter_map(|tick| SortWindow::of_tick(tick, every, rows));
                let mut seen = vec![0; rows];
                for window in windows {
                    assert!(window.end() <= rows, "{window:?}");
                    (0..window.count as usize).for_each(|nth| seen[window.row(nth)] += 1);
                }
                let missed = seen.iter().filter(|count| **count == 0).count();
                let most = rows.div_ceil(every as usize).max(ROWS_MIN);
                assert!(seen.iter().all(|count| *count <= 1), "{rows} {every} {sweep}");
                assert!(missed <= if sweep == 2 { most } else { 1 }, "{rows} {every} {sweep}: {missed}");
            }
        }
    }

    #[test]
    fn three_passes_almost_sort_scattered_rows() {
        let (mut store, world) = (scattered(20_000), WorldBox::cube(100.0).unwrap());
        let (before, far) = (store.ledger(), disorder(&store, &world));
        for tick in 0..96 {
            if let Some(window) = SortWindow::of_tick(tick, 32, store.len()) {
                store.sort(window, &world);
            }
        }
        let near = disorder(&store, &world);
        assert!(far > 5_000.0 && near < 100.0, "{far} rows from where they belong, then {near}");
        assert_eq!(store.ledger(), before);
        for id in 0..20_000 {
            let row = store.row(crate::EntityId(id)).unwrap();
            assert_eq!((store.ids[row].0, store.f32s(0).unwrap()[row]), (id, id as f32));
        }
    }
}
