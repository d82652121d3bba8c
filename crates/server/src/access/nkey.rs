//! Checks NATS user keys (`nkeys`). An nkey is an Ed25519 key pair, whose public key is in the users file. A client
//! proves that it has the private key by signing its connection's nonce.
//!
//! A nonce is computed from the connection's number and a secret of the process. It therefore needs no storage, and
//! clients cannot predict it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use data_encoding::BASE32_NOPAD;
use ring::signature::{ED25519, UnparsedPublicKey};
use sha2::{Digest as _, Sha256};

use super::secret::{self, SecretError};

/// Length of a decoded public key: one byte for the kind of key, the key itself, and a checksum.
const BYTES: usize = 1 + KEY_BYTES + 2;
const KEY_BYTES: usize = 32;
/// First byte of a decoded user key. Because of this value, the text of each user key begins with U.
const USER: u8 = 20 << 3;
const NONCE_BYTES: usize = 16;

/// The secret from which the nonces are computed.
#[derive(Debug)]
pub(super) struct Nonces([u8; 32]);

impl Nonces {
    pub(super) fn new() -> Result<Nonces, SecretError> {
        Ok(Nonces(secret::random()?))
    }

    /// Computes the nonce of a connection.
    pub(super) fn nonce(&self, session: u64) -> String {
        let sum = Sha256::new().chain_update(self.0).chain_update(session.to_le_bytes()).finalize();
        URL_SAFE_NO_PAD.encode(&sum[..NONCE_BYTES])
    }
}

/// Decodes the text of a user's public key; `None` if the text is not a valid key.
pub(super) fn public_key(text: &str) -> Option<[u8; KEY_BYTES]> {
    let bytes: [u8; BYTES] = BASE32_NOPAD.decode(text.as_bytes()).ok()?.try_into().ok()?;
    let (body, sum) = bytes.split_at(BYTES - 2);
    let is_valid = body[0] == USER && crc16(body).to_le_bytes() == *sum;
    is_valid.then(|| body[1..].try_into().ok()).flatten()
}

/// Whether `signature` is a valid signature of the nonce by this key. Client libraries encode the signature in either
/// of the two base64 alphabets, and both are accepted.
pub(super) fn verify(key: &str, nonce: &str, signature: &str) -> bool {
    let signature = signature.trim_end_matches('=');
    let decoded = URL_SAFE_NO_PAD.decode(signature).or_else(|_| STANDARD_NO_PAD.decode(signature));
    let (Some(key), Ok(signature)) = (public_key(key), decoded) else { return false };
    UnparsedPublicKey::new(&ED25519, key).verify(nonce.as_bytes(), &signature).is_ok()
}

/// Computes the checksum CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |sum: u16, &byte| {
        (0..8).fold(sum ^ (u16::from(byte) << 8), |sum, _| match sum & 0x8000 {
            0 => sum << 1,
            _ => (sum << 1) ^ 0x1021,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A public key. This key and the signature below were made with the nkeys library; the signed nonce is the text
    /// `nonce`.
    const KEY: &str = "UDI6ND5BHG7FC7FCVXTZ33VOQLKMBW535YD3ECYGOVVD7HPS7V6YLNRM";
    const SIGNATURE: &str =
        "ni33mbHsuWwOepm35ueG5j8IZbwrxz6v83oUKPeEVxXch2pNRTffzCFTFnLezEbwaR81HYOeXy5ThmR8clADBw";

    #[test]
    fn nkey_signature_is_valid_only_for_its_nonce_and_key() {
        assert!(verify(KEY, "nonce", SIGNATURE));
        let standard = STANDARD_NO_PAD.encode(URL_SAFE_NO_PAD.decode(SIGNATURE).unwrap());
        assert!(verify(KEY, "nonce", &standard));
        assert!(!verify(KEY, "nonce2", SIGNATURE) && !verify(KEY, "nonce", &SIGNATURE[..80]));
        let other = "UBABIZX6SZFAKHK2KGUFD6QH53FDAH5QVCH2R5MJLFPEVYAW22QWQQCX";
        assert!(public_key(other).is_some() && !verify(other, "nonce", SIGNATURE));
    }

    #[test]
    fn text_that_is_no_user_key_is_refused() {
        let swapped = KEY.replace(&KEY[10..12], &KEY[11..12].repeat(2));
        let account = format!("A{}", &KEY[1..]);
        for wrong in ["", "U", &KEY[1..], &swapped, &account, &KEY.to_lowercase()] {
            assert_eq!(public_key(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn each_connection_has_its_own_nonce() {
        let (nonces, other) = (Nonces::new().unwrap(), Nonces::new().unwrap());
        assert_eq!(nonces.nonce(1), nonces.nonce(1));
        assert!(
            nonces.nonce(1) != nonces.nonce(2)
                && nonces.nonce(1) != other.nonce(1)
                && nonces.nonce(1).len() == 22
        );
    }
}
