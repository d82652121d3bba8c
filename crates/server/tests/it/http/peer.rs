//! An HTTP client for tests. It sends exactly the bytes that the test chooses.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use dunlin_wait::PATIENCE;
use serde_json::Value;

pub(crate) struct Peer {
    pub(crate) stream: BufReader<TcpStream>,
}

#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// A stream of server-sent events.
pub(crate) struct Events {
    peer: Peer,
    /// The beginning of an event that has not arrived completely.
    rest: String,
    pub(crate) last_id: String,
    /// Number of comments received so far.
    pub(crate) comments: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerEvent {
    pub(crate) id: String,
    /// The type of the event; `message` if the stream states none.
    pub(crate) event: String,
    pub(crate) data: String,
}

impl Peer {
    pub(crate) fn connect(address: SocketAddr) -> Peer {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Peer { stream: BufReader::new(stream) }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Sends the bytes. A failure is ignored, because the node may close the connection before it has read all of them.
    pub(crate) fn send_some(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes);
    }

    pub(crate) fn head(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str(&format!("host: {}\r\n", self.stream.get_ref().peer_addr().unwrap()));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        self.send(head.as_bytes());
    }

    pub(crate) fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> HttpResponse {
        let length = body.len().to_string();
        let mut headers = headers.to_vec();
        headers.push(("content-length", &length));
        self.head(method, path, &headers);
        self.send_some(body);
        self.read_response()
    }

    /// Reads a response with its body. The body may have a stated length or be chunked.
    pub(crate) fn read_response(&mut self) -> HttpResponse {
        let (status, headers) = self.read_response_head();
        let header =
            |name: &str| headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str());
        let body = match header("content-length").map(|text| text.parse::<usize>().unwrap()) {
            Some(bytes) => {
                let mut body = vec![0; bytes];
                self.stream.read_exact(&mut body).unwrap();
                body
            }
            None if header("transfer-encoding") == Some("chunked") => {
                let mut body = Vec::new();
                while let Some(chunk) = self.chunk() {
                    body.extend(chunk);
                }
                body
            }
            None => Vec::new(),
        };
        HttpResponse { status, headers, body }
    }

    pub(crate) fn read_response_head(&mut self) -> (u16, Vec<(String, String)>) {
        let first = self.line();
        let status =
            first.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {first:?}")).parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        (status, headers)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Reads the next chunk of a body; `None` at the end of the body.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.line();
        let bytes =
            usize::from_str_radix(&line, 16).unwrap_or_else(|_| panic!("no length of a chunk: {line:?}"));
        let mut chunk = vec![0; bytes + 2];
        self.stream.read_exact(&mut chunk).unwrap();
        chunk.truncate(bytes);
        (bytes > 0).then_some(chunk)
    }

    /// Whether the node closes the connection without sending more bytes.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    pub(crate) fn events(mut self, path: &str, headers: &[(&str, &str)]) -> Events {
        self.head("GET", path, headers);
        self.read_events(path)
    }

    /// Reads the events that the response to the request for `path` contains.
    pub(crate) fn read_events(mut self, path: &str) -> Events {
        let (status, headers) = self.read_response_head();
        if status != 200 {
            panic!("{path}: {status} {headers:?}");
        }
        assert!(
            headers.contains(&("content-type".to_owned(), "text/event-stream".to_owned())),
            "{headers:?}"
        );
        Events { peer: self, rest: String::new(), last_id: String::new(), comments: 0 }
    }
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The error code of the response; panics if the response is not of the type `application/problem+json`.
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["status"], self.status, "{body}");
        body["title"].as_str().unwrap().to_owned()
    }
}

impl Events {
    /// Reads the next event, parsed as a browser does; `None` if the stream ends.
    pub(crate) fn next(&mut self) -> Option<ServerEvent> {
        loop {
            let block = self.block()?;
            let (mut event, mut data, mut has_data) = ("message".to_owned(), String::new(), false);
            for line in block.lines() {
                let (name, value) = line.split_once(':').unwrap_or((line, ""));
                let value = value.strip_prefix(' ').unwrap_or(value);
                match name {
                    "id" => self.last_id = value.to_owned(),
                    "event" => event = value.to_owned(),
                    "data" => {
                        data.push_str(value);
                        data.push('\n');
                        has_data = true;
                    }
                    "" => self.comments += 1,
                    _ => {}
                }
            }
            if has_data {
                data.pop();
                return Some(ServerEvent { id: self.last_id.clone(), event, data });
            }
        }
    }

    /// Reads the text up to the next empty line; `None` if the stream ends.
    pub(crate) fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.rest.split_once("\n\n") {
                let block = block.to_owned();
                self.rest = rest.to_owned();
                return Some(block);
            }
            self.rest.push_str(std::str::from_utf8(&self.peer.chunk()?).unwrap());
        }
    }

    /// Reads the next `count` events, and returns their data; panics if an event is not a record.
    pub(crate) fn records(&mut self, count: usize) -> Vec<String> {
        let next = |_| {
            let received = self.next().expect("the stream goes on");
            assert_eq!(received.event, "message", "{received:?}");
            received.data
        };
        (0..count).map(next).collect()
    }

    /// Reads until an event of this type arrives. Returns the events before it, and the event itself.
    pub(crate) fn until(&mut self, event: &str) -> (Vec<ServerEvent>, ServerEvent) {
        let mut before = Vec::new();
        loop {
            let received = self.next().unwrap_or_else(|| panic!("no {event} among {before:?}"));
            if received.event == event {
                return (before, received);
            }
            before.push(received);
        }
    }
}

impl ServerEvent {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
