//! Whether a stream of records may go on: one look at a number as long as the users file stays what it is.

use std::sync::Arc;

use dunlin::wire::ErrorCode;
use dunlin::{Permissions, Refused, User as _};

use super::Login;

/// Of a reader that began with certain permissions. One whose permissions to read have changed ends, and begins anew where
/// it was with those it has now.
#[derive(Debug)]
pub(crate) struct Standing {
    login: Arc<Login>,
    generation: u64,
    permissions: Arc<Permissions>,
    is_member: bool,
}

impl Standing {
    /// To be made before anything is looked up by the permissions.
    pub(crate) fn of(login: &Arc<Login>) -> Standing {
        let generation = login.access().generation();
        let permissions = login.account().permissions();
        Standing { login: Arc::clone(login), generation, permissions, is_member: false }
    }

    /// The same for a member of a group.
    pub(crate) fn of_member(login: &Arc<Login>) -> Standing {
        Standing { is_member: true, ..Standing::of(login) }
    }

    /// Why it may not go on.
    #[inline]
    pub(crate) fn check(&mut self) -> Result<(), Refused> {
        if self.login.access().generation() == self.generation { Ok(()) } else { self.check_anew() }
    }

    fn check_anew(&mut self) -> Result<(), Refused> {
        self.generation = self.login.access().generation();
        self.login.standing()?;
        let now = self.login.account().permissions();
        let before = &self.permissions;
        if (&now.subscribe, &now.tenant, &now.keys) != (&before.subscribe, &before.tenant, &before.keys)
            || self.is_member && now.groups != before.groups
        {
            let text = "the permissions to read were changed: subscribe again";
            return Err(Refused::new(ErrorCode::Forbidden, text));
        }
        self.permissions = now;
        Ok(())
    }
}
