//! Hashes passwords and tokens, so that the users file does not reveal them.
//!
//! An attacker can guess passwords. They are therefore hashed with Argon2id, so that each guess costs 19 MiB and tens
//! of milliseconds. A token is 256 random bits, which nobody can guess. A single SHA-256 is thus safe, and costs each
//! request only a microsecond.

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// Prefix of every token. A search for this prefix finds tokens that leaked into files or logs.
pub const TOKEN_PREFIX: &str = "dunlin_";
/// Prefix of the hash of a token in the users file.
const DIGEST_PREFIX: &str = "sha256:";
/// Longest accepted password or token, bytes.
pub(crate) const SECRET_BYTES_MAX: usize = 1_024;

/// Largest accepted memory parameter (`m`) of a password's hash, KiB. A check then takes at most 64 MiB.
pub(crate) const HASH_MEMORY_KIB_MAX: u32 = 64 << 10;
/// Largest accepted number of passes (`t`) of a password's hash.
pub(crate) const HASH_PASSES_MAX: u32 = 10;
/// Largest accepted number of lanes (`p`) of a password's hash.
pub(crate) const HASH_LANES_MAX: u32 = 4;

/// The SHA-256 of a token.
pub(crate) type TokenDigest = [u8; 32];

/// The error for a password or token that cannot be created or hashed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SecretError(String);

/// The reason why a text in the users file is not an accepted hash of a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HashError {
    #[error("expected a hash, as `dunlin user add` writes it, never the password itself")]
    Form,
    /// The hash is valid, but verifying a password with it would need too much memory or time.
    #[error(
        "the hash has {parameter}={value}, above the maximum {parameter}={max}: create the hash with `dunlin \
         user add`, which uses lower parameters"
    )]
    Cost { parameter: &'static str, value: u32, max: u32 },
}

/// Hashes a password for the users file.
pub fn hash_password(password: &[u8]) -> Result<String, SecretError> {
    if password.is_empty() || password.len() > SECRET_BYTES_MAX {
        return Err(SecretError(format!("a password has 1 to {SECRET_BYTES_MAX} bytes")));
    }
    let salt = SaltString::encode_b64(&random::<16>()?).map_err(|error| SecretError(error.to_string()))?;
    let hash = hasher().hash_password(password, &salt).map_err(|error| SecretError(error.to_string()))?;
    Ok(hash.to_string())
}

/// Creates a token. Returns the token, and its hash as the users file needs it.
pub fn new_token() -> Result<(String, String), SecretError> {
    let token = format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(random::<32>()?));
    let stored = format_digest(&digest(token.as_bytes()));
    Ok((token, stored))
}

/// Checks that [`verify`] can use the text as a hash, and that the hash's cost is within the limits.
pub(crate) fn check_hash(hash: &str) -> Result<(), HashError> {
    let hash = PasswordHash::new(hash).map_err(|_| HashError::Form)?;
    Algorithm::try_from(hash.algorithm).map_err(|_| HashError::Form)?;
    let params = Params::try_from(&hash).map_err(|_| HashError::Form)?;
    for (parameter, value, max) in [
        ("m", params.m_cost(), HASH_MEMORY_KIB_MAX),
        ("t", params.t_cost(), HASH_PASSES_MAX),
        ("p", params.p_cost(), HASH_LANES_MAX),
    ] {
        if value > max {
            return Err(HashError::Cost { parameter, value, max });
        }
    }
    Ok(())
}

/// Whether the password matches the hash. With a hash of [`hash_password`], this takes tens of milliseconds and 19 MiB
/// by design.
pub(crate) fn verify(hash: &str, password: &[u8]) -> bool {
    PasswordHash::new(hash).is_ok_and(|hash| hasher().verify_password(password, &hash).is_ok())
}

pub(crate) fn digest(token: &[u8]) -> TokenDigest {
    Sha256::digest(token).into()
}

pub(crate) fn format_digest(digest: &TokenDigest) -> String {
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{DIGEST_PREFIX}{digits}")
}

pub(crate) fn parse_digest(text: &str) -> Option<TokenDigest> {
    let digits = text.strip_prefix(DIGEST_PREFIX).filter(|digits| digits.is_ascii() && digits.len() == 64)?;
    let mut digest = [0; 32];
    for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(digest)
}

/// Compares two hashes of tokens in constant time.
pub(crate) fn digests_equal(a: &TokenDigest, b: &TokenDigest) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b))) == 0
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], SecretError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| SecretError(format!("the system returned no random numbers: {error}")))?;
    Ok(bytes)
}

fn hasher() -> Argon2<'static> {
    Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_verifies_against_its_own_salted_hash() {
        let (one, other) = (hash_password(b"open sesame").unwrap(), hash_password(b"open sesame").unwrap());
        assert!(one.starts_with("$argon2id$") && one != other && check_hash(&one).is_ok());
        assert!(verify(&one, b"open sesame") && verify(&other, b"open sesame") && !verify(&one, b"open"));
        assert!(!verify("nonsense", b""));
        for wrong in ["nonsense", "$argon2id$", "$5$a$b"] {
            assert_eq!(check_hash(wrong), Err(HashError::Form), "{wrong}");
        }
        assert!(hash_password(b"").is_err() && hash_password(&[b'a'; SECRET_BYTES_MAX + 1]).is_err());
    }

    #[test]
    fn hash_above_the_maximum_cost_is_refused() {
        let hash = |cost: &str| {
            format!("$argon2id$v=19${cost}$c29tZXNhbHRzb21lc2FsdA$RdescudvJCsgt3ub+b4dWRWJTmaaJObG")
        };
        assert_eq!(check_hash(&hash("m=65536,t=10,p=4")), Ok(()));
        for (cost, parameter, value, max) in [
            ("m=65537,t=1,p=1", "m", 65_537, HASH_MEMORY_KIB_MAX),
            ("m=4194304,t=1,p=1", "m", 4_194_304, HASH_MEMORY_KIB_MAX),
            ("m=19456,t=11,p=1", "t", 11, HASH_PASSES_MAX),
            ("m=19456,t=2,p=5", "p", 5, HASH_LANES_MAX),
        ] {
            assert_eq!(check_hash(&hash(cost)), Err(HashError::Cost { parameter, value, max }), "{cost}");
        }
        assert_eq!(check_hash(&hash("m=99999999999,t=1,p=1")), Err(HashError::Form));
    }

    #[test]
    fn token_is_recognized_by_its_digest() {
        let (token, stored) = new_token().unwrap();
        assert!(token.starts_with(TOKEN_PREFIX) && token.len() == 50 && !stored.contains(&token));
        let read = parse_digest(&stored).unwrap();
        assert!(
            digests_equal(&read, &digest(token.as_bytes())) && !digests_equal(&read, &digest(b"dunlin_"))
        );
        for wrong in
            ["", "sha256:", &stored[1..], &stored[..70], &stored.replace("sha256:", "sha256:+"), "sha256:é"]
        {
            assert_eq!(parse_digest(wrong), None, "{wrong}");
        }
    }
}
