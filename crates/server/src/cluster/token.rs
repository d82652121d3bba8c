//! Defines join tokens. A token contains a fingerprint, by which a new node recognizes the cluster, and a secret, for
//! which the cluster admits the node:
//!
//! ```text
//!  dunlin-join-1-<SHA-256 of the authority's certificate, hex>-<secret, 32 bytes hex>
//! ```

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::error::ClusterError;
use super::hex;

/// Prefix of every join token.
pub(super) const PREFIX: &str = "dunlin-join-1-";

/// A join token, with which a node verifies a cluster and joins it. One node can join with a token, or many if the
/// token is reusable.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Fingerprint of the certificate of the cluster's authority.
    pub(super) fingerprint: [u8; 32],
    pub(super) secret: [u8; 32],
}

impl JoinToken {
    pub(super) fn new(fingerprint: [u8; 32]) -> Result<JoinToken, ClusterError> {
        let mut secret = [0; 32];
        super::random(&mut secret)?;
        Ok(JoinToken { fingerprint, secret })
    }

    /// The digest of a token's secret. The cluster stores only this digest, with which nobody can join.
    pub(super) fn digest(secret: &[u8; 32]) -> String {
        hex::write(&Sha256::digest(secret))
    }
}

impl fmt::Display for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}-{}", hex::write(&self.fingerprint), hex::write(&self.secret))
    }
}

impl fmt::Debug for JoinToken {
    /// Formats the token without its secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({PREFIX}{}-…)", hex::write(&self.fingerprint))
    }
}

impl FromStr for JoinToken {
    type Err = ClusterError;

    fn from_str(text: &str) -> Result<JoinToken, ClusterError> {
        let parts = text.trim().strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
        let read = |text: &str| hex::read(text).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let (fingerprint, secret) =
            parts.and_then(|(f, s)| Some((read(f)?, read(s)?))).ok_or(ClusterError::NoToken)?;
        Ok(JoinToken { fingerprint, secret })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_token_is_read_back_and_hides_its_secret_in_logs() {
        let token = JoinToken::new([7; 32]).unwrap();
        let text = token.to_string();
        assert_eq!(format!("{text}\n").parse::<JoinToken>().unwrap(), token);
        assert!(!format!("{token:?}").contains(&hex::write(&token.secret)));
        for wrong in ["", "x", PREFIX, &text[..text.len() - 1], &format!("{text}0")] {
            assert!(wrong.parse::<JoinToken>().is_err(), "{wrong:?}");
        }
    }
}
