//! Reads and applies the users file again after the file has changed.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use crate::reload::Reload;
use crate::shared::SharedServer;

/// A server's users file. The server reads the file again after the file has changed.
#[derive(Debug)]
pub(crate) struct UsersFile {
    path: PathBuf,
    shared: Weak<SharedServer>,
}

impl UsersFile {
    /// Returns the server's users file; `None` if the server has none.
    pub(crate) fn of(shared: &Arc<SharedServer>) -> Option<UsersFile> {
        let access = shared.access.as_ref()?;
        Some(UsersFile { path: access.path().to_owned(), shared: Arc::downgrade(shared) })
    }
}

impl Reload for UsersFile {
    fn name(&self) -> &'static str {
        "users file"
    }

    fn files(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    fn reload(&self) -> Result<(), String> {
        let Some(shared) = self.shared.upgrade() else { return Ok(()) };
        shared.reload_users().map_err(|error| error.to_string())
    }
}
