//! Runs the `curl` examples of the README and of `docs/listeners.md`.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::HttpServer;

/// A running `curl -N`, which reads a stream. Dropping the value kills it.
struct Curl {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Curl {
    fn start(arguments: &[&str]) -> Curl {
        let mut child = Command::new("curl")
            .args(["-sS", "-N", "--max-time", "120"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("curl is installed");
        let lines = BufReader::new(child.stdout.take().unwrap());
        Curl { child, lines }
    }

    /// Reads until a line begins with this prefix, and returns the rest of that line.
    fn line(&mut self, prefix: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "curl ended before {prefix:?}");
            if let Some(rest) = line.strip_prefix(prefix) {
                return rest.trim_end().to_owned();
            }
        }
    }
}

impl Drop for Curl {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn curl_resumes_a_stream_at_its_last_position() {
    let fixture = HttpServer::new();
    let url = format!("http://{}/v1/topics", fixture.address());
    let mut reading = Curl::start(&[&format!("{url}/orders.*/events")]);
    reading.line("retry: ");
    let published = Command::new("curl")
        .args(["-sS", "--fail", "-d", "{\"order\":1}", &format!("{url}/orders.eu")])
        .output()
        .unwrap();
    assert!(published.status.success(), "{published:?}");
    assert_eq!(reading.line("data: "), "{\"order\":1}");
    let id = reading.line("id: ");
    drop(reading);
    for n in 2..=3 {
        fixture.publish("orders.eu", format!("{{\"order\":{n}}}").as_bytes());
    }
    let back = format!("Last-Event-ID: {id}");
    let mut reading = Curl::start(&["-H", &back, &format!("{url}/orders.*/events")]);
    assert_eq!(reading.line("data: "), "{\"order\":2}");
    assert_eq!(reading.line("data: "), "{\"order\":3}");
}

#[test]
fn curl_publishes_a_file_larger_than_any_buffer() {
    let fixture = HttpServer::new();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("payload");
    std::fs::write(&file, vec![b'x'; 5 << 20]).unwrap();
    let from = format!("@{}", file.display());
    let url = format!("http://{}/v1/topics/files", fixture.address());
    let out = Command::new("curl").args(["-sS", "--fail", "--data-binary", &from, &url]).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let event = fixture.events("/v1/topics/files/events?from=earliest", &[]).next().unwrap();
    assert_eq!(event.data.len(), 5 << 20);
}
