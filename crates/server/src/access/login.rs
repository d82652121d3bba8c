//! Logs clients in: checks a client's credentials and assigns its connection to a user.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin::topic::Waiter;
use dunlin::wire::ErrorCode;
use dunlin::{Node, Refused, steady_ns};
use sha2::{Digest as _, Sha256};

use super::checker::CheckDecision;
use super::secret::{self, TokenDigest};
use super::throttle::ClientIp;
use super::users::UsersError;
use super::{Access, AccessLimits, Account, Credentials, lock};

/// If the user is unknown, the password is verified against this hash. A login thus takes the same time for known and
/// unknown users, and does not reveal which users exist.
const PLACEHOLDER_HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5IGlzIGhlcmU$c+rPpcnM5OUSMkz0hZfLkbFyAtEDPoU5KTHVK8Px1J4";

/// A logged-in connection of a user. The connection counts as logged in until the `Login` is dropped.
#[derive(Debug)]
pub(crate) struct Login {
    access: Arc<Access>,
    account: Arc<Account>,
    proof: Proof,
    /// The generation (version number) of the users file at the login's last check.
    generation: u64,
}

/// The credential with which the user logged in, as it is written in the users file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Proof {
    Token(TokenDigest),
    /// The hash of the password.
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
    /// Takes the result; returns `None` while the result is not known. The users file may have changed since the
    /// credentials were checked, so a successful login is checked again.
    pub(crate) fn take(&self) -> Option<LoginResult> {
        lock(&self.0).take().map(revalidate)
    }
}

/// Checks that a successful login is still valid. If it is not, returns the refusal instead.
fn revalidate(login: LoginResult) -> LoginResult {
    login.and_then(|login| login.check_validity().map(|()| login))
}

impl Access {
    /// Starts a login. Notifies `waiter` with `token` when the result is known, possibly before this function returns.
    pub(crate) fn start_login(
        self: &Arc<Access>,
        credentials: Credentials,
        tenant: &str,
        from: ClientIp,
        (waiter, token): (Arc<Waiter>, u32),
    ) -> PendingLogin {
        let result = Arc::new(Mutex::new(None));
        let shared_result = Arc::clone(&result);
        self.check(credentials, tenant, from, move |login| {
            *lock(&shared_result) = Some(login);
            waiter.notify(token);
        });
        PendingLogin(result)
    }

    /// Logs in, and waits for the result.
    pub(crate) async fn log_in(self: &Arc<Access>, credentials: Credentials, from: ClientIp) -> LoginResult {
        let (send, receive) = tokio::sync::oneshot::channel();
        self.check(credentials, "", from, move |login| drop(send.send(login)));
        let aborted = |_| Err(Refused::new(ErrorCode::Internal, "the verification was aborted"));
        revalidate(receive.await.unwrap_or_else(aborted))
    }

    /// Checks the credentials and calls `done` with the result, on the caller's thread or on another.
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
            Credentials::Malformed => done(Err(self.refuse(from, "malformed credentials"))),
            Credentials::Token(token) => {
                let digest = secret::digest(&token);
                let known = self.users().user_by_token(&digest).map(str::to_owned);
                // A token has 256 random bits, so it cannot be guessed. A valid token is therefore accepted even while
                // failures delay other logins from the same address.
                done(match known {
                    Some(name) => self.complete_login(&name, Proof::Token(digest), &tenant, from),
                    None => Err(self.refuse(from, "unknown token")),
                });
            }
            Credentials::Certificate(names) => {
                let users = self.users();
                done(match users.user_by_certificate(&names) {
                    Some((name, matching)) => {
                        self.complete_login(name, Proof::Certificate(matching.to_owned()), &tenant, from)
                    }
                    // A certificate cannot be guessed. A failed login with a certificate is therefore not counted as a
                    // failure, and delays no later login.
                    None => {
                        self.counts.failed.fetch_add(1, Ordering::Relaxed);
                        tracing::warn!(?names, "login failed: the certificate belongs to no user");
                        Err(Refused::new(ErrorCode::Unauthenticated, "the certificate belongs to no user"))
                    }
                });
            }
            Credentials::Nkey(key) => {
                let known = self.users().user_by_nkey(&key).map(str::to_owned);
                done(match known {
                    Some(name) => self.complete_login(&name, Proof::Nkey(key), &tenant, from),
                    None => Err(self.refuse(from, "unknown nkey")),
                });
            }
            Credentials::Password { user, password } => match self.throttle_refusal(from, &user) {
                Some(refused) => done(Err(refused)),
                None => self.check_password(user, password, tenant, from, done),
            },
        }
    }

    /// Returns a refusal while earlier failures delay logins of this user from this address; otherwise `None`.
    fn throttle_refusal(&self, from: ClientIp, user: &str) -> Option<Refused> {
        let delay_ns = lock(&self.throttle).delay_ns(from, user, steady_ns());
        (delay_ns > 0).then(|| {
            self.counts.throttled.fetch_add(1, Ordering::Relaxed);
            let numbers = [delay_ns / 1_000_000 + 1, 0, 0];
            Refused { numbers, ..Refused::new(ErrorCode::RateLimit, "failed logins") }
        })
    }

    /// Refuses a login whose credentials name no user. Counts this as a failure of the address, except while earlier
    /// failures delay logins from this address.
    fn refuse(&self, from: ClientIp, why: &str) -> Refused {
        self.throttle_refusal(from, "").unwrap_or_else(|| self.record_failure(from, "", why))
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
        let key = lock(&self.cache).key(&user, &password, hash.as_deref().unwrap_or(PLACEHOLDER_HASH));
        if let Some(hash) = &hash
            && lock(&self.cache).contains(&key)
        {
            return done(self.complete_login(&user, Proof::Password(hash.clone()), &tenant, from));
        }
        let access = Arc::clone(self);
        self.checker.run(from, move |decision| {
            if decision == CheckDecision::Rejected {
                let waiting_max = access.limits.logins_waiting_max.into();
                return done(Err(Refused::limit("access.logins_waiting_max", waiting_max)));
            }
            // Failures may have been recorded while this job was queued. The login is then refused without a check, and
            // the refusal is not counted as another failure.
            if let Some(refused) = access.throttle_refusal(from, &user) {
                return done(Err(refused));
            }
            let is_correct = secret::verify(hash.as_deref().unwrap_or(PLACEHOLDER_HASH), &password);
            done(match hash {
                Some(hash) if is_correct => {
                    lock(&access.cache).insert(key);
                    access.complete_login(&user, Proof::Password(hash), &tenant, from)
                }
                _ => Err(access.record_failure(from, &user, "wrong user or password")),
            });
        });
    }

    /// Creates the login of a user whose credentials were correct.
    fn complete_login(
        self: &Arc<Access>,
        name: &str,
        proof: Proof,
        tenant: &str,
        from: ClientIp,
    ) -> LoginResult {
        let generation = self.generation();
        let Some(account) = self.account(name) else {
            return Err(self.record_failure(from, name, "unknown user"));
        };
        match proof {
            Proof::Password(_) => lock(&self.throttle).record_password_login(from, name, steady_ns()),
            _ => lock(&self.throttle).record_other_login(from),
        }
        if !tenant.is_empty() && tenant != account.tenant().name() {
            return Err(Refused::new(ErrorCode::TenantUnknown, tenant));
        }
        account.tenant().add_connection()?;
        if let Err(refused) = account.quota.add_connection() {
            account.tenant().quota.remove_connection();
            return Err(refused);
        }
        let login = Arc::new(Login { access: Arc::clone(self), account, proof, generation });
        // The users file may have changed since the credentials were compared.
        login.check_validity()?;
        self.counts.accepted.fetch_add(1, Ordering::Relaxed);
        Ok(login)
    }

    /// Counts and logs a failed login. The log contains the user's name, if it is a valid name, but no other part of
    /// the credentials.
    fn record_failure(&self, from: ClientIp, user: &str, why: &str) -> Refused {
        self.counts.failed.fetch_add(1, Ordering::Relaxed);
        lock(&self.throttle).record_failure(from, user, steady_ns());
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

    /// The generation (version number) of the users file at the last check. While this generation is still current,
    /// [`Admission`](super::Admission) does not check the login again.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Waits for the result of `work`. Fails as soon as the user loses access.
    pub(crate) async fn run_while_valid<T>(
        &self,
        work: impl Future<Output = Result<T, Refused>>,
    ) -> Result<T, Refused> {
        let mut changes = dunlin::User::changes(&*self.account);
        let access_lost = async {
            loop {
                self.check_validity()?;
                // The sender of these notifications is dropped only when the server ends.
                if changes.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        tokio::select! {
            // Polls for the end of the login first. When the login has ended, `work` may also fail as a result, but the
            // client must receive the reason for the end of the login.
            biased;
            ended = access_lost => ended,
            done = work => done,
        }
    }

    /// The node with this user's permissions.
    pub(crate) fn node(&self, node: &Node) -> Node {
        node.with_user(Arc::clone(&self.account) as Arc<dyn dunlin::User>)
    }

    /// Checks that the users file still contains the credential of this login.
    pub(crate) fn check_validity(&self) -> Result<(), Refused> {
        let users = self.access.users();
        let invalid = |why: &str| {
            let text = format!("user {} {why}", self.account.name());
            Err(Refused::new(ErrorCode::Unauthenticated, text))
        };
        let Some(user) = users.by_name.get(self.account.name()) else { return invalid("was removed") };
        if user.tenant != self.account.tenant().name() {
            return invalid("belongs to another tenant now");
        }
        if self.account.is_closed() {
            return invalid("was removed and created again");
        }
        let has_credential = match &self.proof {
            Proof::Token(digest) => user.tokens.contains(digest),
            Proof::Password(hash) => user.password.as_ref() == Some(hash),
            Proof::Certificate(name) => user.certificates.contains(name),
            Proof::Nkey(key) => user.nkeys.contains(key),
        };
        if has_credential { Ok(()) } else { invalid("has other credentials now") }
    }
}

impl Drop for Login {
    fn drop(&mut self) {
        self.account.quota.remove_connection();
        self.account.tenant().quota.remove_connection();
    }
}

/// Caches passwords that were verified, so that connections with the same password need only one verification. The
/// cache stores keyed hashes, and the key of the hashes never leaves the process.
#[derive(Debug)]
pub(super) struct PasswordCache {
    key: TokenDigest,
    entries: HashMap<TokenDigest, Instant>,
    limits: AccessLimits,
}

impl PasswordCache {
    pub(super) fn new(limits: AccessLimits) -> Result<PasswordCache, UsersError> {
        Ok(PasswordCache {
            key: secret::random().map_err(UsersError::from_secret_error)?,
            entries: HashMap::new(),
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

    fn contains(&self, key: &TokenDigest) -> bool {
        self.entries.get(key).is_some_and(|since| since.elapsed() < self.age_max())
    }

    fn insert(&mut self, key: TokenDigest) {
        if self.entries.len() >= self.limits.logins_remembered_max as usize {
            let age_max = self.age_max();
            self.entries.retain(|_, since| since.elapsed() < age_max);
        }
        if self.entries.len() < self.limits.logins_remembered_max as usize {
            self.entries.insert(key, Instant::now());
        }
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
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
        assert!(secret::check_hash(PLACEHOLDER_HASH).is_ok() && !secret::verify(PLACEHOLDER_HASH, b"nobody"));
    }

    #[test]
    fn correct_passwords_are_cached_up_to_the_limit() {
        let limits = AccessLimits { logins_remembered_max: 2, ..AccessLimits::default() };
        let mut cache = PasswordCache::new(limits).unwrap();
        let keys = ["a", "b", "c"].map(|password| cache.key("ana", password.as_bytes(), "hash"));
        keys.iter().for_each(|key| cache.insert(*key));
        assert_eq!(keys.map(|key| cache.contains(&key)), [true, true, false]);
        assert!(
            !cache.contains(&cache.key("ana", b"a", "another hash")),
            "a changed password is checked anew"
        );
        cache.clear();
        assert!(!cache.contains(&keys[0]));
    }
}
