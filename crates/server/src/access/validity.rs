//! Checks repeatedly that long-lived streams may continue. While the users file is unchanged, each check only compares
//! one number.

use std::sync::Arc;

use dunlin::wire::ErrorCode;
use dunlin::{Permissions, Refused, User as _};

use super::Login;

/// Checks the login of a long-lived stream. Permissions are not checked here, but by the stream's own code.
#[derive(Debug)]
pub(crate) struct Admission {
    login: Arc<Login>,
    /// The generation (version number) of the users file at the last check.
    generation: u64,
}

impl Admission {
    pub(crate) fn of(login: &Arc<Login>) -> Admission {
        Admission { login: Arc::clone(login), generation: login.generation() }
    }

    /// Checks the login if the users file has changed since the last check. Returns whether the file has changed.
    #[inline]
    pub(crate) fn check(&mut self) -> Result<bool, Refused> {
        if self.login.access().generation() == self.generation { Ok(false) } else { self.recheck() }
    }

    fn recheck(&mut self) -> Result<bool, Refused> {
        self.generation = self.login.access().generation();
        self.login.check_validity().map(|()| true)
    }
}

/// Checks the login and the read permissions of a subscription. If these permissions have changed, the subscription
/// must end, and the client may subscribe again.
#[derive(Debug)]
pub(crate) struct SubscriptionAccess {
    admission: Admission,
    permissions: Arc<Permissions>,
    is_member: bool,
}

impl SubscriptionAccess {
    /// Reads the user's present permissions. Call this before the subscription itself uses the permissions; otherwise,
    /// a change between that use and this call would be missed.
    pub(crate) fn of(login: &Arc<Login>) -> SubscriptionAccess {
        let permissions = login.account().permissions();
        SubscriptionAccess { admission: Admission::of(login), permissions, is_member: false }
    }

    /// Like [`SubscriptionAccess::of`], but also checks the user's permissions for groups.
    pub(crate) fn of_member(login: &Arc<Login>) -> SubscriptionAccess {
        SubscriptionAccess { is_member: true, ..SubscriptionAccess::of(login) }
    }

    /// Fails if the subscription must end, because its login or its permissions are no longer valid.
    #[inline]
    pub(crate) fn check(&mut self) -> Result<(), Refused> {
        if self.admission.check()? { self.check_permissions() } else { Ok(()) }
    }

    fn check_permissions(&mut self) -> Result<(), Refused> {
        let now = self.admission.login.account().permissions();
        let before = &self.permissions;
        if !now.reads_same_as(before) || self.is_member && now.groups != before.groups {
            let text = "the user's read permissions have changed: subscribe again";
            return Err(Refused::new(ErrorCode::Forbidden, text));
        }
        self.permissions = now;
        Ok(())
    }
}
