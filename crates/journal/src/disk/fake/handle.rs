//! Implements the operations on an open file of the simulated disk.

use std::io;

use super::{DiskFile, FakeDisk, State};

#[derive(Debug)]
pub(super) struct FakeFileHandle {
    pub disk: FakeDisk,
    pub index: usize,
    pub crashes: u64,
    pub write: bool,
}

impl FakeFileHandle {
    /// Runs `operation`. Fails instead if the disk has crashed since the file was opened.
    fn with<T>(&self, operation: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.state();
        if state.crashes == self.crashes {
            operation(&mut state)
        } else {
            Err(io::Error::other("the machine crashed"))
        }
    }

    fn for_writing<T>(&self, operation: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        self.with(
            |state| if self.write { operation(state) } else { Err(io::ErrorKind::PermissionDenied.into()) },
        )
    }
}

impl DiskFile for FakeFileHandle {
    fn bytes(&self) -> io::Result<u64> {
        self.with(|state| Ok(state.files[self.index].content.len() as u64))
    }

    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        self.with(|state| {
            let rest = state.files[self.index].content.get(at as usize..).unwrap_or(&[]);
            let count = rest.len().min(out.len());
            out[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        })
    }

    fn write_at(&self, parts: &[&[u8]], at: u64) -> io::Result<()> {
        self.for_writing(|state| {
            let reports_full = state.faults.write_reports_full;
            count_down(&mut state.faults.write_fails)
                .map_err(|error| if reports_full { io::ErrorKind::StorageFull.into() } else { error })?;
            let mut at = at as usize;
            for part in parts {
                let free = state.capacity.saturating_sub(state.used()) as usize;
                let file = &mut state.files[self.index];
                let fits = (file.content.len() + free).saturating_sub(at).min(part.len());
                file.write(&part[..fits], at);
                if fits < part.len() {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                at += fits;
            }
            Ok(())
        })
    }

    fn set_bytes(&self, bytes: u64) -> io::Result<()> {
        self.for_writing(|state| {
            state.files[self.index].set_bytes(bytes as usize);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state| {
            let reports_full = state.faults.sync_reports_full;
            let failed = count_down(&mut state.faults.sync_fails)
                .map_err(|error| if reports_full { io::ErrorKind::StorageFull.into() } else { error });
            let dirty = std::mem::take(&mut state.files[self.index].dirty);
            if failed.is_ok() || state.below(2) == 0 {
                state.files[self.index].sync_length();
            }
            for sector in dirty {
                if failed.is_ok() || state.below(2) == 0 {
                    state.files[self.index].sync_sector(sector);
                }
            }
            failed
        })
    }
}

/// Decreases `left` by 1. If it is 0 already, the call fails, and all later calls succeed.
pub(super) fn count_down(left: &mut Option<u32>) -> io::Result<()> {
    match left {
        Some(0) => {
            *left = None;
            Err(io::Error::other("the device failed"))
        }
        Some(count) => {
            *count -= 1;
            Ok(())
        }
        None => Ok(()),
    }
}
