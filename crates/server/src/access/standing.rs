//! Whether what lasts may go on: one look at a number as long as the users file stays what it is.

use std::sync::Arc;

use dunlin::wire::ErrorCode;
use dunlin::{Permissions, Refused, User as _};

use super::Login;

/// Of whatever lasts longer than a request, and asks for permissions whenever it does something.
#[derive(Debug)]
pub(crate) struct Admission {
    login: Arc<Login>,
    /// Of the users file that was looked at last.
    generation: u64,
}

impl Admission {
    pub(crate) fn of(login: &Arc<Login>) -> Admission {
        Admission { login: Arc::clone(login), generation: login.generation() }
    }

    /// Whether the users may be others than at the last look; why the client is let in no more.
    #[inline]
    pub(crate) fn check(&mut self) -> Result<bool, Refused> {
        if self.login.access().generation() == self.generation { Ok(false) } else { self.check_anew() }
    }

    fn check_anew(&mut self) -> Result<bool, Refused> {
        self.generation = self.login.access().generation();
        self.login.standing().map(|()| true)
    }
}

/// Of a reader that began with certain permissions. One whose permissions to read have changed ends, and begins anew where
/// it was with those it has now.
#[derive(Debug)]
pub(crate) struct Standing {
    admission: Admission,
    permissions: Arc<Permissions>,
    is_member: bool,
}

impl Standing {
    /// To be made before anything is looked up by the permissions.
    pub(crate) fn of(login: &Arc<Login>) -> Standing {
        let permissions = login.account().permissions();
        Standing { admission: Admission::of(login), permissions, is_member: false }
    }

    /// The same for a member of a group.
    pub(crate) fn of_member(login: &Arc<Login>) -> Standing {
        Standing { is_member: true, ..Standing::of(login) }
    }

    /// Why it may not go on.
    #[inline]
    pub(crate) fn check(&mut self) -> Result<(), Refused> {
        if self.admission.check()? { self.check_permissions() } else { Ok(()) }
    }

    fn check_permissions(&mut self) -> Result<(), Refused> {
        let now = self.admission.login.account().permissions();
        let before = &self.permissions;
        if !now.reads_like(before) || self.is_member && now.groups != before.groups {
            let text = "the permissions to read were changed: subscribe again";
            return Err(Refused::new(ErrorCode::Forbidden, text));
        }
        self.permissions = now;
        Ok(())
    }
}
