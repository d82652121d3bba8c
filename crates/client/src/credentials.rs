//! The credentials with which a client logs in to a node.

/// The token, or the user and password, with which a client logs in. Empty if the node requires no login. `Debug` does
/// not print the secret.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Credentials(Vec<u8>);

impl Credentials {
    /// Makes credentials from a token that `dunlin user token` created.
    pub fn token(token: impl Into<Vec<u8>>) -> Credentials {
        Credentials(token.into())
    }

    /// Makes credentials from a user's name and password.
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
