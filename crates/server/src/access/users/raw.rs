//! Defines the content of a users file as it is parsed from TOML, before it is validated.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

type Texts = Vec<Spanned<String>>;

/// The content of a users file before it is validated.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawFile {
    #[serde(default)]
    pub(super) tenants: BTreeMap<Spanned<String>, RawTenant>,
    #[serde(default)]
    pub(super) users: BTreeMap<Spanned<String>, RawUser>,
}

/// A tenant in a users file before it is validated.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTenant {
    pub(super) subjects: Option<Texts>,
    #[serde(default)]
    pub(super) deny: Texts,
    pub(super) limits: Option<RawTenantLimits>,
}

/// A tenant's limits in a users file before they are validated.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTenantLimits {
    pub(super) connections: Option<Spanned<u64>>,
    pub(super) publish_records_per_s: Option<Spanned<u64>>,
    pub(super) publish_bytes_per_s: Option<Spanned<u64>>,
    pub(super) topics: Option<Spanned<u64>>,
    pub(super) topic_idle: Option<Spanned<String>>,
    pub(super) memory_bytes: Option<Spanned<u64>>,
}

/// A user in a users file before it is validated.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUser {
    pub(super) tenant: Option<Spanned<String>>,
    pub(super) password: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) tokens: Texts,
    #[serde(default)]
    pub(super) certificates: Texts,
    #[serde(default)]
    pub(super) nkeys: Texts,
    #[serde(default)]
    pub(super) publish: Texts,
    #[serde(default)]
    pub(super) publish_deny: Texts,
    #[serde(default)]
    pub(super) subscribe: Texts,
    #[serde(default)]
    pub(super) subscribe_deny: Texts,
    #[serde(default)]
    pub(super) create: Texts,
    #[serde(default)]
    pub(super) create_deny: Texts,
    #[serde(default)]
    pub(super) delete: Texts,
    #[serde(default)]
    pub(super) delete_deny: Texts,
    #[serde(default)]
    pub(super) groups: Texts,
    #[serde(default)]
    pub(super) groups_deny: Texts,
    #[serde(default)]
    pub(super) keys: Texts,
    #[serde(default)]
    pub(super) keys_read: Texts,
    #[serde(default)]
    pub(super) keys_deny: Texts,
    #[serde(default)]
    pub(super) tasks: Texts,
    #[serde(default)]
    pub(super) surveys: bool,
    pub(super) limits: Option<RawUserLimits>,
}

/// A user's limits in a users file before they are validated.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawUserLimits {
    pub(super) connections: Option<Spanned<u64>>,
    pub(super) publish_records_per_s: Option<Spanned<u64>>,
    pub(super) publish_bytes_per_s: Option<Spanned<u64>>,
}
