//! The log's lock in loom models. The lock blocks, because a spin loop would never end there.

use std::ops::{Deref, DerefMut};

#[derive(Debug)]
pub(crate) struct Lock<T>(loom::sync::Mutex<T>);

#[derive(Debug)]
pub(crate) struct Guard<'a, T>(loom::sync::MutexGuard<'a, T>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Lock<T> {
        Lock(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        Guard(self.0.lock().expect("a loom model ends at its first panic"))
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
