//! Rough speeds of the hot path, for work on it: `cargo run --release -p dunlin-topic --example hot`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dunlin_topic::*;

fn now_ns() -> u64 {
    // SAFETY: rdtsc has no preconditions.
    unsafe { core::arch::x86_64::_rdtsc() }
}

fn pin(core: usize) {
    core_affinity::set_for_current(core_affinity::CoreId { id: core });
}

fn topic(bytes: u64, reliable: bool) -> Arc<Topic> {
    let budget = Budget::node(4 << 30, 64 << 20);
    let config = TopicConfig {
        retention: Retention { bytes, ..Retention::default() },
        reliable: reliable.then(|| Reliable { wait_max: Duration::from_secs(20), ..Reliable::default() }),
        ..TopicConfig::default()
    };
    Arc::new(Topic::new("hot", Arc::new(config), &budget, Clock(now_ns), 1).unwrap())
}

fn subscriber(topic: &Arc<Topic>, wait: Wait) -> Subscriber {
    let options = SubscribeOptions { registered: true, wait, start: Start::Earliest, ..Default::default() };
    let cursor = Cursor::new(topic.logs()[0].clone(), &options, None, Consumption::Reads).unwrap();
    Subscriber::one(cursor, wait)
}

fn stream(name: &str, payload: usize, count: u64, batch: usize, by_ref: bool, retention: u64) {
    let topic = topic(retention, true);
    let mut sub = subscriber(&topic, Wait::Spin);
    let publisher = topic.clone();
    let start = Instant::now();
    pin(0);
    let thread = thread::spawn(move || {
        pin(1);
        let mut p = publisher.publisher("hot");
        let data = vec![7u8; payload];
        let shared = Bytes::from(data.clone());
        let drafts: Vec<Draft> = (0..batch).map(|_| Draft::from(data.as_slice())).collect();
        let mut sent = 0;
        while sent < count {
            if batch > 1 {
                p.publish_batch(&drafts).unwrap();
                sent += batch as u64;
            } else if by_ref {
                p.publish(shared.clone()).unwrap();
                sent += 1;
            } else {
                p.publish(data.as_slice()).unwrap();
                sent += 1;
            }
        }
    });
    let mut seen = 0u64;
    let mut sum = 0u64;
    while seen < count {
        sub.wait(None).unwrap();
        sub.drain(usize::MAX, |event| match event {
            Event::Record(r) => {
                seen += 1;
                assert_eq!(r.seq(), seen);
                let p = r.payload();
                if by_ref {
                    sum += p[0] as u64 + p[p.len() - 1] as u64;
                } else {
                    sum += p
                        .chunks_exact(8)
                        .map(|c| u64::from_le_bytes(c.try_into().unwrap()))
                        .fold(0, u64::wrapping_add);
                }
            }
            other => panic!("{other:?}"),
        })
        .unwrap();
    }
    let t = start.elapsed().as_secs_f64();
    thread.join().unwrap();
    println!(
        "{name:30} {:8.2} M/s {:8.2} GB/s  ({sum})",
        seen as f64 / t / 1e6,
        seen as f64 * payload as f64 / t / 1e9
    );
}

fn round_trip(wait: Wait) {
    let (a, b) = (topic(1 << 20, false), topic(1 << 20, false));
    let mut at_a = subscriber(&a, wait);
    let mut at_b = subscriber(&b, wait);
    let stop = Arc::new(AtomicBool::new(false));
    let (b2, stop2) = (b.clone(), stop.clone());
    pin(0);
    let echo = thread::spawn(move || {
        pin(1);
        let mut p = b2.publisher("hot");
        while !stop2.load(Ordering::Relaxed) {
            if let Ok(Some(Event::Record(r))) = at_a.next_timeout(Duration::from_millis(50)) {
                p.publish(r.payload()).unwrap();
            }
        }
    });
    let mut p = a.publisher("hot");
    let mut times = Vec::new();
    for _ in 0..100_000 {
        let t = now_ns();
        p.publish(&[1u8; 64]).unwrap();
        let Event::Record(_) = at_b.next().unwrap() else { panic!() };
        times.push((now_ns() - t) * 10 / 26);
    }
    stop.store(true, Ordering::Relaxed);
    echo.join().unwrap();
    times.sort();
    println!("round trip {wait:?}: p50 {} ns p99 {} ns", times[50_000], times[99_000]);
}

fn fanout(readers: usize) {
    let topic = topic(4 << 20, false);
    let mut p = topic.publisher("hot");
    let total_records = (200_000_000 / readers as u64).max(2_000);
    let per_round = (total_records / 20).clamp(64, 20_000);
    let rounds = total_records / per_round;
    let data = [7u8; 64];
    let drafts: Vec<Draft> = (0..per_round).map(|_| Draft::from(&data)).collect();
    let start = Instant::now();
    let barrier = std::sync::Barrier::new(2);
    thread::scope(|s| {
        let mut halves: Vec<Vec<Subscriber>> =
            (0..2).map(|_| (0..readers / 2).map(|_| subscriber(&topic, Wait::Spin)).collect()).collect();
        let (second, first) = (halves.pop().unwrap(), halves.pop().unwrap());
        for (index, mut subs) in [first, second].into_iter().enumerate() {
            let (barrier, drafts) = (&barrier, &drafts);
            let mut p = if index == 0 { Some(topic.publisher("hot")) } else { None };
            s.spawn(move || {
                pin(index);
                let mut seen = 0u64;
                for _ in 0..rounds {
                    if let Some(p) = &mut p {
                        p.publish_batch(drafts).unwrap();
                    }
                    barrier.wait();
                    for sub in &mut subs {
                        let mut n = 0;
                        while n < per_round {
                            sub.drain(usize::MAX, |event| match event {
                                Event::Record(r) => {
                                    n += 1;
                                    assert!(r.payload() == data);
                                }
                                other => panic!("{other:?}"),
                            })
                            .unwrap();
                        }
                        seen += n;
                    }
                    barrier.wait();
                }
                assert_eq!(seen, rounds * per_round * subs.len() as u64);
            });
        }
    });
    let t = start.elapsed().as_secs_f64();
    p.flush().unwrap();
    println!(
        "fan-out {readers:6}: {:8.1} M deliveries/s",
        (rounds * per_round * readers as u64) as f64 / t / 1e6
    );
}

fn publish_alone(batch: usize) {
    let topic = topic(4 << 20, false);
    let mut p = topic.publisher("hot");
    let data = [7u8; 64];
    let drafts: Vec<Draft> = (0..batch).map(|_| Draft::from(&data)).collect();
    let n = 20_000_000;
    let start = Instant::now();
    for _ in 0..n / batch {
        if batch > 1 {
            p.publish_batch(&drafts).unwrap();
        } else {
            p.publish(&data).unwrap();
        }
    }
    println!("publish alone, batch {batch}: {:.1} ns", start.elapsed().as_nanos() as f64 / n as f64);
}

fn main() {
    publish_alone(1);
    publish_alone(256);
    if std::env::args().nth(1).is_some() {
        return;
    }
    println!(
        "sizes: cursor {} subscriber {} waiter {} log {}",
        size_of::<Cursor>(),
        size_of::<Subscriber>(),
        size_of::<Waiter>(),
        size_of::<Log>()
    );
    stream("64 B one by one", 64, 20_000_000, 1, false, 4 << 20);
    stream("64 B batch 256", 64, 50_000_000, 256, false, 1 << 20);
    stream("1 KB", 1024, 5_000_000, 1, false, 4 << 20);
    stream("8 KB", 8192, 2_000_000, 1, false, 4 << 20);
    stream("64 KB", 65536, 300_000, 1, false, 4 << 20);
    stream("8 KB by ref", 8192, 10_000_000, 1, true, 256 << 20);
    stream("64 KB by ref", 65536, 10_000_000, 1, true, 1 << 30);
    round_trip(Wait::Spin);
    round_trip(Wait::Default);
    fanout(100);
    fanout(100_000);
}
