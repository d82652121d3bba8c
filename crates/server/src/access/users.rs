//! Parses and validates the users file, which defines tenants and users with their credentials and permissions
//! (`docs/security.md`).

mod raw;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dunlin::topic::Pattern;
use dunlin::{KeyPattern, KeyRule, Permissions, SubjectRule, TaskRule, WorkScope};
use toml::Spanned;

use super::nkey;
use super::secret::{self, SecretError, TokenDigest};
use crate::whole_file::read_file;
use raw::{RawFile, RawTenant, RawUser};

/// The tenant of each user for whom the users file names no tenant. By default, the permissions of this tenant's users
/// may contain any subject.
pub const TENANT_DEFAULT: &str = "default";
const NAME_BYTES_MAX: usize = 64;
/// Largest accepted value of `topic_idle`: a hundred years.
const TOPIC_IDLE_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3_600);
/// The first line of a users file that ends with [`LAST_LINE`].
const FIRST_LINE: &str = "# This file is complete if it has the line: # end of users";
/// The last line of a complete users file. If the file has [`FIRST_LINE`] but lacks this line, it is truncated.
const LAST_LINE: &str = "# end of users";

/// The error for an invalid users file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct UsersError {
    /// The file's name and, if known, the number of the faulty line.
    pub place: String,
    /// Description of the fault.
    pub why: String,
}

impl UsersError {
    /// Converts an error of hashing or creating a secret.
    pub(super) fn from_secret_error(error: SecretError) -> UsersError {
        UsersError { place: "initializing authentication".to_owned(), why: error.to_string() }
    }
}

/// The users and tenants of a validated users file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UserDirectory {
    pub(crate) by_name: BTreeMap<String, AccessUser>,
    pub(crate) tenants: BTreeMap<String, AccessTenant>,
    by_token: HashMap<TokenDigest, String>,
    /// The name of the user for each certificate name that the users file accepts.
    by_certificate: HashMap<String, String>,
    by_nkey: HashMap<String, String>,
}

/// A user in the users file: credentials, permissions and limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccessUser {
    pub(crate) tenant: String,
    /// The Argon2id hash of the user's password; `None` if the user has no password.
    pub(crate) password: Option<String>,
    pub(crate) tokens: Vec<TokenDigest>,
    /// Names of accepted client certificates: subjects or alternative names.
    pub(crate) certificates: Vec<String>,
    /// Accepted NATS public keys.
    pub(crate) nkeys: Vec<String>,
    pub(crate) permissions: Arc<Permissions>,
    pub(crate) limits: UserLimits,
}

/// A tenant in the users file: the subjects to which its users are restricted, and the limits that its users share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccessTenant {
    pub(crate) bounds: SubjectRule,
    pub(crate) limits: TenantLimits,
}

/// The limits of one user: connections and publish rates. A limit of `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UserLimits {
    /// Maximum number of simultaneous connections.
    pub connections: Option<u64>,
    /// Maximum number of records published per second.
    pub publish_records_per_s: Option<u64>,
    /// Maximum number of bytes of records published per second.
    pub publish_bytes_per_s: Option<u64>,
}

/// The limits that all users of a tenant share. A limit of `None` means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// Limits for the connections and publish rates of all the tenant's users together.
    pub together: UserLimits,
    /// Maximum number of existing topics that the tenant's users created.
    pub topics: Option<u64>,
    /// An automatically created topic is deleted if, for this time, no record was published to it and no subscriber
    /// read it.
    pub topic_idle: Option<Duration>,
    /// Maximum memory of the topics that the tenant's users create, bytes. The tenant's connections together may take
    /// the same amount in addition. If `None`, [`tenant_bytes_max`](dunlin::NodeLimits::tenant_bytes_max) applies.
    pub memory_bytes: Option<u64>,
}

impl UserDirectory {
    /// Reads and validates a users file.
    pub fn read(path: &Path) -> Result<UserDirectory, UsersError> {
        // Refuses an empty file: some editors empty the file before they write the new text, and if the disk is full,
        // the file stays empty.
        let is_empty =
            || io::Error::other("the file is empty; a file without users needs at least `[users]`");
        let text = read_file(path)
            .and_then(|bytes| if bytes.is_empty() { Err(is_empty()) } else { Ok(bytes) })
            .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other))
            .map_err(|error| UsersError { place: path.display().to_string(), why: error.to_string() })?;
        UserDirectory::parse(&text, &path.display().to_string())
    }

    /// Parses and validates a users file; `name` is the file's name in errors.
    pub fn parse(text: &str, name: &str) -> Result<UserDirectory, UsersError> {
        let reader = Reader { text, name };
        let mut lines = text.lines();
        if lines.next() == Some(FIRST_LINE) && !lines.any(|line| line == LAST_LINE) {
            let why = format!(
                "the file is cut off or being written: it lacks the line {LAST_LINE:?} that its first line \
                     announces"
            );
            return Err(UsersError { place: name.to_owned(), why });
        }
        let raw: RawFile = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| reader.line(span.start));
            UsersError { place: format!("{name}:{line}"), why: error.message().replace('\n', " ") }
        })?;
        reader.users(raw)
    }

    /// Adds the first and last line by which [`parse`](UserDirectory::parse) detects a truncated users file. Both lines
    /// are optional: a file without them is accepted.
    pub fn with_end_line(text: &str) -> String {
        let users = text.lines().filter(|line| ![FIRST_LINE, LAST_LINE].contains(line));
        let lines = std::iter::once(FIRST_LINE).chain(users).chain([LAST_LINE]);
        lines.flat_map(|line| [line, "\n"]).collect()
    }

    /// Returns the name of the user who has a token with this digest; `None` if no user has such a token.
    pub(crate) fn user_by_token(&self, digest: &TokenDigest) -> Option<&str> {
        let (stored, name) = self.by_token.get_key_value(digest)?;
        secret::digests_equal(stored, digest).then_some(name.as_str())
    }

    /// Finds the user who may log in with one of these certificate names. Returns the user's name and the matching
    /// certificate name; `None` if no name matches.
    pub(crate) fn user_by_certificate<'c>(&self, names: &'c [String]) -> Option<(&str, &'c str)> {
        names.iter().find_map(|text| Some((self.by_certificate.get(text)?.as_str(), text.as_str())))
    }

    /// Returns the name of the user with this NATS public key.
    pub(crate) fn user_by_nkey(&self, key: &str) -> Option<&str> {
        self.by_nkey.get(key).map(String::as_str)
    }

    /// Whether any user has a NATS public key.
    pub(crate) fn has_nkeys(&self) -> bool {
        !self.by_nkey.is_empty()
    }

    /// Returns every user, ordered by name.
    pub fn list(&self) -> impl Iterator<Item = UserInfo<'_>> {
        self.by_name.iter().map(|(name, user)| UserInfo {
            name,
            tenant: &user.tenant,
            password: user.password.is_some(),
            tokens: user.tokens.len(),
            certificates: &user.certificates,
            nkeys: &user.nkeys,
            permissions: &user.permissions,
        })
    }
}

/// A user as shown to operators, without passwords and tokens.
#[derive(Debug, Clone, Copy)]
pub struct UserInfo<'u> {
    /// The user's name.
    pub name: &'u str,
    /// The user's tenant.
    pub tenant: &'u str,
    /// Whether the user has a password.
    pub password: bool,
    /// Number of the user's tokens.
    pub tokens: usize,
    /// Names of accepted client certificates: subjects or alternative names.
    pub certificates: &'u [String],
    /// Accepted NATS public keys.
    pub nkeys: &'u [String],
    /// The user's permissions.
    pub permissions: &'u Permissions,
}

/// Whether the text may be the name of a user or tenant.
pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@".contains(&byte);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(plain)
}

const NAME_RULE: &str = "a name is 1 to 64 letters, digits, or one of _-.@";

struct Reader<'a> {
    text: &'a str,
    name: &'a str,
}

impl Reader<'_> {
    fn users(&self, raw: RawFile) -> Result<UserDirectory, UsersError> {
        let mut users = UserDirectory::default();
        for (name, tenant) in raw.tenants {
            let span = name.span().start;
            let name = self.parse_name(name)?;
            users.tenants.insert(name.clone(), self.tenant(&name, span, tenant)?);
        }
        users.tenants.entry(TENANT_DEFAULT.to_owned()).or_insert_with(|| AccessTenant {
            bounds: SubjectRule { allow: all_subjects(), deny: Vec::new() },
            limits: TenantLimits::default(),
        });
        for (name, user) in raw.users {
            let at = name.span().start;
            let name = self.parse_name(name)?;
            let user = self.user(&name, user, at, &users.tenants)?;
            for token in &user.tokens {
                if let Some(other) = users.by_token.insert(*token, name.clone()) {
                    return Err(self.error(at, format!("users {name} and {other} have the same token")));
                }
            }
            for certificate in &user.certificates {
                if let Some(other) = users.by_certificate.insert(certificate.clone(), name.clone()) {
                    return Err(self.error(at, format!("users {name} and {other} have the same certificate")));
                }
            }
            for nkey in &user.nkeys {
                if let Some(other) = users.by_nkey.insert(nkey.clone(), name.clone()) {
                    return Err(self.error(at, format!("users {name} and {other} have the same nkey")));
                }
            }
            users.by_name.insert(name, user);
        }
        Ok(users)
    }

    fn tenant(&self, name: &str, at: usize, raw: RawTenant) -> Result<AccessTenant, UsersError> {
        let own = Pattern::parse(&format!("{name}.>"));
        let allow = match raw.subjects {
            Some(subjects) => self.patterns(subjects)?,
            None => vec![own.map_err(|_| {
                self.error(
                    at,
                    format!("{name}.> is not a valid pattern: set the patterns of the tenant's subjects"),
                )
            })?],
        };
        let limits = raw.limits.unwrap_or_default();
        let topic_idle = limits.topic_idle.map(|text| {
            let read = humantime::parse_duration(text.get_ref()).ok();
            read.filter(|idle| (Duration::from_millis(1)..=TOPIC_IDLE_MAX).contains(idle)).ok_or_else(|| {
                let why = "topic_idle: expected a duration like 10m, from 1ms to 100 years".to_owned();
                self.error(text.span().start, why)
            })
        });
        Ok(AccessTenant {
            bounds: SubjectRule { allow, deny: self.patterns(raw.deny)? },
            limits: TenantLimits {
                together: UserLimits {
                    connections: self.check_positive("connections", limits.connections)?,
                    publish_records_per_s: self
                        .check_positive("publish_records_per_s", limits.publish_records_per_s)?,
                    publish_bytes_per_s: self
                        .check_positive("publish_bytes_per_s", limits.publish_bytes_per_s)?,
                },
                topics: self.check_positive("topics", limits.topics)?,
                topic_idle: topic_idle.transpose()?,
                memory_bytes: self.check_positive("memory_bytes", limits.memory_bytes)?,
            },
        })
    }

    fn user(
        &self,
        user: &str,
        raw: RawUser,
        at: usize,
        tenants: &BTreeMap<String, AccessTenant>,
    ) -> Result<AccessUser, UsersError> {
        let (named_at, name) = match raw.tenant {
            Some(name) => (name.span().start, name.into_inner()),
            None => (at, TENANT_DEFAULT.to_owned()),
        };
        let Some(tenant) = tenants.get(&name) else {
            return Err(self.error(named_at, format!("there is no tenant {name:?}: add [tenants.{name}]")));
        };
        let password = raw.password.map(|hash| match secret::check_hash(hash.get_ref()) {
            Ok(()) => Ok(hash.into_inner()),
            Err(error) => Err(self.error(hash.span().start, format!("password of user {user}: {error}"))),
        });
        let read = |token: Spanned<String>| {
            let expected =
                "tokens: expected sha256: and 64 hexadecimal digits, as `dunlin user token` writes them";
            secret::parse_digest(token.get_ref())
                .ok_or_else(|| self.error(token.span().start, expected.to_owned()))
        };
        let tokens = raw.tokens.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let read = |text: Spanned<String>| match text.get_ref().trim() {
            "" => Err(self.error(
                text.span().start,
                "certificates: expected a subject or an alternative name".to_owned(),
            )),
            trimmed => Ok(trimmed.to_owned()),
        };
        let certificates = raw.certificates.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let read = |text: Spanned<String>| match nkey::public_key(text.get_ref()) {
            Some(_) => Ok(text.into_inner()),
            None => Err(self.error(
                text.span().start,
                "nkeys: expected the public key of a user, 56 letters and digits that begin with U"
                    .to_owned(),
            )),
        };
        let nkeys = raw.nkeys.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let rule = |allow, deny| Ok(SubjectRule { allow: self.patterns(allow)?, deny: self.patterns(deny)? });
        let permissions = Permissions {
            tenant: tenant.bounds.clone(),
            publish: rule(raw.publish, raw.publish_deny)?,
            subscribe: rule(raw.subscribe, raw.subscribe_deny)?,
            create: rule(raw.create, raw.create_deny)?,
            delete: rule(raw.delete, raw.delete_deny)?,
            groups: rule(raw.groups, raw.groups_deny)?,
            keys: KeyRule { allow: keys(raw.keys), read: keys(raw.keys_read), deny: keys(raw.keys_deny) },
            tasks: self.task_rule(&name, raw.tasks)?,
            surveys: raw.surveys,
        };
        let limits = raw.limits.unwrap_or_default();
        Ok(AccessUser {
            tenant: name,
            password: password.transpose()?,
            tokens,
            certificates,
            nkeys,
            permissions: Arc::new(permissions),
            limits: UserLimits {
                connections: self.check_positive("connections", limits.connections)?,
                publish_records_per_s: self
                    .check_positive("publish_records_per_s", limits.publish_records_per_s)?,
                publish_bytes_per_s: self
                    .check_positive("publish_bytes_per_s", limits.publish_bytes_per_s)?,
            },
        })
    }

    fn task_rule(&self, tenant: &str, texts: Vec<Spanned<String>>) -> Result<TaskRule, UsersError> {
        let mut rule = TaskRule { tenant: tenant.to_owned(), ..TaskRule::default() };
        let mut of_tenants = BTreeSet::new();
        for text in texts {
            match text.get_ref().as_str() {
                "submit" => rule.submit = true,
                "work" => rule.work = WorkScope::All,
                "manage" => rule.manage = true,
                other => match other.strip_prefix("work:").filter(|tenant| is_name(tenant)) {
                    Some(tenant) => drop(of_tenants.insert(tenant.to_owned())),
                    None => {
                        let why =
                            format!("tasks: expected submit, work, work:TENANT or manage, not {other:?}");
                        return Err(self.error(text.span().start, why));
                    }
                },
            }
        }
        if rule.work == WorkScope::None && !of_tenants.is_empty() {
            rule.work = WorkScope::Of(of_tenants);
        }
        Ok(rule)
    }

    fn parse_name(&self, name: Spanned<String>) -> Result<String, UsersError> {
        if is_name(name.get_ref()) {
            return Ok(name.into_inner());
        }
        Err(self.error(name.span().start, format!("{:?}: {NAME_RULE}", name.get_ref())))
    }

    fn patterns(&self, texts: Vec<Spanned<String>>) -> Result<Vec<Pattern>, UsersError> {
        let read = |text: Spanned<String>| {
            Pattern::parse(text.get_ref()).map_err(|error| self.error(text.span().start, error.to_string()))
        };
        texts.into_iter().map(read).collect()
    }

    /// Refuses the number 0, because people could read it as "no limit" or as "a limit of zero".
    fn check_positive(&self, name: &str, number: Option<Spanned<u64>>) -> Result<Option<u64>, UsersError> {
        match number {
            Some(zero) if *zero.get_ref() == 0 => {
                Err(self.error(zero.span().start, format!("{name}: expected a whole number over 0")))
            }
            other => Ok(other.map(Spanned::into_inner)),
        }
    }

    fn error(&self, at: usize, why: String) -> UsersError {
        UsersError { place: format!("{}:{}", self.name, self.line(at)), why }
    }

    fn line(&self, at: usize) -> usize {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        before.iter().filter(|&&byte| byte == b'\n').count() + 1
    }
}

fn keys(texts: Vec<Spanned<String>>) -> Vec<KeyPattern> {
    texts.into_iter().map(|text| KeyPattern::new(text.into_inner())).collect()
}

fn all_subjects() -> Vec<Pattern> {
    Pattern::parse(">").into_iter().collect()
}

#[cfg(test)]
mod tests;
