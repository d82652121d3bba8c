//! Leaders that stand still, have no room, or are ended: what those see who write meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dunlin_client::{Client, Options};
use dunlin_system_tests::port;

use super::cluster_stage::{Flock, start_with};

/// A write that was on its way to the frozen leader once waited 1.5 s, until that node was silent for too long.
#[test]
fn frozen_leader_is_not_waited_for() {
    // Longer than a test may take: only that another leads ends the wait.
    let silent = vec!["silent=600000".to_owned()];
    let mut flock = Flock::with(&[silent.clone(), silent.clone(), silent]);
    for round in 0..3 {
        let leader = flock.leader();
        let other = (leader + 1) % 3;
        flock.put(other, "key", "before");
        flock.members[leader].process.stop();
        for number in 0..5 {
            flock.put(other, "key", &format!("{round}-{number}"));
        }
        assert_eq!(flock.get(other, "key"), format!("{round}-4"));
        flock.members[leader].process.go_on();
        flock.until_voters(3);
    }
}

/// Each writer once got one `COMMAND_UNKNOWN` for each node that was ended.
#[test]
fn rolling_restart_leaves_no_write_unknown() {
    let doors: Vec<String> = (0..3).map(|_| port::free().to_string()).collect();
    let options: Vec<Vec<String>> = doors.iter().map(|door| vec![format!("door={door}")]).collect();
    let mut flock = Flock::with(&options);
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let (url, is_over) = (format!("dunlin://{}", doors.join(",")), Arc::clone(&is_over));
            std::thread::spawn(move || {
                let client = Client::connect(&url, Options::default()).expect("a node is there");
                let (kv, mut count) = (client.kv(), 0_u64);
                while !is_over.load(Ordering::Relaxed) {
                    count += 1;
                    let put = kv.put(format!("of-{writer}"), count.to_string());
                    put.unwrap_or_else(|error| panic!("writer {writer}, put {count}: {error}"));
                }
                let held = kv.get(format!("of-{writer}")).expect("it can be read").expect("it was put");
                assert_eq!(*held.value, *count.to_string().as_bytes());
            })
        })
        .collect();
    for own in &options {
        let mut ended = flock.members.remove(0);
        ended.process.say("end");
        ended.process.until("ended in order");
        ended.process.wait();
        let again = start_with(&ended.dir, &ended.address, None, own).expect("it starts again");
        flock.members.push(again);
        flock.until_voters(3);
    }
    is_over.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().expect("no write failed"));
}
