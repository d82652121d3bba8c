//! What the door costs: `hot stream 64 10000000`, `hot brokered 64 5000000`, `hot trip`, `hot trip spin`,
//! each beside raw sockets. For whoever tunes the server; what users are shown comes from `dunlin bench`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dunlin::topic::frame::{Frame, Meta};
use dunlin::topic::{Draft, Publish, Reliable, Retention, TopicConfig};
use dunlin::wire::{self, ChannelPosition, Credit, Decoder, FromClient, FromNode, Hello, List, Next};
use dunlin::wire::{OnGap, OpenPublisher, Position, Preamble, PublishHeader, StartAt, Subscribe};
use dunlin::{Config, Node};
use dunlin_server::{Server, ServerConfig};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |at: usize, default: u64| words.get(at).and_then(|w| w.parse().ok()).unwrap_or(default);
    let spin = words.contains(&"spin");
    match words[0] {
        "stream" => stream(number(1, 64) as usize, number(2, 10_000_000), number(3, 64)),
        "brokered" => brokered(number(1, 64) as usize, number(2, 5_000_000)),
        "raw" => raw_stream(number(1, 64 << 10) as usize),
        "trip" => trip(spin),
        "reader" => reader(words[1], number(2, 0)),
        "writer" => writer(words[1], number(2, 64) as usize, number(3, 1)),
        "stalled" => stalled(number(1, 1_000)),
        "crowd" => crowd(number(1, 1_000), number(2, 1_000)),
        "crowd-readers" => crowd_readers(words[1], number(2, 0), number(3, 0)),
        "sink" => drop(std::io::copy(&mut TcpStream::connect(words[1]).unwrap(), &mut std::io::sink())),
        _ => eprintln!("stream | brokered | raw | trip"),
    }
}

fn serve(spin: bool) -> (Node, Server) {
    let node = Node::start(Config::default()).unwrap();
    let config =
        ServerConfig { tcp: vec![([127, 0, 0, 1], 0).into()], spin, threads: 1, ..Default::default() };
    let server = Server::start(node.clone(), config).unwrap();
    let retention = Retention { bytes: 8 << 20, ..Default::default() };
    let reliable = Reliable { wait_max: Duration::from_secs(30), ..Default::default() };
    let topic = TopicConfig { retention, reliable: Some(reliable), ..Default::default() };
    node.create_topic("s", topic, false).unwrap();
    (node, server)
}

fn other(arguments: &[String]) -> Child {
    let me = std::env::current_exe().unwrap();
    Command::new(me).args(arguments).stdout(Stdio::piped()).spawn().unwrap()
}

fn await_line(child: &mut Child) {
    let mut byte = [0];
    while byte[0] != b'\n' {
        child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    }
}

fn stream(size: usize, count: u64, batch: u64) {
    let (node, server) = serve(false);
    let address = server.tcp_addresses()[0].to_string();
    let mut child = other(&["reader".into(), address, count.to_string()]);
    await_line(&mut child);
    let mut publisher = node.publisher("s").unwrap();
    let mut payloads = vec![vec![0u8; size]; batch as usize];
    let began = Instant::now();
    let mut at = 0u64;
    while at < count {
        for payload in &mut payloads {
            at += 1;
            payload[..8].copy_from_slice(&at.to_le_bytes());
        }
        if batch == 1 {
            publisher.publish(payloads[0].as_slice()).unwrap();
        } else {
            let drafts: Vec<Draft<'_>> = payloads.iter().map(|p| p.as_slice().into()).collect();
            publisher.publish_batch(&drafts).unwrap();
        }
    }
    let published = began.elapsed();
    await_line(&mut child);
    report("embedded", size, at, began.elapsed());
    println!("  published in {published:?}");
    child.wait().unwrap();
}

fn brokered(size: usize, count: u64) {
    let (_node, server) = serve(false);
    let address = server.tcp_addresses()[0].to_string();
    let mut reader = other(&["reader".into(), address.clone(), count.to_string()]);
    await_line(&mut reader);
    let began = Instant::now();
    let mut writer = other(&["writer".into(), address, size.to_string(), count.to_string()]);
    await_line(&mut reader);
    report("brokered", size, count, began.elapsed());
    reader.wait().unwrap();
    writer.wait().unwrap();
}

fn report(what: &str, size: usize, count: u64, took: Duration) {
    let rate = count as f64 / took.as_secs_f64();
    println!("{what} {size} B: {:.2} M/s, {:.2} GB/s", rate / 1e6, rate * size as f64 / 1e9);
}

fn raw_stream(size: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut child = other(&["sink".into(), listener.local_addr().unwrap().to_string()]);
    let (mut stream, _) = listener.accept().unwrap();
    let bytes = vec![1; size];
    let began = Instant::now();
    let total = 4u64 << 30;
    for _ in 0..total / size as u64 {
        stream.write_all(&bytes).unwrap();
    }
    report("raw", size, total / size as u64, began.elapsed());
    drop(stream);
    child.wait().unwrap();
}

fn rss_mib() -> f64 {
    let pages: f64 =
        std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096.0 / (1 << 20) as f64
}

/// Readers that never read, under full load.
fn stalled(readers: u64) {
    let (node, server) = serve(false);
    let address = server.tcp_addresses()[0].to_string();
    let mut publisher = node.publisher("free").unwrap();
    let mut load = |records: u64| {
        let began = Instant::now();
        for _ in 0..records {
            publisher.publish(&[7; 1_000]).unwrap();
        }
        records as f64 / began.elapsed().as_secs_f64()
    };
    load(100_000);
    let before = (rss_mib(), load(1_000_000));
    let mut clients: Vec<Client> = (0..readers).map(|_| Client::connect(&address)).collect();
    clients.iter_mut().for_each(|client| client.subscribe("free", false));
    let connected = rss_mib();
    let with = load(3_000_000);
    println!(
        "{readers} stalled: {:.1} MiB before, {connected:.1} connected (clients' 1 MiB buffers untouched), {:.1} under load; publishing {:.2} -> {:.2} M/s",
        before.0,
        rss_mib(),
        before.1 / 1e6,
        with / 1e6
    );
}

/// Many readers of one topic, at a rate.
fn crowd(readers: u64, rate: u64) {
    let (node, server) = serve(false);
    let address = server.tcp_addresses()[0].to_string();
    let before = rss_mib();
    let records = rate * 5;
    let mut child = other(&["crowd-readers".into(), address, readers.to_string(), records.to_string()]);
    await_line(&mut child);
    let mut publisher = node.publisher("free").unwrap();
    let began = Instant::now();
    for at in 0..records {
        let due = began + Duration::from_nanos(at * 1_000_000_000 / rate);
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(left);
        }
        publisher.publish(&[7; 64]).unwrap();
    }
    println!("server grew by {:.1} MiB", rss_mib() - before);
    child.wait().unwrap();
}

fn crowd_readers(address: &str, readers: u64, records: u64) {
    let clients: Vec<Client> = (0..readers)
        .map(|_| {
            let mut client = Client::connect(address);
            client.buffer = vec![0; 64 << 10];
            client.subscribe("free", false);
            client.stream.set_nonblocking(true).unwrap();
            client
        })
        .collect();
    println!("ready");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let took = runtime.block_on(async {
        let tasks: Vec<_> =
            clients.into_iter().map(|client| tokio::spawn(crowd_reader(client, records))).collect();
        let mut took = Vec::new();
        for task in tasks {
            took.extend(task.await.unwrap());
        }
        took
    });
    let mut took = took;
    took.sort_unstable();
    let ms = |share: usize| took[took.len() * share / 1_000] as f64 / 1e6;
    eprintln!("{} records, p50 {:.2} p99 {:.2} max {:.2} ms", took.len(), ms(500), ms(990), ms(999));
}

async fn crowd_reader(mut client: Client, records: u64) -> Vec<u64> {
    let socket = tokio::net::TcpStream::from_std(client.stream.try_clone().unwrap()).unwrap();
    let (mut took, mut last) = (Vec::new(), 0);
    while last < records {
        socket.readable().await.unwrap();
        let _ = socket.try_io(tokio::io::Interest::READABLE, || {
            client.read(|message| match message {
                FromNode::Run(run) => {
                    assert_eq!(run.header.prev_seq, last);
                    last = run.header.last_seq();
                    let now = dunlin::now_ns();
                    let mut rest = run.frames;
                    while let Some((frame, taken)) = Frame::split(rest) {
                        took.push(now.saturating_sub(frame.append_time_ns()));
                        rest = &rest[taken..];
                    }
                }
                FromNode::Heartbeat(_) => {}
                other => panic!("{other:?}"),
            });
            Err::<(), _>(std::io::ErrorKind::WouldBlock.into())
        });
    }
    took
}

struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    have: usize,
    out: Vec<u8>,
}

impl Client {
    fn connect(address: &str) -> Client {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut out = Preamble::OURS.to_bytes().to_vec();
        FromClient::Hello(Hello { tenant: "", credentials: &[], client: "hot" }).encode(&mut out);
        stream.write_all(&out).unwrap();
        stream.read_exact(&mut [0; 8]).unwrap();
        Client { stream, buffer: vec![0; 1 << 20], have: 0, out: Vec::new() }
    }

    fn say(&mut self, message: FromClient<'_>) {
        self.out.clear();
        message.encode(&mut self.out);
        self.stream.write_all(&self.out).unwrap();
    }

    fn read(&mut self, mut each: impl FnMut(FromNode<'_>)) -> bool {
        match self.stream.read(&mut self.buffer[self.have..]) {
            Ok(read) => self.have += read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
            Err(error) => panic!("{error}"),
        }
        let decoder = Decoder::new(wire::Limits::default());
        let mut at = 0;
        while let Next::Message(message, taken) = decoder.next_from_node(&self.buffer[at..self.have]).unwrap()
        {
            each(message);
            at += taken;
        }
        self.buffer.copy_within(at..self.have, 0);
        self.have -= at;
        true
    }

    fn subscribe(&mut self, pattern: &str, registered: bool) {
        self.say(FromClient::Subscribe(Subscribe {
            subscription: 1,
            credit: 4 << 20,
            start: StartAt::Latest,
            on_gap: OnGap::Oldest,
            registered,
            pattern,
            name: "hot",
        }));
        let mut subscribed = false;
        while !subscribed {
            self.read(|m| subscribed |= matches!(m, FromNode::Subscribed(_)));
        }
    }
}

fn reader(address: &str, count: u64) {
    let mut client = Client::connect(address);
    client.subscribe("s", true);
    println!("ready");
    let (mut last, mut bytes, mut renewed) = (0, 0u64, 0u64);
    let (mut channel, mut epoch, mut reads) = (0, 0, 0);
    while last < count {
        reads += 1;
        client.read(|message| match message {
            FromNode::Run(run) => {
                assert_eq!(run.header.prev_seq, last);
                (channel, epoch) = (run.header.topic_id, run.header.epoch);
                let mut rest = run.frames;
                while let Some((frame, taken)) = Frame::split(rest) {
                    last += 1;
                    assert_eq!(frame.payload().first_chunk(), Some(&last.to_le_bytes()));
                    rest = &rest[taken..];
                }
                bytes += run.frames.len() as u64 + 40;
            }
            FromNode::Heartbeat(_) | FromNode::Lagging(_) => {}
            other => panic!("{other:?}"),
        });
        if bytes - renewed > 256 << 10 || last == count {
            renewed = bytes;
            let consumed = [ChannelPosition { channel, position: Position { epoch, seq: last } }];
            let credit =
                Credit { subscription: 1, granted: bytes + (4 << 20), consumed: List::new(&consumed) };
            client.say(FromClient::Credit(credit));
        }
    }
    println!("done");
    eprintln!("  {reads} reads of {} B", bytes / reads);
}

fn writer(address: &str, size: usize, count: u64) {
    let mut client = Client::connect(address);
    client.say(FromClient::OpenPublisher(OpenPublisher {
        publisher: 1,
        producer: 0,
        producer_epoch: 0,
        subject: "s",
    }));
    let meta = Meta::default();
    let encoded = meta.measure(size).unwrap();
    let batch = (32 << 10) / encoded.padded().min(32 << 10);
    let (mut frames, mut payload) = (vec![0; encoded.padded() * batch], vec![0; size]);
    let mut answered = 0;
    let mut seq = 0u64;
    let in_flight_max = (4 << 20) / encoded.padded() as u64;
    while seq < count {
        let first = seq + 1;
        let records = (batch as u64).min(count - seq);
        for at in 0..records as usize {
            seq += 1;
            payload[..8].copy_from_slice(&seq.to_le_bytes());
            meta.encode(encoded, 0, &payload, &mut frames[at * encoded.padded()..]);
        }
        let bytes = records as usize * encoded.padded();
        let header = PublishHeader {
            publisher: 1,
            partition: 0,
            expect_seq: 0,
            producer_seq: first,
            count: records as u32,
            bytes: bytes as u32,
        };
        client.out.clear();
        let publish = wire::Publish { flags: 0, header, frames: &frames[..bytes] };
        FromClient::Publish(publish).encode(&mut client.out);
        client.stream.write_all(&client.out).unwrap();
        while seq - answered > in_flight_max {
            client.read(|m| {
                if let FromNode::Published(published) = m {
                    answered = published.through;
                }
            });
        }
    }
    while answered < count {
        client.read(|m| {
            if let FromNode::Published(published) = m {
                answered = published.through;
            }
        });
    }
}

/// Round trips: a raw echo in another thread, and a responder of the node.
fn trip(spin: bool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(spin).unwrap();
        let mut bytes = [0; 1024];
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => return,
                Ok(read) => stream.write_all(&bytes[..read]).unwrap(),
                Err(_) => std::hint::spin_loop(),
            }
        }
    });
    let mut raw = TcpStream::connect(address).unwrap();
    raw.set_nodelay(true).unwrap();
    raw.set_nonblocking(spin).unwrap();
    let mut bytes = [7; 64];
    let mut raw_trip = || {
        raw.write_all(&bytes).unwrap();
        while raw.read(&mut bytes).is_err() {
            std::hint::spin_loop();
        }
    };

    let (node, server) = serve(spin);
    let _responder = node.respond("ask", |mut request| {
        let payload = request.record().payload().to_owned();
        request.reply(payload.as_slice()).unwrap();
    });
    let mut client = Client::connect(&server.tcp_addresses()[0].to_string());
    let mut prefix = String::new();
    while prefix.is_empty() {
        client.read(|m| {
            if let FromNode::Welcome(welcome) = m {
                prefix = welcome.inbox_prefix.to_owned();
            }
        });
    }
    client.subscribe(&format!("{prefix}>"), false);
    let (producer, producer_epoch) = (0, 0);
    client.say(FromClient::OpenPublisher(OpenPublisher {
        publisher: 1,
        producer,
        producer_epoch,
        subject: "ask",
    }));
    client.stream.set_nonblocking(spin).unwrap();
    let reply_to = format!("{prefix}1");
    let meta = Meta { reply: Some(&reply_to), ..Default::default() };
    let encoded = meta.measure(64).unwrap();
    let mut frame = vec![0; encoded.padded()];
    meta.encode(encoded, 0, &[7; 64], &mut frame);
    let mut seq = 0;
    let mut granted = 4 << 20;
    let mut ours = || {
        seq += 1;
        let header = PublishHeader {
            publisher: 1,
            partition: 0,
            expect_seq: 0,
            producer_seq: seq,
            count: 1,
            bytes: frame.len() as u32,
        };
        client.say(FromClient::Publish(wire::Publish { flags: wire::FLAG_QUIET, header, frames: &frame }));
        let mut answered = false;
        while !answered {
            if !client.read(|m| answered |= matches!(m, FromNode::Run(_))) {
                std::hint::spin_loop();
            }
        }
        if seq.is_multiple_of(1_000) {
            granted += 1_000_000;
            client.say(FromClient::Credit(Credit { subscription: 1, granted, consumed: List::new(&[]) }));
        }
    };
    for _ in 0..3 {
        let raw = percentiles(&mut raw_trip);
        let ours = percentiles(&mut ours);
        println!(
            "raw p50 {} p99 {}, ours p50 {} p99 {} ns: {:.2}",
            raw.0,
            raw.1,
            ours.0,
            ours.1,
            ours.0 as f64 / raw.0 as f64
        );
    }
    std::process::exit(0);
}

fn percentiles(trip: &mut impl FnMut()) -> (u64, u64) {
    let mut took: Vec<u64> = (0..20_000)
        .map(|_| {
            let began = Instant::now();
            trip();
            began.elapsed().as_nanos() as u64
        })
        .collect();
    took.sort_unstable();
    (took[took.len() / 2], took[took.len() * 99 / 100])
}
