//! Authentication and quotas: the users file, logins, and the limits of users and tenants.
//!
//! Each session receives a handle of the node with the permissions of the session's user
//! ([`Node::with_user`](dunlin::Node::with_user)). This handle checks these [`Permissions`](dunlin::Permissions). A
//! listener itself checks no credentials: it passes the client's credentials to this module, and reports the result to
//! the client.
//!
//! `users` reads the file, `secret` hashes tokens and passwords, `nkey` verifies NATS keys. `credentials` reads a
//! client's credentials from its messages, `throttle` delays repeated failed logins, `checker` verifies passwords on
//! its own threads. `account` and `tenancy` hold the state of a user and of a tenant at run time; `login` connects a
//! client to both.
//!
//! Invariants:
//! - Without a users file, this module does nothing.
//! - Passwords and tokens are never printed or logged, and only their hashes are kept.
//! - While the users file is invalid, the users of the last valid file remain.
//!
//! Limits: [`AccessLimits`] limits logins; the users file has the limits of users and tenants.

mod account;
mod checker;
mod credentials;
mod inboxes;
mod login;
mod login_cache;
mod meter;
mod metered;
mod nkey;
mod quota;
mod secret;
mod tenancy;
#[cfg(test)]
mod tests;
mod throttle;
mod users;
mod users_file;
mod validity;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use dunlin::topic::Topic;
use dunlin::{Node, now_ns};
use tokio::sync::watch;

pub(crate) use account::Account;
pub(crate) use credentials::Credentials;
pub(crate) use inboxes::InboxClaim;
pub(crate) use login::{Login, PendingLogin};
pub(crate) use login_cache::RequestLoginCache;
pub(crate) use metered::MeteredCommand;
pub(crate) use quota::{pause, slow_down};
pub use secret::{SecretError, TOKEN_PREFIX, hash_password, new_token};
pub(crate) use throttle::{ClientIp, network};
pub use users::{TENANT_DEFAULT, TenantLimits, UserDirectory, UserInfo, UserLimits, UsersError, is_name};
pub(crate) use users_file::UsersFile;
pub(crate) use validity::{Admission, SubscriptionAccess};

use checker::Checker;
use login::PasswordCache;
use tenancy::Tenancy;
use throttle::Throttle;

/// Limits of a node's authentication: concurrent logins, and cached passwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessLimits {
    /// Maximum number of passwords that are verified at the same time, each on its own thread.
    pub logins_at_once: u32,
    /// Maximum number of connections that wait until their password is verified; further connections are refused.
    pub logins_waiting_max: u32,
    /// Maximum number of verified passwords that are cached.
    pub logins_remembered_max: u32,
    /// Time for which a verified password is cached, ms.
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

/// The users, tenants and logins of a node.
#[derive(Debug)]
pub(crate) struct Access {
    path: PathBuf,
    node: Node,
    limits: AccessLimits,
    users: RwLock<Arc<UserDirectory>>,
    /// Number of times that a users file was applied.
    generation: AtomicU64,
    /// Notifies its receivers each time a users file is applied.
    changes: watch::Sender<()>,
    accounts: Mutex<HashMap<String, Arc<Account>>>,
    tenancies: Mutex<HashMap<String, Arc<Tenancy>>>,
    throttle: Mutex<Throttle>,
    checker: Checker,
    cache: Mutex<PasswordCache>,
    nonces: nkey::Nonces,
    inboxes: inboxes::InboxUsers,
    counts: LoginCounts,
}

/// Counters of logins: successful, failed, and refused without a check because of earlier failures.
#[derive(Debug, Default)]
pub(crate) struct LoginCounts {
    pub(crate) accepted: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) throttled: AtomicU64,
}

/// The users whose sessions must react after a new users file was applied.
#[derive(Debug, Default)]
pub(crate) struct ChangedUsers {
    /// Users that were removed or moved to another tenant.
    pub(crate) removed: Vec<String>,
    /// Users whose permissions for keys have changed.
    pub(crate) changed: Vec<String>,
}

/// Counters of a tenant: connections, topics, and topics that were deleted because they were unused.
#[derive(Debug)]
pub(crate) struct TenantCounts {
    pub(crate) name: String,
    pub(crate) connections: u64,
    pub(crate) topics: u64,
    pub(crate) expired: u64,
}

impl Access {
    /// Reads the users file and applies it to the node.
    pub(crate) fn open(path: &Path, node: &Node, limits: AccessLimits) -> Result<Arc<Access>, UsersError> {
        let users = UserDirectory::read(path)?;
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
            inboxes: inboxes::InboxUsers::default(),
            cache: Mutex::new(PasswordCache::new(limits)?),
            nonces: nkey::Nonces::new().map_err(UsersError::from_secret_error)?,
            counts: LoginCounts::default(),
        };
        let access = Arc::new(access);
        node.set_users(Arc::downgrade(&access) as Weak<dyn dunlin::Users>);
        Ok(access)
    }

    /// Reads the users file again and applies it. If the file is invalid, returns the error, and the present users
    /// remain.
    pub(crate) fn reload(&self) -> Result<ChangedUsers, UsersError> {
        let users = Arc::new(UserDirectory::read(&self.path)?);
        let before = {
            // Locks the accounts, so that no other thread creates an account from the old users file.
            let mut accounts = lock(&self.accounts);
            for (name, tenancy) in lock(&self.tenancies).iter() {
                if let Some(tenant) = users.tenants.get(name) {
                    tenancy.set(tenant);
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
        let mut changed = ChangedUsers::default();
        for (name, user) in &before.by_name {
            match users.by_name.get(name).filter(|now| now.tenant == user.tenant) {
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

    /// The number of times that a users file was applied. While this number stays the same, earlier checks of logins
    /// are still valid.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn counts(&self) -> &LoginCounts {
        &self.counts
    }

    /// Returns topics that were created automatically and that nobody uses, as far as this node knows; at most `max` of
    /// each tenant.
    pub(crate) fn idle_topics(&self, max: usize) -> Vec<Arc<Topic>> {
        let now_ns = now_ns();
        self.tenancies().iter().flat_map(|tenancy| tenancy.idle_topics(now_ns, max)).collect()
    }

    /// Deletes automatically created topics that have been unused at all nodes for at least the time `topic_idle` of
    /// their tenant. Call this about once a second. `uses` maps each topic that is unused at this node to the time of
    /// its last use at other nodes.
    pub(crate) fn tick(&self, uses: &HashMap<String, u64>) {
        let now_ns = now_ns();
        self.tenancies().iter().for_each(|tenancy| tenancy.expire(now_ns, uses));
    }

    fn tenancies(&self) -> Vec<Arc<Tenancy>> {
        lock(&self.tenancies).values().cloned().collect()
    }

    /// Counters of each tenant that has had a connected user.
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

    /// Returns the nonce that the NATS client of this session must sign; `None` if no user in the users file has an
    /// nkey.
    pub(crate) fn nonce(&self, session: u64) -> Option<String> {
        self.users().has_nkeys().then(|| self.nonces.nonce(session))
    }

    fn users(&self) -> Arc<UserDirectory> {
        Arc::clone(&self.users.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The account of a user; `None` for a user that is not in the file.
    fn account(&self, name: &str) -> Option<Arc<Account>> {
        let mut accounts = lock(&self.accounts);
        if let Some(account) = accounts.get(name) {
            return Some(Arc::clone(account));
        }
        // Reads the users only after the accounts are locked: `reload` replaces the users under this lock.
        let users = self.users();
        let user = users.by_name.get(name)?;
        let tenant = users.tenants.get(&user.tenant)?;
        let mut tenancies = lock(&self.tenancies);
        let tenancy = tenancies.entry(user.tenant.clone()).or_insert_with(|| {
            let is_only = users.by_name.values().all(|other| other.tenant == user.tenant);
            Arc::new(Tenancy::new(&user.tenant, tenant, is_only, &self.node))
        });
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
