//! Tests of the control state through the crate's public interface.

mod golden;
mod hostile;
mod leases;
mod locks;
mod model;
mod oracle;
mod placements;
mod plain;
mod snapshots;
mod transactions;

use dunlin_control::*;

/// A control state, and the effects of the commands that were applied to it.
#[derive(Default)]
struct TestState {
    state: ControlState,
    effects: ControlEffects,
}

impl TestState {
    fn apply(&mut self, command: ControlCommand<'_>) -> Result<ControlReply, ControlRefusal> {
        self.state.apply(&command, &mut self.effects)
    }

    fn put(&mut self, key: &str, value: &str) -> u64 {
        self.put_with_lease(key, value, 0)
    }

    fn put_with_lease(&mut self, key: &str, value: &str, lease: u64) -> u64 {
        let put = ControlCommand::Put { key: key.as_bytes(), value: value.as_bytes(), lease };
        match self.apply(put) {
            Ok(ControlReply::Changed { revision, keys: 1 }) => revision,
            other => panic!("{other:?}"),
        }
    }

    fn grant(&mut self, ttl_ms: u64) -> u64 {
        match self.apply(ControlCommand::Grant { ttl_ms }) {
            Ok(ControlReply::Granted { lease, .. }) => lease,
            other => panic!("{other:?}"),
        }
    }

    fn advance(&mut self, now_ms: u64) {
        self.state.advance(now_ms, &mut self.effects);
    }

    fn value(&self, key: &str) -> Option<String> {
        self.state.get(key.as_bytes()).map(|item| text(&item.value))
    }

    fn keys(&self) -> Vec<String> {
        self.state.range(b"", b"", 0).items.iter().map(|pair| text(&pair.key)).collect()
    }

    fn acquire(&mut self, name: &str, lease: u64, wait: bool) -> Result<ControlReply, ControlRefusal> {
        let value = format!("of {lease}");
        self.apply(ControlCommand::Acquire { name: name.as_bytes(), lease, value: value.as_bytes(), wait })
    }

    fn release(&mut self, name: &str, lease: u64) -> Result<ControlReply, ControlRefusal> {
        self.apply(ControlCommand::Release { name: name.as_bytes(), lease })
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
