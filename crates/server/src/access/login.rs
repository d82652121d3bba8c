//! Coming in: from credentials to a connection that is somebody's.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin::topic::Waiter;
use dunlin::wire::ErrorCode;
use dunlin::{Node, Refused, now_ns};
use sha2::{Digest as _, Sha256};

use super::checker::Turn;
use super::secret::{self, Digest};
use super::throttle::From;
use super::users::UsersError;
use super::{Access, AccessLimits, Account, Credentials, lock};

/// What the password of a user that nobody knows is compared with: who asks is not to tell by the time it takes.
const NOBODYS: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5IGlzIGhlcmU$c+rPpcnM5OUSMkz0hZfLkbFyAtEDPoU5KTHVK8Px1J4";

/// A connection that is a user's, as long as this is held.
#[derive(Debug)]
pub(crate) struct Login {
    access: Arc<Access>,
    account: Arc<Account>,
    proof: Proof,
    /// Of the users file, before the proof was last compared with it.
    generation: u64,
}

/// What proved who somebody is, as the users file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Proof {
    Token(Digest),
    /// The hash.
    Password(String),
    /// What a certificate says.
    Certificate(String),
    /// The public key.
    Nkey(String),
}

/// Who it is, or why nobody.
type LoggedIn = Result<Arc<Login>, Refused>;

/// An answer on its way to a session.
#[derive(Debug)]
pub(crate) struct Pending(Arc<Mutex<Option<LoggedIn>>>);

impl Pending {
    /// The answer; `None` before it is there. The users may have changed since it came: from here on the session looks.
    pub(crate) fn take(&self) -> Option<LoggedIn> {
        lock(&self.0).take().map(still)
    }
}

/// Whoever came in is let in still.
fn still(login: LoggedIn) -> LoggedIn {
    login.and_then(|login| login.standing().map(|()| login))
}

impl Access {
    /// Finds out who it is. `waiter` is notified of `token` when the answer is there, which may be at once.
    pub(crate) fn log_in_waking(
        self: &Arc<Access>,
        credentials: Credentials,
        tenant: &str,
        from: From,
        (waiter, token): (Arc<Waiter>, u32),
    ) -> Pending {
        let answer = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&answer);
        self.check(credentials, tenant, from, move |login| {
            *lock(&kept) = Some(login);
            waiter.notify(token);
        });
        Pending(answer)
    }

    /// Finds out who it is.
    pub(crate) async fn log_in(self: &Arc<Access>, credentials: Credentials, from: From) -> LoggedIn {
        let (send, receive) = tokio::sync::oneshot::channel();
        self.check(credentials, "", from, move |login| drop(send.send(login)));
        let given_up = |_| Err(Refused::new(ErrorCode::Internal, "a check was given up"));
        still(receive.await.unwrap_or_else(given_up))
    }

    /// Calls `done`, here or on another thread.
    fn check(
        self: &Arc<Access>,
        credentials: Credentials,
        tenant: &str,
        from: From,
        done: impl FnOnce(LoggedIn) + Send + 'static,
    ) {
        let tenant = tenant.to_owned();
        match credentials {
            Credentials::None => {
                done(Err(Refused::new(ErrorCode::Unauthenticated, "this node wants credentials")));
            }
            Credentials::Unsound => done(Err(self.refuse(from, "no token and no user"))),
            Credentials::Token(token) => {
                let digest = secret::digest(&token);
                let known = self.users().of_token(&digest).map(str::to_owned);
                // Nobody guesses 256 bits: who has a token need not wait because others at the same address failed.
                done(match known {
                    Some(name) => self.enter(&name, Proof::Token(digest), &tenant, from),
                    None => Err(self.refuse(from, "unknown token")),
                });
            }
            Credentials::Certificate(said) => {
                let users = self.users();
                done(match users.of_certificate(&said) {
                    Some((name, said)) => {
                        self.enter(name, Proof::Certificate(said.to_owned()), &tenant, from)
                    }
                    // Nobody guesses certificates either: it is no failure that makes others wait.
                    None => {
                        self.counts.failed.fetch_add(1, Ordering::Relaxed);
                        tracing::warn!(?said, "login failed: a certificate of no user");
                        Err(Refused::new(ErrorCode::Unauthenticated, "the certificate is no user's"))
                    }
                });
            }
            Credentials::Nkey(key) => {
                let known = self.users().of_nkey(&key).map(str::to_owned);
                done(match known {
                    Some(name) => self.enter(&name, Proof::Nkey(key), &tenant, from),
                    None => Err(self.refuse(from, "unknown nkey")),
                });
            }
            Credentials::Password { user, password } => match self.wait(from, &user) {
                Some(refused) => done(Err(refused)),
                None => self.check_password(user, password, tenant, from, done),
            },
        }
    }

    /// Refused unlooked at, if too much has failed.
    fn wait(&self, from: From, user: &str) -> Option<Refused> {
        let wait_ns = lock(&self.throttle).wait_ns(from, user, now_ns());
        (wait_ns > 0).then(|| {
            self.counts.throttled.fetch_add(1, Ordering::Relaxed);
            let numbers = [wait_ns / 1_000_000 + 1, 0, 0];
            Refused { numbers, ..Refused::new(ErrorCode::RateLimit, "failed logins") }
        })
    }

    /// What names no user is one more failure, or has to wait like any other.
    fn refuse(&self, from: From, why: &str) -> Refused {
        self.wait(from, "").unwrap_or_else(|| self.fail(from, "", why))
    }

    fn check_password(
        self: &Arc<Access>,
        user: String,
        password: Vec<u8>,
        tenant: String,
        from: From,
        done: impl FnOnce(LoggedIn) + Send + 'static,
    ) {
        let hash = self.users().by_name.get(&user).and_then(|user| user.password.clone());
        let key = lock(&self.cache).key(&user, &password, hash.as_deref().unwrap_or(NOBODYS));
        if let Some(hash) = &hash
            && lock(&self.cache).knows(&key)
        {
            return done(self.enter(&user, Proof::Password(hash.clone()), &tenant, from));
        }
        let access = Arc::clone(self);
        self.checker.run(from, move |turn| {
            if turn == Turn::TurnedAway {
                let waiting_max = access.limits.logins_waiting_max.into();
                return done(Err(Refused::limit("access.logins_waiting_max", waiting_max)));
            }
            // More may have failed while this one waited: then it was not looked at, and is none of them.
            if let Some(refused) = access.wait(from, &user) {
                return done(Err(refused));
            }
            let is_right = secret::verify(hash.as_deref().unwrap_or(NOBODYS), &password);
            done(match hash {
                Some(hash) if is_right => {
                    lock(&access.cache).remember(key);
                    access.enter(&user, Proof::Password(hash), &tenant, from)
                }
                _ => Err(access.fail(from, &user, "wrong user or password")),
            });
        });
    }

    /// Somebody is who they say, by the users of a moment ago.
    fn enter(self: &Arc<Access>, name: &str, proof: Proof, tenant: &str, from: From) -> LoggedIn {
        let generation = self.generation();
        let Some(account) = self.account(name) else {
            return Err(self.fail(from, name, "unknown user"));
        };
        match proof {
            Proof::Password(_) => lock(&self.throttle).succeeded(from, name, now_ns()),
            _ => lock(&self.throttle).proved(from),
        }
        if !tenant.is_empty() && tenant != account.tenant().name() {
            return Err(Refused::new(ErrorCode::TenantUnknown, tenant));
        }
        account.tenant().enter()?;
        if let Err(refused) = account.quota.enter() {
            account.tenant().quota.leave();
            return Err(refused);
        }
        let login = Arc::new(Login { access: Arc::clone(self), account, proof, generation });
        // What it was compared with may have been replaced meanwhile.
        login.standing()?;
        self.counts.accepted.fetch_add(1, Ordering::Relaxed);
        Ok(login)
    }

    /// Nothing of what was tried is written down but the user's name, and that only if it could be one.
    fn fail(&self, from: From, user: &str, why: &str) -> Refused {
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        lock(&self.throttle).failed(from, user, now_ns());
        let from = from.map_or_else(|| "unix socket".to_owned(), |address| address.to_string());
        tracing::warn!(from, user, why, "login failed");
        Refused::new(ErrorCode::Unauthenticated, "wrong credentials")
    }
}

impl Login {
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub(crate) fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// A look at the number that this was is enough as long as it stays: see [`Admission`](super::Admission).
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Waits for it as long as the user is let in.
    pub(crate) async fn while_let_in<T>(
        &self,
        work: impl Future<Output = Result<T, Refused>>,
    ) -> Result<T, Refused> {
        let mut changes = dunlin::User::changes(&*self.account);
        let shut_out = async {
            loop {
                self.standing()?;
                // They change no more when the server ends.
                if changes.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        tokio::select! {
            // First, so that whoever is shut out hears that, and not what follows from it.
            biased;
            ended = shut_out => ended,
            done = work => done,
        }
    }

    /// The node as this user may use it.
    pub(crate) fn node(&self, node: &Node) -> Node {
        node.used_by(Arc::clone(&self.account) as Arc<dyn dunlin::User>)
    }

    /// Whether the users file still says that what they came in with is theirs.
    pub(crate) fn standing(&self) -> Result<(), Refused> {
        let users = self.access.users();
        let gone = |why: &str| {
            let text = format!("user {} {why}", self.account.name());
            Err(Refused::new(ErrorCode::Unauthenticated, text))
        };
        let Some(user) = users.by_name.get(self.account.name()) else { return gone("was removed") };
        if user.tenant != self.account.tenant().name() {
            return gone("belongs to another tenant now");
        }
        if self.account.is_closed() {
            return gone("was removed, and is another now");
        }
        let holds = match &self.proof {
            Proof::Token(digest) => user.tokens.contains(digest),
            Proof::Password(hash) => user.password.as_ref() == Some(hash),
            Proof::Certificate(said) => user.certificates.contains(said),
            Proof::Nkey(key) => user.nkeys.contains(key),
        };
        if holds { Ok(()) } else { gone("has other credentials now") }
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        self.account.quota.leave();
        self.account.tenant().quota.leave();
    }
}

/// Passwords that were found right, for a while: a client that opens many connections, or sends its password with each
/// request, costs one check. Of a password only a keyed hash is kept, by a key that never leaves the process.
#[derive(Debug)]
pub(super) struct Cache {
    key: Digest,
    known: HashMap<Digest, Instant>,
    limits: AccessLimits,
}

impl Cache {
    pub(super) fn new(limits: AccessLimits) -> Result<Cache, UsersError> {
        Ok(Cache { key: secret::random().map_err(UsersError::unlikely)?, known: HashMap::new(), limits })
    }

    fn key(&self, user: &str, password: &[u8], hash: &str) -> Digest {
        let mut sum = Sha256::new();
        for part in [&self.key[..], user.as_bytes(), hash.as_bytes(), password] {
            sum.update((part.len() as u64).to_le_bytes());
            sum.update(part);
        }
        sum.finalize().into()
    }

    fn knows(&self, key: &Digest) -> bool {
        self.known.get(key).is_some_and(|since| since.elapsed() < self.age_max())
    }

    fn remember(&mut self, key: Digest) {
        if self.known.len() >= self.limits.logins_remembered_max as usize {
            let age_max = self.age_max();
            self.known.retain(|_, since| since.elapsed() < age_max);
        }
        if self.known.len() < self.limits.logins_remembered_max as usize {
            self.known.insert(key, Instant::now());
        }
    }

    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    fn age_max(&self) -> Duration {
        Duration::from_millis(self.limits.login_remembered_ms.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_user_has_a_real_hash_that_never_matches() {
        assert!(secret::is_hash(NOBODYS) && !secret::verify(NOBODYS, b"nobody"));
    }

    #[test]
    fn correct_passwords_are_cached_up_to_the_limit() {
        let limits = AccessLimits { logins_remembered_max: 2, ..AccessLimits::default() };
        let mut cache = Cache::new(limits).unwrap();
        let keys = ["a", "b", "c"].map(|password| cache.key("ana", password.as_bytes(), "hash"));
        keys.iter().for_each(|key| cache.remember(*key));
        assert_eq!(keys.map(|key| cache.knows(&key)), [true, true, false]);
        assert!(!cache.knows(&cache.key("ana", b"a", "another hash")), "a changed password is checked anew");
        cache.clear();
        assert!(!cache.knows(&keys[0]));
    }
}
