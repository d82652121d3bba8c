//! Replaces the log's spin lock in loom models. This lock blocks, because a spin loop would never end in a model.

use std::ops::{Deref, DerefMut};

#[derive(Debug)]
pub(crate) struct ShortLock<T>(loom::sync::Mutex<T>);

#[derive(Debug)]
pub(crate) struct ShortGuard<'a, T>(loom::sync::MutexGuard<'a, T>);

impl<T> ShortLock<T> {
    pub(crate) fn new(value: T) -> ShortLock<T> {
        ShortLock(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> ShortGuard<'_, T> {
        ShortGuard(self.0.lock().expect("a loom model ends at its first panic"))
    }
}

impl<T> Deref for ShortGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for ShortGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
