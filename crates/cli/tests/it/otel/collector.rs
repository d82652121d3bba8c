//! A minimal OpenTelemetry collector. It receives OTLP over HTTP, and stores every span.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;

/// A span that the collector has received, with its ids and names as text.
#[derive(Debug, Clone)]
pub struct ExportedSpan {
    pub name: String,
    pub service: String,
    pub trace: String,
    pub parent: String,
    pub is_server: bool,
    pub is_error: bool,
    attributes: Vec<KeyValue>,
}

impl ExportedSpan {
    #[track_caller]
    pub fn text(&self, key: &str) -> &str {
        match self.value(key) {
            Value::StringValue(text) => text,
            other => panic!("{key} is no text but {other:?}"),
        }
    }

    #[track_caller]
    pub fn number(&self, key: &str) -> i64 {
        match self.value(key) {
            Value::IntValue(number) => *number,
            other => panic!("{key} is no number but {other:?}"),
        }
    }

    #[track_caller]
    fn value(&self, key: &str) -> &Value {
        value(&self.attributes, key).unwrap_or_else(|| panic!("no {key} in {self:#?}"))
    }
}

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()
}

/// A collector that stores the spans that it receives.
pub struct Collector {
    address: SocketAddr,
    spans: Arc<Mutex<Vec<ExportedSpan>>>,
}

impl Collector {
    pub fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let spans = Arc::new(Mutex::default());
        let received = Arc::clone(&spans);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, received) = (stream.unwrap(), Arc::clone(&received));
                thread::spawn(move || serve(stream, &received));
            }
        });
        Collector { address, spans }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn spans(&self) -> Vec<ExportedSpan> {
        self.spans.lock().unwrap().clone()
    }
}

/// Handles the requests of one client until the client closes the connection.
fn serve(stream: TcpStream, received: &Mutex<Vec<ExportedSpan>>) {
    let mut stream = BufReader::new(stream);
    while let Some(body) = request(&mut stream) {
        let export = ExportTraceServiceRequest::decode(body.as_slice()).expect("protobuf as OTLP has it");
        for resource_spans in export.resource_spans {
            let resource = resource_spans.resource.unwrap_or_default().attributes;
            let service = match value(&resource, "service.name") {
                Some(Value::StringValue(name)) => name.clone(),
                other => panic!("the service's name is {other:?}"),
            };
            let spans = resource_spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
            received.lock().unwrap().extend(spans.map(|span| exported_span(span, &service)));
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        stream.get_mut().write_all(answer).unwrap();
    }
}

/// Reads the next request to `/v1/traces`, and returns its body.
fn request(stream: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut line = String::new();
    if stream.read_line(&mut line).ok()? == 0 {
        return None;
    }
    assert!(line.starts_with("POST /v1/traces "), "{line:?}");
    let mut bytes = 0;
    loop {
        line.clear();
        stream.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        if name.eq_ignore_ascii_case("content-length") {
            bytes = value.parse().unwrap();
        }
    }
    let mut body = vec![0; bytes];
    stream.read_exact(&mut body).unwrap();
    Some(body)
}

fn exported_span(span: Span, service: &str) -> ExportedSpan {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    ExportedSpan {
        service: service.to_owned(),
        trace: hex(&span.trace_id),
        parent: hex(&span.parent_span_id),
        is_server: span.kind() == SpanKind::Server,
        is_error: span.status.as_ref().is_some_and(|status| status.code() == StatusCode::Error),
        attributes: span.attributes,
        name: span.name,
    }
}
