//! Who is there: the users file, what proves that it is they, and how much they may have.
//!
//! What they may do is decided by [`dunlin::Permissions`] behind the node that a session is given
//! ([`Node::used_by`](dunlin::Node::used_by)); a door only carries credentials here and answers back.
//!
//! `users` reads the file, `secret` keeps what proves, `nkey` checks keys of NATS, `credentials` is what clients bring, `throttle` slows down who
//! guesses, `checker` checks passwords on threads of its own, `account` and `tenancy` are a user and a tenant while the
//! node runs, `login` is a connection's hold on them.
//!
//! Invariants:
//! - Without a users file nothing here is asked.
//! - No password and no token is printed, logged, or kept but as its hash.
//! - A broken users file changes nothing.
//!
//! Limits: [`AccessLimits`]; those of users and tenants stand in the users file.

mod account;
mod checker;
mod credentials;
mod inboxes;
mod login;
mod meter;
mod nkey;
mod quota;
mod remembered;
mod secret;
mod standing;
mod tenancy;
#[cfg(test)]
mod tests;
mod throttle;
mod users;
mod users_file;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use dunlin::{Node, now_ns};
use tokio::sync::watch;

pub(crate) use account::Account;
pub(crate) use credentials::Credentials;
pub(crate) use inboxes::InboxClaim;
pub(crate) use login::{Login, Pending};
pub(crate) use quota::{pause, slow_down};
pub(crate) use remembered::Remembered;
pub use secret::{SecretError, TOKEN_PREFIX, hash_password, new_token};
pub(crate) use standing::{Admission, Standing};
pub use users::{TENANT_DEFAULT, TenantLimits, UserInfo, UserLimits, Users, UsersError, is_name};
pub(crate) use users_file::UsersFile;

use checker::Checker;
use login::Cache;
use tenancy::Tenancy;
use throttle::Throttle;

/// The bounds of checking who somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessLimits {
    /// Passwords that are checked at a time, each on a thread of its own.
    pub logins_at_once: u32,
    /// Connections that wait for that; one more is refused.
    pub logins_waiting_max: u32,
    /// Passwords that were right are known again, so many at most …
    pub logins_remembered_max: u32,
    /// … for so long, ms.
    pub login_remembered_ms: u32,
}

impl Default for AccessLimits {
    fn default() -> AccessLimits {
        AccessLimits {
            logins_at_once: 2,
            logins_waiting_max: 256,
            logins_remembered_max: 1_024,
            login_remembered_ms: 300_000,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Access {
    path: PathBuf,
    node: Node,
    limits: AccessLimits,
    users: RwLock<Arc<Users>>,
    /// How often the file was taken.
    generation: AtomicU64,
    /// Notified after that.
    changes: watch::Sender<()>,
    accounts: Mutex<HashMap<String, Arc<Account>>>,
    tenancies: Mutex<HashMap<String, Arc<Tenancy>>>,
    throttle: Mutex<Throttle>,
    checker: Checker,
    cache: Mutex<Cache>,
    nonces: nkey::Nonces,
    inboxes: inboxes::Inboxes,
    counts: Counts,
}

/// What became of those who tried to come in, and of those who are in.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) accepted: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) throttled: AtomicU64,
}

/// Whom a new users file is about.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Those that are in it no more.
    pub(crate) removed: Vec<String>,
    /// Those whose permissions for keys are others.
    pub(crate) changed: Vec<String>,
}

/// What a tenant has.
#[derive(Debug)]
pub(crate) struct TenantCounts {
    pub(crate) name: String,
    pub(crate) connections: u64,
    pub(crate) topics: u64,
    pub(crate) expired: u64,
}

impl Access {
    /// With the users of the file.
    pub(crate) fn open(path: &Path, node: &Node, limits: AccessLimits) -> Result<Arc<Access>, UsersError> {
        let users = Users::read(path)?;
        let access = Access {
            path: path.to_owned(),
            node: node.clone(),
            limits,
            users: RwLock::new(Arc::new(users)),
            generation: AtomicU64::new(1),
            changes: watch::Sender::new(()),
            accounts: Mutex::default(),
            tenancies: Mutex::default(),
            throttle: Mutex::default(),
            checker: Checker::new(limits),
            inboxes: inboxes::Inboxes::default(),
            cache: Mutex::new(Cache::new(limits)?),
            nonces: nkey::Nonces::new().map_err(UsersError::unlikely)?,
            counts: Counts::default(),
        };
        let access = Arc::new(access);
        node.set_users(Arc::downgrade(&access) as Weak<dyn dunlin::Users>);
        Ok(access)
    }

    /// Reads the file again. A broken one changes nothing.
    pub(crate) fn reload(&self) -> Result<Changed, UsersError> {
        let users = Arc::new(Users::read(&self.path)?);
        let before = {
            // An account is made with the users of this moment: nobody gets one from here on with those of before.
            let mut accounts = lock(&self.accounts);
            for (name, tenancy) in lock(&self.tenancies).iter() {
                if let Some(tenant) = users.tenants.get(name) {
                    tenancy.set(tenant.limits);
                }
            }
            accounts.retain(|name, account| match users.by_name.get(name) {
                Some(user) if user.tenant == account.tenant().name() => {
                    account.set(user);
                    true
                }
                _ => {
                    account.close();
                    false
                }
            });
            let mut current = self.users.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, Arc::clone(&users))
        };
        lock(&self.cache).clear();
        self.generation.fetch_add(1, Ordering::Release);
        self.changes.send_replace(());
        let mut changed = Changed::default();
        for (name, user) in &before.by_name {
            match users.by_name.get(name) {
                None => changed.removed.push(name.clone()),
                Some(now) if now.permissions.keys != user.permissions.keys => {
                    changed.changed.push(name.clone())
                }
                Some(_) => {}
            }
        }
        Ok(changed)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// It is another number whenever the users may be others.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// To be called about once a second.
    pub(crate) fn tick(&self) {
        let tenancies: Vec<_> = lock(&self.tenancies).values().cloned().collect();
        tenancies.iter().for_each(|tenancy| tenancy.expire(now_ns()));
    }

    /// Tenants whose users came.
    pub(crate) fn tenants(&self) -> Vec<TenantCounts> {
        let tenancies = lock(&self.tenancies);
        let mut tenants: Vec<_> = tenancies
            .iter()
            .map(|(name, tenancy)| {
                let (topics, expired) = tenancy.topic_counts();
                let connections = tenancy.quota.connections();
                TenantCounts { name: name.clone(), connections, topics, expired }
            })
            .collect();
        tenants.sort_by(|a, b| a.name.cmp(&b.name));
        tenants
    }

    /// What a NATS client signs on the connection of this number; `None` where no user has an nkey.
    pub(crate) fn nonce(&self, session: u64) -> Option<String> {
        self.users().has_nkeys().then(|| self.nonces.of(session))
    }

    fn users(&self) -> Arc<Users> {
        Arc::clone(&self.users.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The account of a user; none of one who is not in the file.
    fn account(&self, name: &str) -> Option<Arc<Account>> {
        let mut accounts = lock(&self.accounts);
        if let Some(account) = accounts.get(name) {
            return Some(Arc::clone(account));
        }
        // Not before: the users change while the accounts are locked.
        let users = self.users();
        let user = users.by_name.get(name)?;
        let tenant = users.tenants.get(&user.tenant)?;
        let mut tenancies = lock(&self.tenancies);
        let tenancy = tenancies
            .entry(user.tenant.clone())
            .or_insert_with(|| Arc::new(Tenancy::new(&user.tenant, tenant, &self.node)));
        let account = Arc::new(Account::new(name, user, tenancy, self.changes.subscribe()));
        accounts.insert(name.to_owned(), Arc::clone(&account));
        Some(account)
    }
}

impl dunlin::Users for Access {
    fn user(&self, name: &str) -> Option<Arc<dyn dunlin::User>> {
        self.account(name).map(|account| account as Arc<dyn dunlin::User>)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
