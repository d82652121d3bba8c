//! Shows the progress of long work as a bar on standard error, if standard error is a terminal.

use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar on standard error. Dropping the handle removes the bar.
#[derive(Debug)]
pub struct TransferProgress(ProgressBar);

const BYTES: &str = "{prefix} {bar:32.cyan/blue} {bytes} of {total_bytes}, {eta} left  {msg}";
const BYTES_WITHOUT_END: &str = "{prefix} {spinner} {bytes} in {elapsed}  {msg}";
const TIME: &str = "{prefix} {bar:32.cyan/blue} {msg}";
const TIME_WITHOUT_END: &str = "{prefix} {spinner} {msg} in {elapsed}";

impl TransferProgress {
    /// Shows progress in bytes. If `total` is known, the bar shows which part is done and how much time is left.
    pub fn of_bytes(what: &str, total: Option<u64>) -> TransferProgress {
        TransferProgress::new(what, total, if total.is_some() { BYTES } else { BYTES_WITHOUT_END })
    }

    /// Shows progress in time. If `total` is known, the bar shows which part of this time has passed.
    pub fn of_time(what: &str, total: Option<Duration>) -> TransferProgress {
        let millis = total.map(|total| total.as_millis() as u64);
        TransferProgress::new(what, millis, if total.is_some() { TIME } else { TIME_WITHOUT_END })
    }

    fn new(what: &str, total: Option<u64>, template: &str) -> TransferProgress {
        // The library indicatif draws the bar only on a terminal.
        let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        TransferProgress(bar.with_style(style).with_prefix(what.to_owned()))
    }

    /// Adds bytes to the progress.
    pub fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Sets the number of processed bytes.
    pub fn set_bytes(&self, bytes: u64) {
        self.0.set_position(bytes);
    }

    /// Sets the elapsed time, and the text beside the bar.
    pub fn set_elapsed(&self, time: Duration, message: impl FnOnce() -> String) {
        if !self.0.is_hidden() {
            self.0.set_message(message());
            self.0.set_position(time.as_millis() as u64);
        }
    }

    /// Sets the text beside the bar.
    pub fn set_message(&self, what: &str) {
        self.0.set_message(what.to_owned());
    }

    /// Runs `write` while the bar is hidden, so that output and bar do not mix.
    pub fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        self.0.suspend(write)
    }
}

impl Drop for TransferProgress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Returns the total size in bytes of the files in a folder.
pub fn bytes_in(folder: &Path) -> u64 {
    let files = std::fs::read_dir(folder).into_iter().flatten();
    files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum()
}
