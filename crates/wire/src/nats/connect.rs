//! Parses the operation CONNECT, with which a NATS client sends its options.

use serde::Deserialize;

use super::Violation;

/// The options in the NATS operation `CONNECT`. For missing options, the defaults of nats-server apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    /// Whether the client wants the reply `+OK` to every operation.
    pub verbose: bool,
    /// Whether the client asks for strict checks of subjects. Dunlin makes these checks in any case.
    pub pedantic: bool,
    /// Whether the client also receives the records that it published itself, if it subscribes to their subjects.
    pub echo: bool,
    /// Whether the client understands messages with headers.
    pub headers: bool,
    /// Whether the client wants a message with a status when nobody listens to a request that it sent.
    pub no_responders: bool,
    /// The version of the NATS protocol that the client supports. From version 1 on, the server may send `INFO` at any
    /// time.
    pub protocol: u32,
    /// The language or name of the client's library.
    pub lang: String,
    /// The version of the client's library.
    pub version: String,
    /// The client's name for the connection.
    pub name: String,
    /// The user's name.
    pub user: Option<String>,
    /// The user's password.
    pub pass: Option<String>,
    /// A token, which replaces the user and the password.
    pub auth_token: Option<String>,
    /// The public key of an nkey, which replaces the user and the password.
    pub nkey: Option<String>,
    /// The signature, in base64, of the nonce in `INFO`. It is made with the private key that belongs to `nkey`.
    pub sig: Option<String>,
}

/// The JSON object in the form in which it is received. A `null` counts as a missing value.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ConnectJson {
    verbose: Option<bool>,
    pedantic: Option<bool>,
    echo: Option<bool>,
    headers: Option<bool>,
    no_responders: Option<bool>,
    protocol: Option<u32>,
    lang: Option<String>,
    version: Option<String>,
    name: Option<String>,
    user: Option<String>,
    pass: Option<String>,
    auth_token: Option<String>,
    nkey: Option<String>,
    sig: Option<String>,
}

impl Default for Connect {
    fn default() -> Connect {
        Connect {
            verbose: true,
            pedantic: true,
            echo: true,
            headers: false,
            no_responders: false,
            protocol: 0,
            lang: String::new(),
            version: String::new(),
            name: String::new(),
            user: None,
            pass: None,
            auth_token: None,
            nkey: None,
            sig: None,
        }
    }
}

impl Connect {
    /// Parses the JSON object that follows `CONNECT`.
    pub fn parse(json: &[u8]) -> Result<Connect, Violation> {
        // Refuses a JSON array, which serde would accept in place of an object.
        let object = json.first() == Some(&b'{');
        let received: Option<ConnectJson> = if object { serde_json::from_slice(json).ok() } else { None };
        let received = received.ok_or(Violation::Arguments)?;
        let defaults = Connect::default();
        Ok(Connect {
            verbose: received.verbose.unwrap_or(defaults.verbose),
            pedantic: received.pedantic.unwrap_or(defaults.pedantic),
            echo: received.echo.unwrap_or(defaults.echo),
            headers: received.headers.unwrap_or(defaults.headers),
            no_responders: received.no_responders.unwrap_or(defaults.no_responders),
            protocol: received.protocol.unwrap_or_default(),
            lang: received.lang.unwrap_or_default(),
            version: received.version.unwrap_or_default(),
            name: received.name.unwrap_or_default(),
            user: received.user,
            pass: received.pass,
            auth_token: received.auth_token,
            nkey: received.nkey,
            sig: received.sig,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_nats_connect_fields_have_the_defaults_of_nats_server() {
        assert_eq!(Connect::parse(b"{}").unwrap(), Connect::default());
        let nulls = br#"{"verbose":null,"echo":null,"name":null,"user":null}"#;
        assert_eq!(Connect::parse(nulls).unwrap(), Connect::default(), "as async-nats writes it");
        let parsed =
            Connect::parse(br#"{"verbose":false,"name":"a","auth_token":"t","protocol":1,"jwt":"x"}"#)
                .unwrap();
        let expected = Connect {
            verbose: false,
            protocol: 1,
            name: "a".into(),
            auth_token: Some("t".into()),
            ..Connect::default()
        };
        assert_eq!(parsed, expected);
    }

    #[test]
    fn invalid_connect_json_is_a_protocol_violation() {
        for json in ["", "{", "[]", r#"{"verbose":1}"#, "{\"name\":\"\u{0}\"}"] {
            assert_eq!(Connect::parse(json.as_bytes()), Err(Violation::Arguments), "{json:?}");
        }
    }
}
