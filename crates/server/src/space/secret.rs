//! The secret by which the processes of a world recognize each other. It is stored in the key `space-secret/WORLD` of
//! the cluster, so only processes that may read this key know it.
//!
//! Each side of a connection proves that it knows the secret by an HMAC-SHA-256 (RFC 2104) over its role and both
//! hellos, which contain random nonces. The secret itself is never sent.
//!
//! A proof is valid for one connection and one role: no process can replay it, or forward it to another process.
//!
//! ```text
//!  proof = HMAC(secret, "dunlin space 3", role u8, own hello, the other's hello)      role: 1 the side that connects, 2 the side that listens
//! ```

use std::fmt;

use ring::hmac;

use super::error::{RunnerRefusal, SpaceError};

const CONTEXT: &[u8] = b"dunlin space 3";

/// An HMAC by which its sender proves that it knows the secret.
pub(super) type Proof = [u8; 32];

/// The secret with which the processes of a world prove that they belong to it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u8; 32]);

/// The role of a side of a connection: it opened the connection, or it accepted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Connects = 1,
    Listens = 2,
}

impl Role {
    pub(super) fn other(self) -> Role {
        match self {
            Role::Connects => Role::Listens,
            Role::Listens => Role::Connects,
        }
    }
}

impl Secret {
    /// Creates a random secret.
    pub fn random() -> Result<Secret, SpaceError> {
        random().map(Secret)
    }

    /// Creates a secret from its bytes.
    pub fn of(bytes: [u8; 32]) -> Secret {
        Secret(bytes)
    }

    /// The secret's bytes.
    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }

    pub(super) fn prove(&self, role: Role, own_hello: &[u8], peer_hello: &[u8]) -> Proof {
        let tag = hmac::sign(&self.key(), &message(role, own_hello, peer_hello));
        tag.as_ref().try_into().expect("HMAC-SHA-256 returns 32 bytes")
    }

    /// Checks a peer's proof. `role` is the peer's role, `theirs` is the peer's hello, and `ours` is this side's hello.
    pub(super) fn check(
        &self,
        role: Role,
        theirs: &[u8],
        ours: &[u8],
        proof: &[u8],
    ) -> Result<(), RunnerRefusal> {
        hmac::verify(&self.key(), &message(role, theirs, ours), proof).map_err(|_| RunnerRefusal::Secret)
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }
}

/// The message over which a proof is computed. It includes the lengths of both hellos, so that bytes at the end of one
/// hello cannot be moved to the beginning of the other.
fn message(role: Role, own_hello: &[u8], peer_hello: &[u8]) -> Vec<u8> {
    let length = |hello: &[u8]| (hello.len() as u64).to_le_bytes();
    let (own_length, peer_length) = (length(own_hello), length(peer_hello));
    [CONTEXT, &[role as u8], &own_length, &peer_length, own_hello, peer_hello].concat()
}

/// Prints a placeholder instead of the secret.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Random bytes from the operating system.
pub(super) fn random() -> Result<[u8; 32], SpaceError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| SpaceError::Random(error.to_string()))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn connection_proof_is_the_hmac_of_both_hello_messages() {
        // RFC 4231 has no test vector for a key of 32 bytes, so this test computes the HMAC step by step.
        let secret = Secret::of([7; 32]);
        let proof = secret.prove(Role::Connects, b"a", b"b");
        let message = [CONTEXT, &[1], &1_u64.to_le_bytes(), &1_u64.to_le_bytes(), b"a", b"b"].concat();
        let pad = |with: u8| (0..64).map(|at| if at < 32 { 7 ^ with } else { with }).collect::<Vec<u8>>();
        let inner = Sha256::digest([pad(0x36), message].concat());
        let outer = Sha256::digest([pad(0x5c), inner.to_vec()].concat());
        assert_eq!(proof[..], outer[..]);
    }

    #[test]
    fn proof_of_a_secret_is_valid_for_one_role_and_connection() {
        let secret = Secret::of([7; 32]);
        let proof = secret.prove(Role::Connects, b"mine", b"yours");
        assert_eq!(secret.check(Role::Connects, b"mine", b"yours", &proof), Ok(()));
        for (secret, role, theirs, ours, proof) in [
            (Secret::of([8; 32]), Role::Connects, "mine", "yours", &proof[..]),
            (secret, Role::Listens, "mine", "yours", &proof),
            (secret, Role::Connects, "yours", "mine", &proof),
            (secret, Role::Connects, "mine2", "yours", &proof),
            (secret, Role::Connects, "min", "eyours", &proof),
            (secret, Role::Connects, "mine", "yours", &proof[..31]),
            (secret, Role::Connects, "mine", "yours", &[]),
        ] {
            let checked = secret.check(role, theirs.as_bytes(), ours.as_bytes(), proof);
            assert_eq!(checked, Err(RunnerRefusal::Secret), "{role:?} {theirs} {ours}");
        }
    }
}
