//! Connects a command to the node that the command's global options name.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use dunlin_client::tls::TlsOptions;
use dunlin_client::{
    CallError, Client, ClientLimits, ClientOptions, ConnectError, Credentials, DisconnectReason,
};
use dunlin_server::read_input;

use crate::arguments::GlobalOptions;
use crate::commands::user::trim_line_end;
use crate::console::TextPainter;
use crate::outage::OutageReport;
use crate::signals::StopFlag;

pub const URL_DEFAULT: &str = "dunlin://127.0.0.1:4220";

/// The pause between attempts to reach a node.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Connects to the node that the global options name. Operators see the client under the name `name`.
pub fn connect(global: &GlobalOptions, name: &str) -> Result<Client> {
    connect_with(global, name, ClientLimits::default())
}

/// Like [`connect`], but while the node is unreachable, reports the outage once and waits. Returns `None` if the
/// command has to end before there is a connection.
pub fn connect_when_up(
    global: &GlobalOptions,
    name: &str,
    stop: &StopFlag,
    paint: TextPainter,
) -> Result<Option<Client>> {
    let mut outage = OutageReport::default();
    loop {
        let connected = stop.run_interruptible(|| match connect(global, name) {
            Err(error) if !error.is::<Unreachable>() => Err(error),
            connected => Ok(connected),
        })?;
        match connected {
            None => return Ok(None),
            Some(Ok(client)) => {
                outage.report_restored();
                return Ok(Some(client));
            }
            Some(Err(error)) => outage.report_once(&error.to_string(), paint)?,
        }
        stop.sleep(RETRY_PAUSE);
    }
}

/// The error that none of the given nodes can be reached.
#[derive(Debug)]
struct Unreachable(String);

impl std::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreachable {}

/// Like [`connect`], for a subscriber that pauses after each record. The client requests only a small amount of data in
/// advance, so that the log can drop unread records as it does for any slow subscriber.
pub fn connect_slow(global: &GlobalOptions, name: &str) -> Result<Client> {
    connect_with(global, name, ClientLimits { credit_bytes: 16 << 10, ..ClientLimits::default() })
}

/// Like [`connect`], for a group member that takes one record at a time. The records that this member has not taken
/// remain for the other members.
pub fn connect_one_by_one(global: &GlobalOptions, name: &str) -> Result<Client> {
    connect_with(global, name, ClientLimits { credit_bytes: 1, ..ClientLimits::default() })
}

/// Like [`connect`], for a client with the limits `limits`.
fn connect_with(global: &GlobalOptions, name: &str, limits: ClientLimits) -> Result<Client> {
    let url = global.url.as_deref().unwrap_or(URL_DEFAULT);
    let credentials = credentials(global)?;
    let options = ClientOptions {
        name: name.to_owned(),
        credentials,
        tls: tls(global)?,
        limits,
        ..ClientOptions::default()
    };
    Client::connect(url, options).map_err(|error| match error {
        ConnectError::Disconnected(DisconnectReason::Refused(refused)) => {
            anyhow::Error::from(CallError::Refused(refused))
                .context(format!("the node at {url} refused the connection"))
        }
        ConnectError::Disconnected(DisconnectReason::Opening(refused)) => {
            anyhow::Error::from(CallError::Refused(refused))
                .context(format!("the node at {url} did not become ready in time"))
        }
        ConnectError::Disconnected(why) => {
            Unreachable(format!("cannot reach a node at {url}: {why} (`dunlin dev` starts one)")).into()
        }
        other => anyhow!("{other}"),
    })
}

/// Reads the credentials from the files that the global options name.
fn credentials(global: &GlobalOptions) -> Result<Credentials> {
    let read = |path: &PathBuf| {
        let bytes = read_input(path)
            .with_context(|| format!("cannot read the token or password file {}", path.display()));
        bytes.map(trim_line_end)
    };
    match (&global.token_file, &global.user, &global.password_file) {
        (Some(file), ..) => read(file).map(Credentials::token),
        (None, Some(user), Some(file)) => Ok(Credentials::password(user, &read(file)?)),
        (None, Some(user), None) => {
            Err(anyhow!("--user {user} needs a password: set --password-file or DUNLIN_PASSWORD_FILE"))
        }
        (None, None, _) => Ok(Credentials::default()),
    }
}

/// Reads the TLS files that the global options name.
pub fn tls(global: &GlobalOptions) -> Result<TlsOptions> {
    let read = |what: &str, path: &Option<PathBuf>| {
        let bytes = path
            .as_ref()
            .map(|path| read_input(path).with_context(|| format!("cannot read {what} {}", path.display())));
        bytes.transpose()
    };
    let mut options = TlsOptions::default();
    options.ca = read("the CA file", &global.ca)?;
    options.cert = read("the client certificate", &global.client_cert)?;
    options.key = read("the client certificate's key", &global.client_key)?;
    Ok(options)
}
