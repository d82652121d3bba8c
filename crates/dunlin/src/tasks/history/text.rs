//! Encodes an event as a JSON object (RFC 8259).
//!
//! The code does not use `std::fmt`, which is several times slower: the thread of the state machine encodes about three
//! events for each task.

use dunlin_tasks::{AttemptFailure, TaskEvent, TaskEventKind};

/// The name of a tenant as a JSON string, with quotes. Invalid UTF-8 becomes `U+FFFD`.
pub(super) fn quoted(name: &[u8]) -> String {
    let mut out = String::from("\"");
    for char in String::from_utf8_lossy(name).chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// Appends an event as a JSON object. `tenant` is the result of [`quoted`].
pub(super) fn write_event(out: &mut String, tenant: &str, at_unix_ms: u64, event: &TaskEvent) {
    out.push_str("{\"task\":\"");
    push_hex(out, event.task);
    out.push_str("\",\"tenant\":");
    out.push_str(tenant);
    push_field(out, ",\"at_ms\":", at_unix_ms);
    out.push_str(",\"event\":\"");
    write_kind(out, &event.kind);
    out.push('}');
}

/// Appends the name and the fields of an event. The caller has already written the quote that opens the name.
fn write_kind(out: &mut String, kind: &TaskEventKind) {
    match *kind {
        TaskEventKind::Submitted => out.push_str("submitted\""),
        TaskEventKind::Started { worker: 0, .. } => out.push_str("publishing\""),
        TaskEventKind::Started { worker, token } => {
            out.push_str("started\",\"worker\":\"");
            push_hex(out, worker);
            push_field(out, "\",\"token\":", token);
        }
        TaskEventKind::Progressed { permille } => {
            push_field(out, "progressed\",\"permille\":", u64::from(permille));
        }
        TaskEventKind::Completed { cpu_us, run_us } => {
            push_field(out, "completed\",\"cpu_us\":", cpu_us);
            push_field(out, ",\"run_us\":", run_us);
        }
        TaskEventKind::Retrying { why, delay_ms } => {
            out.push_str("retrying\",\"why\":\"");
            out.push_str(failure_name(why));
            push_field(out, "\",\"delay_ms\":", u64::from(delay_ms));
        }
        TaskEventKind::Lost { times } => push_field(out, "lost\",\"times\":", u64::from(times)),
        TaskEventKind::Dead { why } => {
            out.push_str("dead\",\"why\":\"");
            out.push_str(failure_name(why));
            out.push('"');
        }
        TaskEventKind::Cancelled => out.push_str("cancelled\""),
        TaskEventKind::Redriven => out.push_str("redriven\""),
        TaskEventKind::Discarded => out.push_str("discarded\""),
    }
}

fn failure_name(why: AttemptFailure) -> &'static str {
    match why {
        AttemptFailure::Failed => "failed",
        AttemptFailure::TimedOut => "timed_out",
        AttemptFailure::Deadline => "deadline",
        AttemptFailure::Poisoned => "poisoned",
    }
}

fn push_field(out: &mut String, name: &str, number: u64) {
    out.push_str(name);
    out.push_str(itoa::Buffer::new().format(number));
}

fn push_hex(out: &mut String, number: u64) {
    let digits = (64 - number.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        let digit = (number >> (4 * digit)) as u32 & 15;
        out.push(char::from_digit(digit, 16).unwrap_or('0'));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_always_valid_json() {
        assert_eq!(quoted(b"a\"b\\c\n\xff"), "\"a\\\"b\\\\c\\u000a\u{fffd}\"");
    }

    #[test]
    fn every_task_event_is_a_json_object_with_its_own_fields() {
        let encoded = |what| {
            let event = TaskEvent { task: 0x1_0000_000a, tenant: 0, at_ms: 1, kind: what };
            let mut out = String::new();
            write_event(&mut out, "\"acme\"", 1_700, &event);
            let begins = "{\"task\":\"10000000a\",\"tenant\":\"acme\",\"at_ms\":1700,\"event\":\"";
            let rest = out.strip_prefix(begins).and_then(|rest| rest.strip_suffix('}'));
            rest.unwrap_or_else(|| panic!("{out}")).to_owned()
        };
        let started = TaskEventKind::Started { worker: 0x20_0000_0000, token: u64::MAX };
        assert_eq!(encoded(started), "started\",\"worker\":\"2000000000\",\"token\":18446744073709551615");
        assert_eq!(encoded(TaskEventKind::Started { worker: 0, token: 0 }), "publishing\"");
        let completed = TaskEventKind::Completed { cpu_us: 0, run_us: 12 };
        assert_eq!(encoded(completed), "completed\",\"cpu_us\":0,\"run_us\":12");
        let retrying = TaskEventKind::Retrying { why: AttemptFailure::TimedOut, delay_ms: 5 };
        assert_eq!(encoded(retrying), "retrying\",\"why\":\"timed_out\",\"delay_ms\":5");
        assert_eq!(
            encoded(TaskEventKind::Dead { why: AttemptFailure::Poisoned }),
            "dead\",\"why\":\"poisoned\""
        );
        assert_eq!(encoded(TaskEventKind::Progressed { permille: 7 }), "progressed\",\"permille\":7");
        assert_eq!(encoded(TaskEventKind::Lost { times: 2 }), "lost\",\"times\":2");
        assert_eq!(encoded(TaskEventKind::Submitted), "submitted\"");
    }

    #[test]
    fn numbers_are_written_in_lowercase_hexadecimal() {
        for number in [0, 1, 15, 16, 0xabc, u64::MAX] {
            let mut out = String::new();
            push_hex(&mut out, number);
            assert_eq!(out, format!("{number:x}"));
        }
    }
}
