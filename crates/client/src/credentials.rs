//! What proves to a node who a client is.

/// A token, or a user and a password, as they are sent; empty where the node does not ask. What it holds is never printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Credentials(Vec<u8>);

impl Credentials {
    /// A token that `dunlin user token` made.
    pub fn token(token: impl Into<Vec<u8>>) -> Credentials {
        Credentials(token.into())
    }

    /// A user's password.
    pub fn password(user: &str, password: &[u8]) -> Credentials {
        Credentials([user.as_bytes(), b"\0", password].concat())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "…" })
    }
}
