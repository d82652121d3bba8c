//! Tests of a node with a low limit for the number of open files.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use dunlin_client::topic::{DurableOptions, Publish, TopicConfig};
use dunlin_client::{CallError, Client, ClientOptions, ErrorCode};
use dunlin_wait::until;
use tempfile::TempDir;

use crate::dunlin::{Node, dunlin_with_files};
use crate::http::curl;

/// A running node with a low limit for the number of open files.
struct LimitedNode {
    node: Node,
    _dir: TempDir,
}

impl LimitedNode {
    fn start(files_max: u32) -> LimitedNode {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().to_str().unwrap();
        let listen = ["serve", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--threads", "1"];
        let command = dunlin_with_files(files_max, &[&listen[..], &["--data-dir", data_dir]].concat());
        LimitedNode { node: Node::start_command(command), _dir: dir }
    }

    /// The address of the node's HTTP listener.
    fn http(&self) -> &str {
        self.node.ready_field("http=")
    }

    fn connect(&self) -> Option<Client> {
        Client::connect(&self.node.url, ClientOptions::default()).ok()
    }
}

/// A connection to the HTTP listener that stays open between requests.
struct Probe {
    host: String,
    stream: BufReader<TcpStream>,
}

impl Probe {
    fn connect(host: &str) -> Probe {
        let stream = BufReader::new(TcpStream::connect(host).unwrap());
        Probe { host: host.to_owned(), stream }
    }

    /// Returns the body of the response to `GET /readyz`.
    fn readyz(&mut self) -> String {
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {}\r\n\r\n", self.host);
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(self.stream.read_line(&mut line).unwrap() > 0, "the node closed the connection");
            match line.to_ascii_lowercase().split_once(": ") {
                Some(("content-length", bytes)) => length = bytes.trim().parse().unwrap(),
                _ if line == "\r\n" => break,
                _ => {}
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        String::from_utf8(body).unwrap()
    }
}

#[test]
fn node_raises_its_soft_limit_of_open_files() {
    let node = LimitedNode::start(256);
    let metrics = curl(&[&format!("http://{}/metrics", node.http())]);
    assert!(metrics.contains("process_max_fds 256\n"), "{metrics}");
}

#[test]
fn topic_creation_is_refused_before_file_descriptors_run_out() {
    let node = LimitedNode::start(256);
    let client = node.connect().unwrap();
    let durable = TopicConfig { durable: Some(DurableOptions::default()), ..TopicConfig::default() };
    let create = |number: u32| client.create_topic(&format!("t{number}"), &durable, false);
    let refused = (0..128).find_map(|number| create(number).err()).expect("a topic is refused");
    let CallError::Refused(refused) = refused else { panic!("{refused}") };
    assert_eq!(refused.code, ErrorCode::Limit, "{refused}");
    assert!(refused.text.contains("ulimit -n") && refused.text.contains("256"), "{refused}");
    let other = node.connect().expect("another client connects");
    other.publisher("t0").unwrap().publish(b"x").unwrap();
    assert!(Probe::connect(node.http()).readyz().contains("\"ready\":true"));
    client.delete_topic("t0").unwrap();
    create(128).unwrap();
}

#[test]
fn node_without_free_file_descriptors_is_not_ready() {
    let node = LimitedNode::start(128);
    let mut probe = Probe::connect(node.http());
    assert!(probe.readyz().contains("\"ready\":true"));
    let mut clients = Vec::new();
    until("the node is not ready", || {
        clients.extend(node.connect());
        probe.readyz().contains("cannot accept connections")
    });
    drop(clients);
    until("the node is ready again", || probe.readyz().contains("\"ready\":true"));
}
