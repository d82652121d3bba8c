//! Components: named fields of a fixed size that programs define. Each component has a column of its own.

use super::order::{RowMove, permute};
use super::state::StateError;

/// The type of a component: a number, or bytes of a fixed size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ComponentKind {
    /// A floating-point number of 32 bits.
    F32,
    /// The given number of bytes, which this crate does not interpret.
    Bytes(u32),
}

impl ComponentKind {
    /// Size of one value, bytes.
    pub fn size(self) -> usize {
        match self {
            ComponentKind::F32 => 4,
            ComponentKind::Bytes(bytes) => bytes as usize,
        }
    }
}

/// A named and typed field that a program adds to every entity of a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// Name of the component.
    pub name: String,
    /// Type of the component.
    pub kind: ComponentKind,
}

/// The list of components that every entity of a world has, in the order of registration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schema {
    components: Vec<Component>,
    /// Bytes of all components together.
    size: usize,
}

/// The reason why a component cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A component with this name exists already.
    #[error("component `{0}` is already registered")]
    Twice(String),
    /// The total size is too large, or a component has no bytes.
    #[error("all components together have {size} bytes: use 1 to {max}")]
    Size {
        /// The total size, bytes.
        size: usize,
        /// The limit.
        max: usize,
    },
}

/// Maximum size of all components of an entity, bytes.
const COMPONENT_BYTES_MAX: usize = 4_096;

impl Schema {
    /// Adds a component and returns its number.
    pub fn register(&mut self, name: &str, kind: ComponentKind) -> Result<usize, SchemaError> {
        if self.components.iter().any(|component| component.name == name) {
            return Err(SchemaError::Twice(name.to_owned()));
        }
        let size = self.size + kind.size();
        if kind.size() == 0 || size > COMPONENT_BYTES_MAX {
            return Err(SchemaError::Size { size, max: COMPONENT_BYTES_MAX });
        }
        self.size = size;
        self.components.push(Component { name: name.to_owned(), kind });
        Ok(self.components.len() - 1)
    }

    /// All components.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// Bytes of all components of one entity.
    pub fn size(&self) -> usize {
        self.size
    }

    /// A hash of the schema, equal in all processes. Different schemas have different hashes, except by chance.
    pub fn hash(&self) -> u32 {
        // FNV-1a, 32 bits.
        let mut hash = 0x811c_9dc5_u32;
        for component in &self.components {
            let size = component.kind.size() as u32;
            let tag = [u8::from(component.kind == ComponentKind::F32)];
            for byte in component.name.as_bytes().iter().chain(&[0]).chain(&tag).chain(&size.to_le_bytes()) {
                hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
            }
        }
        hash
    }

    pub(super) fn check(&self, bytes: &[u8]) -> Result<(), StateError> {
        if bytes.len() == self.size {
            Ok(())
        } else {
            Err(StateError::Components { bytes: bytes.len(), wanted: self.size })
        }
    }
}

/// The values of one component, by row.
#[derive(Debug, Clone)]
pub(super) enum ComponentColumn {
    F32(Vec<f32>),
    Bytes { each: usize, bytes: Vec<u8> },
}

impl ComponentColumn {
    pub(super) fn new(kind: ComponentKind) -> ComponentColumn {
        match kind {
            ComponentKind::F32 => ComponentColumn::F32(Vec::new()),
            ComponentKind::Bytes(each) => ComponentColumn::Bytes { each: each as usize, bytes: Vec::new() },
        }
    }

    pub(super) fn f32s(&self) -> Option<&[f32]> {
        match self {
            ComponentColumn::F32(column) => Some(column),
            ComponentColumn::Bytes { .. } => None,
        }
    }

    pub(super) fn bytes_of(&self, row: usize) -> Option<&[u8]> {
        match self {
            ComponentColumn::F32(_) => None,
            ComponentColumn::Bytes { each, bytes } => Some(&bytes[row * each..(row + 1) * each]),
        }
    }

    /// Takes a value from the front of the bytes and appends it as a new row. Returns the remaining bytes.
    pub(super) fn push<'a>(&mut self, given: &'a [u8]) -> &'a [u8] {
        match self {
            ComponentColumn::F32(column) => {
                let (number, rest) = given.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
                column.push(f32::from_le_bytes(*number));
                rest
            }
            ComponentColumn::Bytes { each, bytes } => {
                let (own, rest) = given.split_at(*each);
                bytes.extend_from_slice(own);
                rest
            }
        }
    }

    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) {
        match self {
            ComponentColumn::F32(column) => out.extend_from_slice(&column[row].to_le_bytes()),
            ComponentColumn::Bytes { each, bytes } => {
                out.extend_from_slice(&bytes[row * each..(row + 1) * each])
            }
        }
    }

    /// Takes a value from the front of the bytes and writes it into a row. Returns the remaining bytes.
    pub(super) fn set<'a>(&mut self, row: usize, given: &'a [u8]) -> &'a [u8] {
        match self {
            ComponentColumn::F32(column) => {
                let (number, rest) = given.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
                column[row] = f32::from_le_bytes(*number);
                rest
            }
            ComponentColumn::Bytes { each, bytes } => {
                let (own, rest) = given.split_at(*each);
                bytes[row * *each..(row + 1) * *each].copy_from_slice(own);
                rest
            }
        }
    }

    pub(super) fn swap_remove(&mut self, row: usize) {
        match self {
            ComponentColumn::F32(column) => {
                column.swap_remove(row);
            }
            ComponentColumn::Bytes { each, bytes } => {
                let last = bytes.len() - *each;
                bytes.copy_within(last.., row * *each);
                bytes.truncate(last);
            }
        }
    }

    pub(super) fn permute(&mut self, moves: &[RowMove]) {
        match self {
            ComponentColumn::F32(column) => permute(column, moves),
            ComponentColumn::Bytes { each, bytes } => {
                let each = *each;
                let place = |row: u32| row as usize * each..(row as usize + 1) * each;
                let taken: Vec<u8> = moves.iter().flat_map(|one| &bytes[place(one.from)]).copied().collect();
                for (one, taken) in moves.iter().zip(taken.chunks_exact(each.max(1))) {
                    bytes[place(one.to)].copy_from_slice(taken);
                }
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            ComponentColumn::F32(column) => column.capacity() * 4,
            ComponentColumn::Bytes { bytes, .. } => bytes.capacity(),
        }
    }
}
