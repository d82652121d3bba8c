use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap()
}

fn index(patterns: &[&'static str]) -> PatternIndex<&'static str> {
    let mut index = PatternIndex::new();
    patterns.iter().for_each(|text| assert_eq!(index.insert(&pattern(text), *text), None));
    index
}

fn overlapping<'a>(index: &'a PatternIndex<&'static str>, text: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    index.for_each_overlapping(&pattern(text), |value| found.push(*value));
    found.sort();
    found
}

#[test]
fn pattern_index_finds_topic_of_a_subject_by_name_or_wildcard() {
    let index = index(&["a", "a.b", "b.*.x", "b.c.y", "c.>"]);
    let owner = |text: &str| index.owner(Subject::parse(text).unwrap()).copied();
    assert_eq!(owner("a"), Some("a"));
    assert_eq!(owner("a.b"), Some("a.b"));
    assert_eq!(owner("b.c.x"), Some("b.*.x"), "the literal branch b.c has no match");
    assert_eq!(owner("b.c.y"), Some("b.c.y"));
    assert_eq!(owner("c.d.e"), Some("c.>"));
    assert_eq!((owner("c"), owner("b.c"), owner("a.b.c"), owner("z")), (None, None, None, None));
}

#[test]
fn limited_search_reports_whether_it_visited_everything() {
    let index = index(&["a.x", "b.x", "c.x", "c.y.z"]);
    let search = |text: &str, nodes_max| {
        let mut found = Vec::new();
        let is_complete =
            index.for_each_overlapping_within(&pattern(text), nodes_max, |value| found.push(*value));
        (is_complete, found.len())
    };
    assert_eq!(search("c.x", 2), (true, 1));
    assert_eq!(search("*.x", 6), (true, 3));
    assert!(!search("*.x", 5).0);
    assert!(!search("*.missing", 2).0, "nodes without a match count, too");
}

#[test]
fn pattern_index_finds_every_topic_that_overlaps_a_pattern() {
    let index = index(&["a", "a.b", "b.*.x", "b.c.y", "c.>"]);
    assert_eq!(overlapping(&index, ">"), ["a", "a.b", "b.*.x", "b.c.y", "c.>"]);
    assert_eq!(overlapping(&index, "*"), ["a"]);
    assert_eq!(overlapping(&index, "b.c.*"), ["b.*.x", "b.c.y"]);
    assert_eq!(overlapping(&index, "*.*.x"), ["b.*.x", "c.>"]);
    assert_eq!(overlapping(&index, "c.d"), ["c.>"]);
    assert_eq!(overlapping(&index, "c"), [""; 0]);
}

#[test]
fn pattern_index_is_empty_after_removal_of_all_patterns() {
    let mut index = index(&["a.b.c", "a.*.c", "a.>"]);
    for text in ["a.b.c", "a.*.c", "a.>"] {
        assert_eq!(index.remove(&pattern(text)), Some(text));
        assert_eq!(index.remove(&pattern(text)), None);
    }
    assert!(index.is_empty() && index.root.is_empty());
}

#[test]
fn hundred_thousand_topic_names_are_found_and_removed() {
    let mut index = PatternIndex::new();
    let name = |n: u32| pattern(&format!("site.{}.sensor.{}", n % 317, n));
    for n in 0..100_000 {
        assert_eq!(index.find_overlapping(&name(n)), None);
        index.insert(&name(n), n);
    }
    for n in (0..100_000).step_by(7) {
        assert_eq!(index.owner(Subject::parse(name(n).as_str()).unwrap()), Some(&n));
    }
    let mut found = 0;
    index.for_each_overlapping(&pattern("site.5.>"), |n| {
        assert_eq!(n % 317, 5);
        found += 1;
    });
    assert_eq!(found, 100_000 / 317 + 1);
    (0..100_000).for_each(|n| assert_eq!(index.remove(&name(n)), Some(n)));
    assert!(index.root.is_empty());
}

fn token() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"])
}

fn pattern_text() -> impl Strategy<Value = String> {
    let token = prop_oneof![6 => token(), 1 => Just("*")];
    (prop::collection::vec(token, 0..4), prop::bool::weighted(0.2)).prop_filter_map(
        "empty",
        |(mut tokens, arrow)| {
            tokens.extend(arrow.then_some(">"));
            (!tokens.is_empty()).then(|| tokens.join("."))
        },
    )
}

fn check_against_list(changes: &[(bool, String)], queries: &[String], disjoint: bool) {
    let mut index = PatternIndex::new();
    let mut list: BTreeMap<String, usize> = BTreeMap::new();
    for (number, (insert, text)) in changes.iter().enumerate() {
        let p = pattern(text);
        let expected = list.iter().filter(|(known, _)| pattern(known).overlaps(&p)).map(|(_, n)| *n);
        let expected: Vec<usize> = expected.collect();
        let found = index.find_overlapping(&p).copied();
        assert!(if expected.is_empty() {
            found.is_none()
        } else {
            found.is_some_and(|found| expected.contains(&found))
        });
        if !insert {
            assert_eq!(index.remove(&p), list.remove(text));
        } else if expected.is_empty() || !disjoint {
            assert_eq!(index.insert(&p, number), list.insert(text.clone(), number));
        }
        assert_eq!(index.len(), list.len());
    }
    for text in queries {
        let query = pattern(text);
        let mut found = Vec::new();
        index.for_each_overlapping(&query, |number| found.push(*number));
        found.sort();
        let mut expected: Vec<usize> =
            list.iter().filter(|(known, _)| pattern(known).overlaps(&query)).map(|(_, n)| *n).collect();
        expected.sort();
        assert_eq!(found, expected, "{text}");
        if let Ok(subject) = Subject::parse(text) {
            let owner = index.owner(subject).copied();
            let matching =
                |n: &usize| list.iter().any(|(known, m)| m == n && pattern(known).matches(subject));
            assert!(if expected.is_empty() { owner.is_none() } else { owner.as_ref().is_some_and(matching) });
        }
    }
    index.retain(|number| *number % 3 != 0);
    list.retain(|_, number| *number % 3 != 0);
    assert_eq!(index.len(), list.len());
    list.keys().for_each(|text| assert!(index.remove(&pattern(text)).is_some()));
    assert!(index.root.is_empty());
}

proptest! {
    #[test]
    fn index_of_owned_patterns_agrees_with_a_list_search(
        changes in prop::collection::vec((prop::bool::weighted(0.7), pattern_text()), 0..60),
        queries in prop::collection::vec(pattern_text(), 0..20),
    ) {
        check_against_list(&changes, &queries, true);
    }

    #[test]
    fn index_of_watched_patterns_agrees_with_a_plain_list(
        changes in prop::collection::vec((prop::bool::weighted(0.7), pattern_text()), 0..60),
        queries in prop::collection::vec(pattern_text(), 0..20),
    ) {
        check_against_list(&changes, &queries, false);
    }
}
