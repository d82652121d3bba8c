//! Starts the toxiproxy server, whose proxies can inject faults into connections. Controls the server through its HTTP
//! API, with one connection for each request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::port;
use crate::process::{PATIENCE, Process};

/// The time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A running toxiproxy server. Dropping the value kills the server's process.
#[derive(Debug)]
pub struct Toxiproxy {
    _process: Process,
    api: SocketAddr,
}

/// The direction in which bytes pass through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyDirection {
    /// From the side that opened the connection.
    Up,
    /// To the side that opened the connection.
    Down,
}

impl ProxyDirection {
    fn name(self) -> &'static str {
        match self {
            ProxyDirection::Up => "upstream",
            ProxyDirection::Down => "downstream",
        }
    }
}

impl Toxiproxy {
    /// Starts the server and waits until it responds.
    pub fn start(program: &str) -> Result<Toxiproxy> {
        let api = port::free([127, 0, 0, 1].into());
        let arguments = ["-host", "127.0.0.1", "-port", &api.port().to_string()].map(str::to_owned);
        let server = Toxiproxy { _process: Process::start("toxiproxy", program, &arguments), api };
        let deadline = Instant::now() + PATIENCE;
        while server.request("GET", "/version", None).is_err() {
            if Instant::now() > deadline {
                bail!("toxiproxy does not respond at {api}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Adds a proxy that forwards connections to `upstream`. Returns the proxy's address.
    pub fn add(&self, name: &str, upstream: SocketAddr) -> Result<SocketAddr> {
        let proxy =
            json!({"name": name, "listen": "127.0.0.1:0", "upstream": upstream.to_string(), "enabled": true});
        let response = self.request("POST", "/proxies", Some(&proxy))?;
        let listen = response["listen"].as_str().context("toxiproxy's response has no address")?;
        Ok(listen.parse()?)
    }

    /// Adds a toxic, which is toxiproxy's name for a fault, to a proxy.
    pub fn add_toxic(
        &self,
        proxy: &str,
        name: &str,
        stream: ProxyDirection,
        kind: &str,
        attributes: Value,
    ) -> Result<()> {
        let toxic = json!({"name": name, "type": kind, "stream": stream.name(), "toxicity": 1.0, "attributes": attributes});
        self.request("POST", &format!("/proxies/{proxy}/toxics"), Some(&toxic)).map(drop)
    }

    /// Removes a toxic from a proxy.
    pub fn remove_toxic(&self, proxy: &str, name: &str) -> Result<()> {
        self.request("DELETE", &format!("/proxies/{proxy}/toxics/{name}"), None).map(drop)
    }

    /// Enables or disables a proxy. A disabled proxy closes its connections and refuses new ones.
    pub fn enable(&self, proxy: &str, enabled: bool) -> Result<()> {
        self.request("POST", &format!("/proxies/{proxy}"), Some(&json!({ "enabled": enabled }))).map(drop)
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let mut stream = TcpStream::connect_timeout(&self.api, REQUEST_TIMEOUT)?;
        stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let (api, bytes) = (self.api, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: {api}\r\nUser-Agent: dunlin\r\nContent-Length: {bytes}\r\n\r\n{body}"
        )?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        let (head, content) =
            response.split_once("\r\n\r\n").context("toxiproxy's response has no end of its headers")?;
        let code = head.split(' ').nth(1).unwrap_or_default();
        if !code.starts_with('2') {
            bail!("toxiproxy responded {code} to {method} {path} {body}: {content}");
        }
        Ok(serde_json::from_str(content).unwrap_or(Value::Null))
    }
}
