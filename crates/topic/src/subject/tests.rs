use proptest::prelude::*;

use super::*;

fn pattern(text: &str) -> Pattern {
    Pattern::parse(text).unwrap()
}

fn subject(text: &str) -> Subject<'_> {
    Subject::parse(text).unwrap()
}

#[test]
fn refusal_of_an_invalid_subject_names_the_defect() {
    use SubjectError::*;
    let character = |subject: &str, character| Err(Character { subject: subject.to_owned(), character });
    let long = "a".repeat(SUBJECT_BYTES_MAX + 1);
    assert_eq!(Subject::parse("").map(|_| ()), Err(Empty));
    assert_eq!(Subject::parse(&long).map(|_| ()), Err(TooLong { bytes: 256 }));
    for text in [".", "a.", ".a", "a..b"] {
        assert_eq!(Subject::parse(text).map(|_| ()), Err(EmptyToken(text.to_owned())));
        assert_eq!(Pattern::parse(text).map(|_| ()), Err(EmptyToken(text.to_owned())));
    }
    for (text, wrong) in
        [("a b", ' '), ("a.\t", '\t'), ("\0", '\0'), ("a\u{a0}b", '\u{a0}'), ("a\u{85}", '\u{85}')]
    {
        assert_eq!(Subject::parse(text).map(|_| ()), character(text, wrong));
        assert_eq!(Pattern::parse(text).map(|_| ()), character(text, wrong));
    }
    for invisible in ['\u{200b}', '\u{202e}', '\u{2066}', '\u{feff}', '\u{e0041}'] {
        let text = format!("orders.eu{invisible}.created");
        assert_eq!(Subject::parse(&text).map(|_| ()), character(&text, invisible));
        assert_eq!(Pattern::parse(&text).map(|_| ()), character(&text, invisible));
    }
    for blank in
        ['\u{34f}', '\u{115f}', '\u{1160}', '\u{17b4}', '\u{17b5}', '\u{180b}', '\u{180f}', '\u{2800}']
            .into_iter()
            .chain(['\u{3164}', '\u{fe00}', '\u{fe0f}', '\u{ffa0}', '\u{e0100}', '\u{e01ef}'])
    {
        let text = format!("orders.eu{blank}.created");
        assert_eq!(Subject::parse(&text).map(|_| ()), character(&text, blank));
        assert_eq!(pattern(&text).check_new(), character(&text, blank));
        assert!(Subject::parse_existing(&text).is_ok_and(|subject| pattern("orders.>").matches(subject)));
    }
    assert_eq!(pattern("orders.*.größe.>").check_new(), Ok(()));
    assert!(Subject::parse("می\u{200c}خواهم").is_ok());
    for text in ["*", ">", "a.*", "a.>", "a*b"] {
        assert!(Subject::parse(text).is_err());
    }
    assert_eq!(Pattern::parse("a*.b").map(|_| ()), character("a*.b", '*'));
    assert_eq!(Pattern::parse("a.**").map(|_| ()), character("a.**", '*'));
    assert_eq!(Pattern::parse(">.a").map(|_| ()), character(">.a", '>'));
    assert_eq!(Pattern::parse("a.>>").map(|_| ()), character("a.>>", '>'));
}

#[test]
fn pattern_equal_to_the_longest_valid_subject_matches_it() {
    let text = "a".repeat(SUBJECT_BYTES_MAX);
    assert_eq!(pattern(&text).literal_prefix(), text);
    assert!(pattern(&text).matches(subject(&text)));
}

#[test]
fn system_subjects_and_non_latin_subjects_are_valid() {
    assert!(Subject::parse("преис.größe.値-1_x$").is_ok());
    assert!(subject("$DUNLIN.seq.a").is_system() && pattern("$SYS.>").is_system());
    assert!(!subject("a.$b").is_system() && !pattern(">").is_system());
    assert!(!subject("$SRV.PING").is_system() && !pattern("$SRV.>").is_system());
    assert!(subject("$SRVX.PING").is_system());
}

#[test]
fn literal_prefix_of_a_pattern_ends_at_the_first_wildcard() {
    let cases = [
        ("a.b", "a.b"),
        ("a.*", "a."),
        ("a.b.>", "a.b."),
        (">", ""),
        ("*.a", ""),
        ("a.*.b.>", "a."),
        ("a", "a"),
    ];
    for (text, prefix) in cases {
        assert_eq!(pattern(text).literal_prefix(), prefix, "{text}");
    }
}

#[test]
fn star_matches_one_token_and_gt_matches_one_or_more() {
    let matches = |p: &str, s: &str| pattern(p).matches(subject(s));
    assert!(matches("a.*", "a.b") && !matches("a.*", "a") && !matches("a.*", "a.b.c"));
    assert!(matches("a.>", "a.b") && matches("a.>", "a.b.c") && !matches("a.>", "a"));
    assert!(matches(">", "a") && matches("*.b.>", "a.b.c.d") && !matches("*.b.>", "a.b"));
    assert!(!matches("a.b", "a.bc") && !matches("a.bc", "a.b") && !matches("a.*", "ab.c"));
    assert_eq!(pattern("a.>").tail_of(subject("a.b.c")), Some("b.c"));
    assert_eq!(pattern("a.b").tail_of(subject("a.b")), Some(""));
    assert_eq!(pattern("a.>").tail_of(subject("b.c")), None);
}

#[test]
fn subject_filter_is_omitted_if_the_whole_topic_matches() {
    let select = |p: &str, topic: &str| pattern(p).select(&pattern(topic));
    assert_eq!(select("a.b", "a.b"), Selection::Everything);
    assert_eq!(select(">", "a.>"), Selection::Everything);
    assert_eq!(select("a.*.>", "a.b.*"), Selection::Everything);
    assert_eq!(select("b.>", "a.>"), Selection::Nothing);
    let Selection::Tails(tails) = select("a.*.x", "a.>") else { panic!("some of them") };
    assert!(tails.matches("b.x") && !tails.matches("b.y") && !tails.matches("b") && !tails.matches("b.x.x"));
}

/// Generates a token from a small set, so that patterns often match subjects. Some of the tokens begin with the same
/// letters.
fn token() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "ab", "$s"])
}

fn subject_text() -> impl Strategy<Value = String> {
    prop::collection::vec(token(), 1..5).prop_map(|tokens| tokens.join("."))
}

fn pattern_text() -> impl Strategy<Value = String> {
    let token = prop_oneof![3 => token(), 2 => Just("*")];
    (prop::collection::vec(token, 0..4), any::<bool>()).prop_filter_map("empty", |(mut tokens, arrow)| {
        tokens.extend(arrow.then_some(">"));
        (!tokens.is_empty()).then(|| tokens.join("."))
    })
}

fn naive_matches(pattern: &[&str], subject: &[&str]) -> bool {
    match (pattern, subject) {
        ([], []) => true,
        ([">"], [_, ..]) => true,
        (["*", pattern @ ..], [_, subject @ ..]) => naive_matches(pattern, subject),
        ([a, pattern @ ..], [b, subject @ ..]) => a == b && naive_matches(pattern, subject),
        _ => false,
    }
}

fn naive(pattern: &str, subject: &str) -> bool {
    naive_matches(&pattern.split('.').collect::<Vec<_>>(), &subject.split('.').collect::<Vec<_>>())
}

/// Returns all subjects of up to five tokens from a small set. The token `z` is in no pattern, and stands for all
/// tokens that are not in the set.
fn all_subjects() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut longest = vec![String::new()];
    for _ in 0..5 {
        longest = longest
            .iter()
            .flat_map(|start| ["a", "b", "ab", "$s", "z"].map(|token| format!("{start}.{token}")))
            .collect();
        all.extend(longest.iter().map(|text| text[1..].to_owned()));
    }
    all
}

proptest! {
    #[test]
    fn pattern_match_equals_a_token_by_token_comparison(p in pattern_text(), s in subject_text()) {
        prop_assert_eq!(pattern(&p).matches(subject(&s)), naive(&p, &s));
    }

    #[test]
    fn pattern_matches_a_split_subject_like_the_whole_subject(
        p in pattern_text(), topic in pattern_text(), s in subject_text(),
    ) {
        let topic = pattern(&topic);
        if let Some(tail) = topic.tail_of(subject(&s)) {
            prop_assert_eq!(pattern(&p).matches_parts(topic.literal_prefix(), tail), naive(&p, &s));
        }
    }

    #[test]
    fn pattern_selects_exactly_the_matching_records_of_a_topic(
        p in pattern_text(), topic in pattern_text(), s in subject_text(),
    ) {
        let topic = pattern(&topic);
        if let Some(tail) = topic.tail_of(subject(&s)) {
            let selected = match pattern(&p).select(&topic) {
                Selection::Nothing => false,
                Selection::Everything => true,
                Selection::Tails(tails) => tails.matches(tail),
            };
            prop_assert_eq!(selected, naive(&p, &s));
        }
    }

    #[test]
    fn arbitrary_pattern_text_is_refused_or_kept_unchanged(text in ".{0,12}|[a.*> ]{0,8}") {
        if let Ok(parsed) = Pattern::parse(&text) {
            prop_assert_eq!(parsed.as_str(), &text);
            prop_assert!(parsed.overlaps(&parsed) && parsed.covers(&parsed));
        }
        prop_assert!(Subject::parse(&text).is_err() || pattern(&text).is_literal());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pattern_overlap_and_cover_match_a_brute_force_check(a in pattern_text(), b in pattern_text()) {
        let subjects = all_subjects();
        let both = subjects.iter().any(|s| naive(&a, s) && naive(&b, s));
        let all = subjects.iter().all(|s| !naive(&b, s) || naive(&a, s));
        prop_assert_eq!(pattern(&a).overlaps(&pattern(&b)), both);
        prop_assert_eq!(pattern(&a).covers(&pattern(&b)), all);
    }
}
