//! Checks that the name of each test has at most 60 characters, and does not begin with who, what, whose, of or from.
//! The rule checks Rust and Python tests. The name of a Python test is the part after `test_`.

use super::repository::Repository;
use super::{Findings, source};

const CHARACTERS_MAX: usize = 60;
const OPENINGS: [&str; 8] = ["who_", "what_", "whose_", "of_", "from_", "a_", "an_", "the_"];

/// Checks the name of every test.
pub fn check(repository: &Repository, findings: &mut Findings) {
    for (path, text) in repository.texts() {
        let tests = match path.rsplit_once('.') {
            // A source that cannot be parsed is skipped: it does not compile, so other checks report it.
            Some((_, "rs")) => source::tests(text).unwrap_or_default(),
            Some((_, "py")) => python_tests(text),
            _ => continue,
        };
        for (line, name) in tests {
            if let Some(opening) = OPENINGS.iter().find(|opening| name.starts_with(**opening)) {
                let advice = "begin with the noun that acts, or is acted on";
                findings.fail(path, line, format!("test `{name}` begins with `{opening}`: {advice}"));
            }
            let characters = name.chars().count();
            if characters > CHARACTERS_MAX {
                let advice = "claim one thing, and leave its conditions to the test";
                findings.fail(
                    path,
                    line,
                    format!("test `{name}` has {characters} characters, over the limit of {CHARACTERS_MAX}: {advice}"),
                );
            }
        }
    }
}

/// Returns the names of the Python tests in a source, without `test_`, each with its line.
fn python_tests(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().zip(1..);
    let tests = lines.filter_map(|(text, line)| {
        let text = text.trim_start();
        let definition = text.strip_prefix("async ").unwrap_or(text).strip_prefix("def test_")?;
        let (name, _) = definition.split_once('(')?;
        Some((line, name.to_owned()))
    });
    tests.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check(&Repository::of([(path, text)]), &mut findings);
        findings.failures()
    }

    /// Returns two lists of findings: those for a Rust test named `name`, and those for a Python test named `test_`
    /// followed by `name`.
    fn findings_for_name(name: &str) -> [Vec<String>; 2] {
        let rust = format!("mod tests {{\n#[tokio::test]\nasync fn {name}() {{}}\n}}");
        let python = format!("class TestIt:\n    @mark\n    async def test_{name}(self) -> None:\n");
        [findings("crates/a/src/a.rs", &rust), findings("clients/python/tests/test_a.py", &python)]
    }

    #[test]
    fn test_name_over_60_characters_fails() {
        assert_eq!(findings_for_name(&"n".repeat(60)), [[""; 0]; 2]);
        for (found, path) in findings_for_name(&"n".repeat(61))
            .iter()
            .zip(["crates/a/src/a.rs:3: ", "clients/python/tests/test_a.py:3: "])
        {
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(
                found[0].starts_with(path) && found[0].contains("has 61 characters, over the limit of 60"),
                "{found:?}"
            );
        }
    }

    #[test]
    fn test_name_with_a_refused_first_word_fails() {
        for opening in ["who", "what", "whose", "of", "from"] {
            for found in findings_for_name(&format!("{opening}_reads")) {
                assert_eq!(found.len(), 1, "{found:?}");
                assert!(found[0].contains(&format!("begins with `{opening}_`")), "{found:?}");
            }
        }
    }

    #[test]
    fn name_check_accepts_good_test_names_and_other_functions() {
        for name in ["whoever_reads", "office_reads", "fromage_reads", "reader_of_a_topic", "what"] {
            assert_eq!(findings_for_name(name), [[""; 0]; 2], "{name}");
        }
        let long = "n".repeat(61);
        assert_eq!(findings("a.rs", &format!("fn who_reads() {{}} #[cfg(test)] fn {long}() {{}}")), [""; 0]);
        assert_eq!(findings("a.py", &format!("def who_reads():\n    pass\n# def test_{long}(\n")), [""; 0]);
        assert_eq!(findings("a.go", "func test_who() {}"), [""; 0]);
    }
}
