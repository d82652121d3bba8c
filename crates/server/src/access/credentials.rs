//! Reads a client's credentials from the messages of each protocol.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::nkey;
use super::secret::SECRET_BYTES_MAX;
use crate::tls::ClientCertificate;

/// A client's credentials. The `Debug` output does not contain them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credentials {
    None,
    Token(Vec<u8>),
    Password {
        user: String,
        password: Vec<u8>,
    },
    /// The names in a verified client certificate: its subject and its alternative names.
    Certificate(Vec<String>),
    /// A NATS public key. The client has proved that it owns the key by signing the connection's nonce.
    Nkey(String),
    /// Credentials in a format that the protocol does not define.
    Malformed,
}

impl Credentials {
    /// Reads the credentials of a HELLO message. They are either a token, or a user name, a zero byte and a password.
    pub(crate) fn from_hello(bytes: &[u8]) -> Credentials {
        match bytes.iter().position(|&byte| byte == 0) {
            _ if bytes.is_empty() => Credentials::None,
            Some(at) => Credentials::password(&bytes[..at], &bytes[at + 1..]),
            None => Credentials::token(bytes),
        }
    }

    /// Reads the credentials of a NATS CONNECT message; `nonce` is the nonce that this connection received.
    pub(crate) fn from_connect(connect: &dunlin::wire::nats::Connect, nonce: &str) -> Credentials {
        if let Some(key) = connect.nkey.as_deref().filter(|key| !key.is_empty()) {
            let signature = connect.sig.as_deref().unwrap_or_default();
            return match nkey::verify(key, nonce, signature) {
                true => Credentials::Nkey(key.to_owned()),
                false => Credentials::Malformed,
            };
        }
        match (&connect.auth_token, &connect.user) {
            (Some(token), _) if !token.is_empty() => Credentials::token(token.as_bytes()),
            (_, Some(user)) if !user.is_empty() => {
                let password = connect.pass.as_deref().unwrap_or_default();
                Credentials::password(user.as_bytes(), password.as_bytes())
            }
            _ => Credentials::None,
        }
    }

    /// Reads the credentials from the value of the header `authorization` of HTTP or gRPC.
    pub(crate) fn from_header(value: Option<&[u8]>) -> Credentials {
        let Some(value) = value else { return Credentials::None };
        let Some(at) = value.iter().position(|&byte| byte == b' ') else { return Credentials::Malformed };
        let (scheme, rest) = (&value[..at], value[at..].trim_ascii());
        if scheme.eq_ignore_ascii_case(b"bearer") {
            return Credentials::token(rest);
        }
        let decoded = scheme.eq_ignore_ascii_case(b"basic").then(|| STANDARD.decode(rest).ok()).flatten();
        let Some(decoded) = decoded else { return Credentials::Malformed };
        match decoded.iter().position(|&byte| byte == b':') {
            Some(at) => Credentials::password(&decoded[..at], &decoded[at + 1..]),
            None => Credentials::Malformed,
        }
    }

    /// Returns `self`. If the client sent no credentials in messages, returns the names in its certificate instead.
    pub(crate) fn or_certificate(self, certificate: Option<&ClientCertificate>) -> Credentials {
        match (self, certificate) {
            (Credentials::None, Some(ClientCertificate { subject, names })) => {
                Credentials::Certificate([subject].into_iter().chain(names).cloned().collect())
            }
            (credentials, _) => credentials,
        }
    }

    fn token(token: &[u8]) -> Credentials {
        match token.len() {
            1..=SECRET_BYTES_MAX => Credentials::Token(token.to_vec()),
            _ => Credentials::Malformed,
        }
    }

    fn password(user: &[u8], password: &[u8]) -> Credentials {
        match std::str::from_utf8(user) {
            Ok(user) if super::users::is_name(user) && password.len() <= SECRET_BYTES_MAX => {
                Credentials::Password { user: user.to_owned(), password: password.to_vec() }
            }
            _ => Credentials::Malformed,
        }
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Credentials::None => "None",
            Credentials::Token(_) => "Token",
            Credentials::Certificate(_) => "Certificate",
            Credentials::Nkey(_) => "Nkey",
            Credentials::Password { .. } => "Password",
            Credentials::Malformed => "Malformed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_from_hello_and_http_header() {
        let token = Credentials::Token(b"t".to_vec());
        let password = Credentials::Password { user: "ana".to_owned(), password: b"p:w".to_vec() };
        assert_eq!(Credentials::from_hello(b""), Credentials::None);
        assert_eq!(Credentials::from_hello(b"t"), token);
        assert_eq!(Credentials::from_hello(b"ana\0p:w"), password);
        for (header, expected) in [
            ("Bearer t", &token),
            ("bearer   t ", &token),
            ("Basic YW5hOnA6dw==", &password),
            ("Basic YW5h", &Credentials::Malformed),
            ("Basic !", &Credentials::Malformed),
            ("Basic", &Credentials::Malformed),
            ("Digest a", &Credentials::Malformed),
            ("Bearer ", &Credentials::Malformed),
        ] {
            assert_eq!(&Credentials::from_header(Some(header.as_bytes())), expected, "{header}");
        }
        assert_eq!(Credentials::from_header(None), Credentials::None);
        let shown = format!("{password:?} {token:?}");
        assert_eq!(shown, "Password Token");
    }

    #[test]
    fn invalid_user_names_and_long_secrets_are_refused() {
        for wrong in [&b"a b\0p"[..], b"\0p", b"a\n\0p", b"\xff\0p"] {
            assert_eq!(Credentials::from_hello(wrong), Credentials::Malformed);
        }
        assert_eq!(Credentials::from_hello(&[b'a'; SECRET_BYTES_MAX + 1]), Credentials::Malformed);
    }
}
