//! Shows all entities of a region at one time as columns, which Python reads in place.

use std::sync::Arc;

use dunlin_space::{AnyRegion, RegionState};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::batch::as_array;
use crate::column::{Column, F32, NumberFormat, StableBytes, U32, U64, bytes_of};

/// All entities of one region, in a world of two or three dimensions, at the position of one record of the region's
/// topic.
#[derive(Clone)]
pub enum RegionSnapshot {
    Plane(Arc<RegionState<2>>),
    Space(Arc<RegionState<3>>),
}

/// A field of an entity. Each column contains this field of all entities.
#[derive(Clone, Copy)]
enum EntityColumn {
    Ids,
    Kinds,
    Position(usize),
    Velocity(usize),
}

struct ColumnView(RegionSnapshot, EntityColumn);

impl RegionSnapshot {
    pub fn of(region: &AnyRegion) -> RegionSnapshot {
        match region {
            AnyRegion::Plane(reducer) => RegionSnapshot::Plane(reducer.share()),
            AnyRegion::Space(reducer) => RegionSnapshot::Space(reducer.share()),
        }
    }

    fn len(&self) -> usize {
        match self {
            RegionSnapshot::Plane(state) => state.store().len(),
            RegionSnapshot::Space(state) => state.store().len(),
        }
    }

    fn dimensions(&self) -> usize {
        match self {
            RegionSnapshot::Plane(_) => 2,
            RegionSnapshot::Space(_) => 3,
        }
    }
}

fn column_bytes<const D: usize>(state: &RegionState<D>, field: EntityColumn) -> &[u8] {
    let store = state.store();
    match field {
        EntityColumn::Ids => bytes_of(store.ids()),
        EntityColumn::Kinds => bytes_of(store.kinds()),
        EntityColumn::Position(axis) => bytes_of(store.positions()[axis]),
        EntityColumn::Velocity(axis) => bytes_of(store.velocities()[axis]),
    }
}

impl StableBytes for ColumnView {
    fn bytes(&self) -> &[u8] {
        match &self.0 {
            RegionSnapshot::Plane(state) => column_bytes(state, self.1),
            RegionSnapshot::Space(state) => column_bytes(state, self.1),
        }
    }
}

/// All entities of a region at one time. Python reads each field of the entities as a column, without a copy.
#[pyclass(frozen, name = "Entities", module = "dunlin")]
pub struct PyEntities(pub RegionSnapshot);

impl PyEntities {
    fn column<'py>(
        &self,
        py: Python<'py>,
        field: EntityColumn,
        kind: NumberFormat,
    ) -> PyResult<Bound<'py, PyAny>> {
        let bytes = kind.1;
        as_array(
            py,
            Column::strided(Arc::new(ColumnView(self.0.clone(), field)), kind, 0, bytes, self.0.len()),
        )
    }

    fn axes<'py>(&self, py: Python<'py>, field: fn(usize) -> EntityColumn) -> PyResult<Bound<'py, PyTuple>> {
        let columns = (0..self.0.dimensions()).map(|axis| self.column(py, field(axis), F32));
        PyTuple::new(py, columns.collect::<PyResult<Vec<_>>>()?)
    }
}

#[pymethods]
impl PyEntities {
    /// The entities' ids.
    #[getter]
    fn ids<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, EntityColumn::Ids, U64)
    }

    /// The entities' kinds.
    #[getter]
    fn kinds<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.column(py, EntityColumn::Kinds, U32)
    }

    /// The positions, as one array for each axis.
    #[getter]
    fn positions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.axes(py, EntityColumn::Position)
    }

    /// The velocities in units per second, as one array for each axis.
    #[getter]
    fn velocities<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.axes(py, EntityColumn::Velocity)
    }

    /// The tick after which the entities had these positions and velocities.
    #[getter]
    fn tick(&self) -> u64 {
        match &self.0 {
            RegionSnapshot::Plane(state) => state.tick(),
            RegionSnapshot::Space(state) => state.tick(),
        }
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __repr__(&self) -> String {
        format!("Entities({} after tick {})", self.0.len(), self.tick())
    }
}
