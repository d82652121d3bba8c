use std::time::Duration;

use dunlin::RequestError;
use dunlin::topic::{Publish, SubscribeOptions};
use dunlin_wait::PATIENCE;

use crate::node;

#[test]
fn responder_in_the_node_answers_requests() {
    let node = node();
    let _responder = node.respond("double", |mut request| {
        let twice = request.record().payload().repeat(2);
        request.reply(twice.as_slice()).unwrap();
    });
    let mut requester = node.requester(&SubscribeOptions::default()).unwrap();
    for text in ["a", "b"] {
        assert_eq!(requester.request("double", text, PATIENCE).unwrap().payload, text.repeat(2).as_bytes());
    }
    assert_eq!(node.request("double", "c", PATIENCE).unwrap().payload, b"cc");
}

#[test]
fn request_without_responder_is_refused() {
    let node = node();
    let short = Duration::from_millis(10);
    assert_eq!(node.request("nobody", "?", short), Err(RequestError::NoResponder("nobody".to_owned())));
}

#[test]
fn late_reply_does_not_answer_the_next_request() {
    let node = node();
    let mut requester = node.requester(&SubscribeOptions::default()).unwrap();
    let mut requests = node.subscribe("slow", &SubscribeOptions::default()).unwrap();
    assert!(requester.request("slow", "1", Duration::from_millis(1)).is_err());
    let reply_to = {
        use dunlin::topic::{Event, Subscribe};
        let Ok(Some(Event::Record(record))) = requests.try_next() else {
            panic!("the request was published")
        };
        record.frame.reply().unwrap().to_owned()
    };
    node.publisher(&reply_to).unwrap().publish("late").unwrap();
    let _responder = node.respond("slow", |mut request| drop(request.reply("prompt")));
    assert_eq!(requester.request("slow", "2", PATIENCE).unwrap().payload, b"prompt");
}

#[test]
fn inbox_is_freed_with_its_requester() {
    let node = node();
    let requester = node.requester(&SubscribeOptions::default()).unwrap();
    drop(requester);
    assert!(node.publisher("_INBOX.1.1").is_err());
}
