//! Tests of states with the last value of each key.

use std::collections::BTreeMap;

use dunlin_feed::{FeedLimits, LastValue, ValueEntry};
use dunlin_topic::Reducer;
use proptest::prelude::*;

use crate::cuts::check_every_way_to_catch_up;
use crate::record::{RecordFrame, append, check};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, Clone)]
enum Step {
    Keyed(Vec<u8>, Vec<u8>),
    /// Changes of several keys in one record. Each key has its new value, or `None` if the key is removed.
    Entries(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    Clear,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || prop::collection::vec(0_u8..3, 0..3);
    let value = || prop::collection::vec(any::<u8>(), 0..20);
    let entries = prop::collection::vec((key(), prop::option::weighted(0.7, value())), 1..4);
    let step = prop_oneof![
        8 => (key(), value()).prop_map(|(key, value)| Step::Keyed(key, value)),
        4 => entries.prop_map(Step::Entries),
        1 => Just(Step::Clear),
    ];
    prop::collection::vec(step, 1..40)
}

/// Generates a step of one entry.
fn one_entry() -> impl Strategy<Value = Step> {
    let key = prop::collection::vec(0_u8..3, 0..2);
    let value = prop::collection::vec(any::<u8>(), 0..30);
    prop_oneof![9 => (key, value).prop_map(|(key, value)| Step::Keyed(key, value)), 1 => Just(Step::Clear)]
}

fn record(step: &Step) -> RecordFrame {
    let mut payload = Vec::new();
    match step {
        Step::Keyed(key, value) => return RecordFrame::keyed(key, value),
        Step::Clear => ValueEntry::Clear.encode(&mut payload),
        Step::Entries(entries) => {
            for (key, value) in entries {
                match value {
                    Some(value) => ValueEntry::Set { key, value }.encode(&mut payload),
                    None => ValueEntry::Remove { key }.encode(&mut payload),
                }
            }
        }
    }
    RecordFrame::new(&payload)
}

fn apply(model: &mut Model, step: &Step) {
    let mut set = |key: &Vec<u8>, value: Option<&Vec<u8>>| match value {
        Some(value) => drop(model.insert(key.clone(), value.clone())),
        None => drop(model.remove(key)),
    };
    match step {
        Step::Keyed(key, value) => set(key, Some(value).filter(|value| !value.is_empty())),
        Step::Entries(entries) => entries.iter().for_each(|(key, value)| set(key, value.as_ref())),
        Step::Clear => model.clear(),
    }
}

proptest! {
    #[test]
    fn state_of_last_values_equals_its_model_after_every_record(steps in steps()) {
        let (mut values, mut model) = (LastValue::default(), Model::new());
        for (index, step) in steps.iter().enumerate() {
            append(&mut values, index as u64 + 1, &record(step)).unwrap();
            apply(&mut model, step);
            let stored: Model = values.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            prop_assert_eq!(&stored, &model);
            prop_assert_eq!(values.len(), model.len());
        }
    }

    #[test]
    fn snapshot_and_changes_give_the_last_values_of_a_full_replay(steps in steps()) {
        let records: Vec<_> = steps.iter().map(record).collect();
        check_every_way_to_catch_up(|| Box::new(LastValue::default()), &records);
    }

    /// Compares one append of several entries with an append of each entry alone, in a small state.
    #[test]
    fn batch_of_values_is_accepted_if_each_entry_is_accepted_alone(
        steps in prop::collection::vec(one_entry(), 1..12),
        last in one_entry(),
    ) {
        let limits = FeedLimits { keys_max: 3, last_bytes_max: 70, ..FeedLimits::default() };
        let (mut one_by_one, batch) = (LastValue::with_limits(limits), LastValue::with_limits(limits));
        let mut is_accepted = |step: &Step| append(&mut one_by_one, 1, &record(step)).is_ok();
        let mut steps: Vec<_> = steps.into_iter().filter(&mut is_accepted).collect();
        let is_last_accepted = is_accepted(&last);
        steps.push(last);
        let records: Vec<_> = steps.iter().map(record).collect();
        prop_assert_eq!(check(&batch, &records).is_ok(), is_last_accepted);
    }

    #[test]
    fn check_accepts_only_payloads_that_can_be_applied(payload in prop::collection::vec(0_u8..3, 0..60)) {
        let mut values = LastValue::default();
        let garbage = RecordFrame::new(&payload);
        if check(&values, std::slice::from_ref(&garbage)).is_ok() {
            values.apply(1, &garbage.frame()).unwrap();
        }
    }
}

#[test]
fn empty_record_with_a_key_removes_the_key() {
    let mut values = LastValue::default();
    append(&mut values, 1, &RecordFrame::keyed(b"a", b"1")).unwrap();
    assert_eq!(values.get(b"a"), Some(&b"1"[..]));
    append(&mut values, 2, &RecordFrame::keyed(b"a", b"")).unwrap();
    assert_eq!(values.get(b"a"), None);
    assert_eq!(values.checksum(), 0);
    append(&mut values, 3, &RecordFrame::keyed(b"a", b"")).unwrap();
}

#[test]
fn full_state_accepts_new_values_but_no_new_key() {
    let limits = FeedLimits { keys_max: 1, ..FeedLimits::default() };
    let mut values = LastValue::with_limits(limits);
    append(&mut values, 1, &RecordFrame::keyed(b"a", b"1")).unwrap();
    let refused = check(&values, &[RecordFrame::keyed(b"b", b"1")]).unwrap_err();
    assert_eq!(refused.0, "the state would have more than 1 keys");
    append(&mut values, 2, &RecordFrame::keyed(b"a", b"2")).unwrap();
}

#[test]
fn limits_do_not_count_keys_that_a_record_removes() {
    let limits = FeedLimits { keys_max: 2, last_bytes_max: 100, ..FeedLimits::default() };
    let mut values = LastValue::with_limits(limits);
    let replace = |value_bytes_by_key: &[(&str, usize)]| {
        let mut payload = Vec::new();
        ValueEntry::Clear.encode(&mut payload);
        for &(key, value_bytes) in value_bytes_by_key {
            let value = vec![0; value_bytes];
            ValueEntry::Set { key: key.as_bytes(), value: &value }.encode(&mut payload);
        }
        RecordFrame::new(&payload)
    };
    append(&mut values, 1, &replace(&[("a", 30), ("b", 0)])).unwrap();
    append(&mut values, 2, &replace(&[("c", 30), ("d", 0)])).unwrap();
    let refused = check(&values, &[replace(&[("c", 0), ("d", 0), ("e", 0)])]).unwrap_err();
    assert_eq!(refused.0, "entry 4: the state would have more than 2 keys");
    let refused = check(&values, &[replace(&[("c", 30), ("d", 60)])]).unwrap_err();
    assert!(refused.to_string().contains("more than 100 bytes"), "{refused}");
}

#[test]
fn values_beyond_the_byte_limit_are_refused() {
    let limits = FeedLimits { last_bytes_max: 100, ..FeedLimits::default() };
    let mut values = LastValue::with_limits(limits);
    append(&mut values, 1, &RecordFrame::keyed(b"a", &[0; 40])).unwrap();
    let refused = check(&values, &[RecordFrame::keyed(b"b", &[0; 40])]).unwrap_err();
    assert!(refused.to_string().contains("more than 100 bytes"), "{refused}");
    // The state is at its size limit, but a change that needs no additional room must still be accepted.
    append(&mut values, 2, &RecordFrame::keyed(b"a", &[1; 60])).unwrap();
    append(&mut values, 3, &RecordFrame::keyed(b"a", &[2; 60])).unwrap();
    append(&mut values, 4, &RecordFrame::keyed(b"a", b"")).unwrap();
    append(&mut values, 5, &RecordFrame::keyed(b"b", &[0; 40])).unwrap();
    assert_eq!(values.len(), 1);
}

#[test]
fn batch_that_changes_a_key_twice_frees_the_old_value_once() {
    let limits = FeedLimits { last_bytes_max: 100, ..FeedLimits::default() };
    let mut values = LastValue::with_limits(limits);
    append(&mut values, 1, &RecordFrame::keyed(b"a", &[0; 60])).unwrap();
    // Without a value the key is removed.
    let changes: [&[u8]; 2] = [b"", b"1"];
    for (first, second) in changes.into_iter().flat_map(|first| changes.map(|second| (first, second))) {
        let other = RecordFrame::keyed(b"b", &[0; 92]);
        let records = [RecordFrame::keyed(b"a", first), RecordFrame::keyed(b"a", second), other];
        let refused = check(&values, &records).unwrap_err();
        assert!(refused.to_string().contains("more than 100 bytes"), "{first:?} {second:?}: {refused}");
    }
}

#[test]
fn batch_may_replace_a_key_of_a_full_state() {
    let limits = FeedLimits { keys_max: 1, ..FeedLimits::default() };
    let mut values = LastValue::with_limits(limits);
    append(&mut values, 1, &RecordFrame::keyed(b"a", b"1")).unwrap();
    check(&values, &[RecordFrame::keyed(b"a", b""), RecordFrame::keyed(b"b", b"1")]).unwrap();
}
