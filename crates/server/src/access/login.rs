//! Logins: checks a client's credentials and makes its connection belong to a user.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin::topic::Waiter;
use dunlin::wire::ErrorCode;
use dunlin::{Node, Refused, now_ns};
use sha2::{Digest as _, Sha256};

use super::checker::CheckDecision;
use super::secret::{self, TokenDigest};
use super::throttle::ClientIp;
use super::users::UsersError;
use super::{Access, AccessLimits, Account, Credentials, lock};

/// The hash that an unknown user's password is verified against, so that the time does not reveal which users exist.
const NOBODYS: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5IGlzIGhlcmU$c+rPpcnM5OUSMkz0hZfLkbFyAtEDPoU5KTHVK8Px1J4";

/// A logged-in connection of a user. The connection counts as logged in until this is dropped.
#[derive(Debug)]
pub(crate) struct Login {
    access: Arc<Access>,
    account: Arc<Account>,
    proof: Proof,
    /// The generation of the users file with which the login was checked last.
    generation: u64,
}

/// The credential with which the user logged in, as it is written in the users file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Proof {
    Token(TokenDigest),
    /// The hash.
    Password(String),
    /// The matching name of the certificate.
    Certificate(String),
    /// The public key.
    Nkey(String),
}

/// The result of a login.
type LoginResult = Result<Arc<Login>, Refused>;

/// A login whose result is not known yet.
#[derive(Debug)]
pub(crate) struct PendingLogin(Arc<Mutex<Option<LoginResult>>>);

impl PendingLogin {
    /// Takes the result; `None` before it is known. The result is checked against the users file again, because the
    /// file may have changed since the login.
    pub(crate) fn take(&self) -> Option<LoginResult> {
        lock(&self.0).take().map(still)
    }
}

/// Checks that a successful login is still valid; otherwise returns the refusal.
fn still(login: LoginResult) -> LoginResult {
    login.and_then(|login| login.validity().map(|()| login))
}

impl Access {
    /// Starts a login. `waiter` is notified with `token` when the result is known, which may be at once.
    pub(crate) fn log_in_waking(
        self: &Arc<Access>,
        credentials: Credentials,
        tenant: &str,
        from: ClientIp,
        (waiter, token): (Arc<Waiter>, u32),
    ) -> PendingLogin {
        let answer = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&answer);
        self.check(credentials, tenant, from, move |login| {
            *lock(&kept) = Some(login);
            waiter.notify(token);
        });
        PendingLogin(answer)
    }

    /// Logs in, and waits for the result.
    pub(crate) async fn log_in(self: &Arc<Access>, credentials: Credentials, from: ClientIp) -> LoginResult {
        let (send, receive) = tokio::sync::oneshot::channel();
        self.check(credentials, "", from, move |login| drop(send.send(login)));
        let given_up = |_| Err(Refused::new(ErrorCode::Internal, "the verification was aborted"));
        still(receive.await.unwrap_or_else(given_up))
    }

    /// Checks the credentials, and calls `done` with the result, on this thread or another.
    fn check(
        self: &Arc<Access>,
        credentials: Credentials,
        tenant: &str,
        from: ClientIp,
        done: impl FnOnce(LoginResult) + Send + 'static,
    ) {
        let tenant = tenant.to_owned();
        match credentials {
            Credentials::None => {
                done(Err(Refused::new(ErrorCode::Unauthenticated, "this node requires credentials")));
            }
            Credentials::Unsound => done(Err(self.refuse(from, "malformed credentials"))),
            Credentials::Token(token) => {
                let digest = secret::digest(&token);
                let known = self.users().of_token(&digest).map(str::to_owned);
                // A token has 256 random bits and cannot be guessed. A valid token is therefore accepted even while
                // failed logins delay the address.
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
                    // Certificates cannot be guessed. A failed login with a certificate is therefore not counted, and
                    // delays no other login.
                    None => {
                        self.counts.failed.fetch_add(1, Ordering::Relaxed);
                        tracing::warn!(?said, "login failed: the certificate belongs to no user");
                        Err(Refused::new(ErrorCode::Unauthenticated, "the certificate belongs to no user"))
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

    /// Refuses a login without checking it while earlier failures delay this user and address.
    fn wait(&self, from: ClientIp, user: &str) -> Option<Refused> {
        let wait_ns = lock(&self.throttle).wait_ns(from, user, now_ns());
        (wait_ns > 0).then(|| {
            self.counts.throttled.fetch_add(1, Ordering::Relaxed);
            let numbers = [wait_ns / 1_000_000 + 1, 0, 0];
            Refused { numbers, ..Refused::new(ErrorCode::RateLimit, "failed logins") }
        })
    }

    /// Refuses a login that names no user. Counts the failure, unless earlier failures still delay the login.
    fn refuse(&self, from: ClientIp, why: &str) -> Refused {
        self.wait(from, "").unwrap_or_else(|| self.fail(from, "", why))
    }

    fn check_password(
        self: &Arc<Access>,
        user: String,
        password: Vec<u8>,
        tenant: String,
        from: ClientIp,
        done: impl FnOnce(LoginResult) + Send + 'static,
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
            if turn == CheckDecision::TurnedAway {
                let waiting_max = access.limits.logins_waiting_max.into();
                return done(Err(Refused::limit("access.logins_waiting_max", waiting_max)));
            }
            // If failures have come while this job waited, the login is refused without a check and does not
            // count as a failure.
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

    /// Completes the login of a user whose credential matched.
    fn enter(self: &Arc<Access>, name: &str, proof: Proof, tenant: &str, from: ClientIp) -> LoginResult {
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
        // The users file may have changed since the credential was compared.
        login.validity()?;
        self.counts.accepted.fetch_add(1, Ordering::Relaxed);
        Ok(login)
    }

    /// Counts and logs a failed login. The log has the user's name if the name is valid, and nothing else of the
    /// credentials.
    fn fail(&self, from: ClientIp, user: &str, why: &str) -> Refused {
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

    /// The generation of the users file at the last check. While it is current, [`Admission`](super::Admission) need
    /// not check the login again.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Waits for `work`; fails as soon as the user loses access.
    pub(crate) async fn while_let_in<T>(
        &self,
        work: impl Future<Output = Result<T, Refused>>,
    ) -> Result<T, Refused> {
        let mut changes = dunlin::User::changes(&*self.account);
        let shut_out = async {
            loop {
                self.validity()?;
                // The sender of changes was dropped, because the server ends.
                if changes.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        tokio::select! {
            // Checks the login first: if it has ended, the client receives that reason and not a later one.
            biased;
            ended = shut_out => ended,
            done = work => done,
        }
    }

    /// The node with this user's permissions.
    pub(crate) fn node(&self, node: &Node) -> Node {
        node.used_by(Arc::clone(&self.account) as Arc<dyn dunlin::User>)
    }

    /// Checks that the users file still has the credential of this login.
    pub(crate) fn validity(&self) -> Result<(), Refused> {
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
            return gone("was removed and created again");
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

/// Caches verified passwords, so that many connections or requests with one password cost one verification.
/// The cache's keys are keyed hashes, whose key never leaves the process.
#[derive(Debug)]
pub(super) struct PasswordCache {
    key: TokenDigest,
    known: HashMap<TokenDigest, Instant>,
    limits: AccessLimits,
}

impl PasswordCache {
    pub(super) fn new(limits: AccessLimits) -> Result<PasswordCache, UsersError> {
        Ok(PasswordCache {
            key: secret::random().map_err(UsersError::unlikely)?,
            known: HashMap::new(),
            limits,
        })
    }

    fn key(&self, user: &str, password: &[u8], hash: &str) -> TokenDigest {
        let mut sum = Sha256::new();
        for part in [&self.key[..], user.as_bytes(), hash.as_bytes(), password] {
            sum.update((part.len() as u64).to_le_bytes());
            sum.update(part);
        }
        sum.finalize().into()
    }

    fn knows(&self, key: &TokenDigest) -> bool {
        self.known.get(key).is_some_and(|since| since.elapsed() < self.age_max())
    }

    fn remember(&mut self, key: TokenDigest) {
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
    fn placeholder_hash_for_unknown_users_matches_no_password() {
        assert!(secret::check_hash(NOBODYS).is_ok() && !secret::verify(NOBODYS, b"nobody"));
    }

    #[test]
    fn correct_passwords_are_cached_up_to_the_limit() {
        let limits = AccessLimits { logins_remembered_max: 2, ..AccessLimits::default() };
        let mut cache = PasswordCache::new(limits).unwrap();
        let keys = ["a", "b", "c"].map(|password| cache.key("ana", password.as_bytes(), "hash"));
        keys.iter().for_each(|key| cache.remember(*key));
        assert_eq!(keys.map(|key| cache.knows(&key)), [true, true, false]);
        assert!(!cache.knows(&cache.key("ana", b"a", "another hash")), "a changed password is checked anew");
        cache.clear();
        assert!(!cache.knows(&keys[0]));
    }
}
