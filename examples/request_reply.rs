//! Sends a request to a responder and receives the reply, all inside one process.

use std::time::Duration;

use dunlin::{Config, Node};

fn main() -> anyhow::Result<()> {
    let node = Node::start(Config::default())?;
    let _responder = node.respond("upper", |mut request| {
        let upper = request.record().payload().to_ascii_uppercase();
        let _ = request.reply(upper.as_slice());
    })?;
    let reply = node.request("upper", "hello", Duration::from_secs(1))?;
    println!("{}", String::from_utf8_lossy(&reply.payload));
    Ok(())
}
