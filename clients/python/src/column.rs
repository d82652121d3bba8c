//! Numbers and bytes that Python reads in place, through the buffer protocol.
//!
//! A [`Column`] shows one field of a slice of structures, or a whole slice, to `memoryview` and NumPy. The view keeps
//! the slice's owner alive, and the slice does not change. A view may therefore outlive every other Python object that
//! uses the slice.
//!
//! The buffer protocol passes C pointers and needs `unsafe`. Without this protocol, the fields would have to be copied,
//! which costs 56 bytes a record.

use std::ffi::{CStr, c_int, c_void};
use std::sync::Arc;

use dunlin_space::EntityId;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::records::RecordFields;

/// An array that Python reads without a copy, such as one numeric field of every record of a batch.
#[pyclass(frozen, name = "Column", module = "dunlin")]
pub struct Column {
    owner: Arc<dyn StableBytes>,
    start: usize,
    format: &'static CStr,
    item_bytes: usize,
    shape: [ffi::Py_ssize_t; 2],
    strides: [ffi::Py_ssize_t; 2],
    dimensions: usize,
}

/// An owner of bytes that stay at the same address while Python reads them.
pub trait StableBytes: Send + Sync {
    /// Returns the bytes. Every call returns the same bytes, at the same address.
    fn bytes(&self) -> &[u8];
}

/// The format code of a number in Python's buffer protocol, and the number's size in bytes.
pub struct NumberFormat(pub &'static CStr, pub usize);

pub const U8: NumberFormat = NumberFormat(c"B", 1);
pub const U32: NumberFormat = NumberFormat(c"I", 4);
pub const F32: NumberFormat = NumberFormat(c"f", 4);
pub const U64: NumberFormat = NumberFormat(c"Q", 8);
pub const I64: NumberFormat = NumberFormat(c"q", 8);

/// Types that consist of numbers without padding. All bytes of a value of such a type may therefore be read.
///
/// # Safety
/// A type may implement this trait only if it consists of numbers without padding.
unsafe trait Plain {}

const _: () =
    assert!(size_of::<RecordFields>() == 5 * 8 + 4 * 4, "there is nothing between a head's numbers");
// SAFETY: the structure is `repr(C)`, and the assertion above shows that it has no padding.
unsafe impl Plain for RecordFields {}
// SAFETY: the array consists of two numbers of the same type, without padding.
unsafe impl Plain for [i64; 2] {}
// SAFETY: `u32` is a plain number.
unsafe impl Plain for u32 {}
// SAFETY: `f32` is a plain number.
unsafe impl Plain for f32 {}
// SAFETY: `EntityId` is `repr(transparent)` around a number.
unsafe impl Plain for EntityId {}

#[expect(private_bounds, reason = "what is plain is decided in this file")]
pub fn bytes_of<T: Plain>(items: &[T]) -> &[u8] {
    // SAFETY: `T` is `Plain`, so every byte of `items` is a part of a number. Bytes need no alignment.
    unsafe { std::slice::from_raw_parts(items.as_ptr().cast(), size_of_val(items)) }
}

impl Column {
    /// Returns a column of `len` numbers. The first number begins at byte `start`; each further number begins `stride`
    /// bytes after the previous one.
    pub fn strided(
        owner: Arc<dyn StableBytes>,
        kind: NumberFormat,
        start: usize,
        stride: usize,
        len: usize,
    ) -> Column {
        Column::table(owner, kind, start, [len, 1], [stride, 0], 1)
    }

    /// Returns a column whose rows are two adjacent numbers each.
    pub fn pairs(owner: Arc<dyn StableBytes>, kind: NumberFormat, rows: usize) -> Column {
        let bytes = kind.1;
        Column::table(owner, kind, 0, [rows, 2], [2 * bytes, bytes], 2)
    }

    fn table(
        owner: Arc<dyn StableBytes>,
        NumberFormat(format, item_bytes): NumberFormat,
        start: usize,
        shape: [usize; 2],
        strides: [usize; 2],
        dimensions: usize,
    ) -> Column {
        let last = |axis: usize| shape[axis].saturating_sub(1) * strides[axis];
        let end = start + (0..dimensions).map(last).sum::<usize>() + item_bytes;
        let is_empty = shape[..dimensions].contains(&0);
        assert!(is_empty || end <= owner.bytes().len(), "a column ends within its bytes");
        let signed = |numbers: [usize; 2]| numbers.map(|number| number as ffi::Py_ssize_t);
        let (shape, strides) = (signed(shape), signed(strides));
        Column { owner, start, format, item_bytes, shape, strides, dimensions }
    }
}

#[pymethods]
impl Column {
    fn __len__(&self) -> usize {
        self.shape[0] as usize
    }

    /// Fills in `view` for Python. The view keeps this object alive, and this object keeps the bytes alive.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("the request has no buffer view"));
        }
        if flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
            return Err(PyBufferError::new_err("the buffer is read-only"));
        }
        let column = slf.get();
        let row_bytes = if column.dimensions == 2 { 2 * column.item_bytes } else { column.item_bytes };
        let contiguous = column.strides[0] as usize == row_bytes;
        if flags & ffi::PyBUF_STRIDES != ffi::PyBUF_STRIDES && !contiguous {
            return Err(PyBufferError::new_err(
                "the numbers are not contiguous: request a buffer with strides",
            ));
        }
        let rows = column.shape[0];
        // Slices the bytes instead of indexing them: an empty column may start at the end of the bytes, where an index
        // would panic.
        let start = column.owner.bytes()[column.start..].as_ptr();
        // SAFETY: `view` is not null, and the caller lets this function fill it in. The pointers point into `slf`, or
        // into the bytes that `slf` keeps alive. `view.obj` keeps `slf` alive. `slf` is frozen and no code writes to
        // the bytes; with `readonly` set, Python does not write either. Shape and strides stay within the bytes, as
        // `table` has checked.
        unsafe {
            (*view).buf = start as *mut c_void;
            (*view).len = rows * row_bytes as ffi::Py_ssize_t;
            (*view).readonly = 1;
            (*view).itemsize = column.item_bytes as ffi::Py_ssize_t;
            let is_requested = |flag: c_int| flags & flag == flag;
            (*view).format = if is_requested(ffi::PyBUF_FORMAT) {
                column.format.as_ptr().cast_mut()
            } else {
                std::ptr::null_mut()
            };
            (*view).ndim = column.dimensions as c_int;
            (*view).shape = if is_requested(ffi::PyBUF_ND) {
                column.shape.as_ptr().cast_mut()
            } else {
                std::ptr::null_mut()
            };
            (*view).strides = if is_requested(ffi::PyBUF_STRIDES) {
                column.strides.as_ptr().cast_mut()
            } else {
                std::ptr::null_mut()
            };
            (*view).suboffsets = std::ptr::null_mut();
            (*view).internal = std::ptr::null_mut();
            (*view).obj = slf.into_any().into_ptr();
        }
        Ok(())
    }
}
