//! Checks the sentences of the documentation.
//!
//! A sentence in `README.md` or in a page of `docs/` must have at most 35 words, and must not begin with Who, What,
//! Whose or That. The rule checks paragraphs, list items and table cells. It does not check headings, table headers and
//! code blocks. A code span counts as one word. The page `docs/benchmarks.md` is exempt, because it is generated.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::Findings;
use super::repository::Repository;

const GENERATED: &str = "docs/benchmarks.md";
const WORDS_MAX: usize = 35;
const OPENINGS: [&str; 4] = ["Who", "What", "Whose", "That"];
/// Abbreviations whose full stop does not end a sentence. There is one exception: if a capital letter follows `etc.`, a
/// new sentence begins.
const ABBREVIATIONS: [&str; 7] = ["e.g.", "i.e.", "etc.", "cf.", "vs.", "approx.", "incl."];
/// The text that replaces each code span before words are counted.
const CODE: &str = "`…`";
/// How many words of a sentence the text of a finding shows.
const WORDS_SHOWN: usize = 6;

/// Checks the sentences of every page.
pub fn check(repository: &Repository, findings: &mut Findings) {
    for (page, text) in repository.texts().filter(|(path, _)| is_documentation(path)) {
        find_errors(text).into_iter().for_each(|(line, text)| findings.fail(page, line, text));
    }
}

fn is_documentation(path: &str) -> bool {
    path == "README.md" || path.starts_with("docs/") && path.ends_with(".md") && path != GENERATED
}

/// Returns the errors in the sentences of a page, each with its line.
fn find_errors(page: &str) -> Vec<(usize, String)> {
    let mut errors = Vec::new();
    for block in blocks(page) {
        for sentence in sentences(&block) {
            let words: Vec<&str> = sentence.iter().map(|word| word.text.as_str()).filter(is_word).collect();
            let Some(first) = words.first() else { continue };
            let shown = words[..words.len().min(WORDS_SHOWN)].join(" ");
            let line = sentence[0].line;
            let opening = leading_letters(first);
            if OPENINGS.contains(&opening) {
                let advice = "begin with the noun that acts, or is acted on";
                errors.push((line, format!("a sentence begins with `{opening}`: {advice}: {shown} …")));
            }
            if words.len() > WORDS_MAX {
                let count = words.len();
                errors.push((
                    line,
                    format!("a sentence has {count} words, {WORDS_MAX} at most: split it: {shown} …"),
                ));
            }
        }
    }
    errors
}

/// Skips punctuation at the start of a word, and returns the letters that follow.
fn leading_letters(word: &str) -> &str {
    let word = word.trim_start_matches(|letter: char| !letter.is_alphanumeric() && letter != '`');
    word.split(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default()
}

/// Whether this text is a word. A separate punctuation mark is not a word.
fn is_word(word: &&str) -> bool {
    word.contains(CODE) || word.contains(char::is_alphanumeric)
}

/// A word of a page, and the line in which it is.
struct Word {
    text: String,
    line: usize,
}

/// The words of a paragraph, list item or table cell.
#[derive(Default)]
struct Block {
    words: Vec<Word>,
    /// Whether the next text continues the last word, because no blank separates the two.
    unfinished: bool,
}

impl Block {
    fn push(&mut self, text: &str, line: usize) {
        for piece in text.split_inclusive(char::is_whitespace) {
            let word = piece.trim_end();
            match self.words.last_mut().filter(|_| self.unfinished) {
                Some(last) => last.text.push_str(word),
                None if word.is_empty() => {}
                None => self.words.push(Word { text: word.to_owned(), line }),
            }
            self.unfinished = !piece.ends_with(char::is_whitespace);
        }
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut in_head = false;
    let newlines: Vec<usize> = page.match_indices('\n').map(|(at, _)| at).collect();
    for (event, range) in Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter() {
        let line = || newlines.partition_point(|newline| *newline < range.start) + 1;
        match event {
            Event::Text(text) => open.iter_mut().for_each(|block| block.push(&text, line())),
            Event::Code(_) => open.iter_mut().for_each(|block| block.push(CODE, line())),
            Event::SoftBreak | Event::HardBreak => open.iter_mut().for_each(|block| block.push(" ", line())),
            Event::Start(Tag::TableHead) => in_head = true,
            Event::End(TagEnd::TableHead) => in_head = false,
            Event::Start(Tag::Paragraph | Tag::Item | Tag::TableCell) => {
                blocks.extend(open.take());
                open = (!in_head).then(Block::default);
            }
            Event::Start(Tag::Heading { .. } | Tag::CodeBlock(_) | Tag::HtmlBlock | Tag::List(_))
            | Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::TableCell) => blocks.extend(open.take()),
            _ => {}
        }
    }
    blocks
}

fn sentences(block: &Block) -> Vec<&[Word]> {
    let mut sentences = Vec::new();
    let mut start = 0;
    for (index, word) in block.words.iter().enumerate() {
        let next = block.words.get(index + 1);
        if next.is_none_or(|next| ends_sentence(&word.text, &next.text)) {
            sentences.push(&block.words[start..=index]);
            start = index + 1;
        }
    }
    sentences
}

fn ends_sentence(word: &str, next: &str) -> bool {
    let word = word.trim_matches(['(', ')', '[', ']', '"', '\'', '“', '”', '‘', '’']);
    let capital = || next.chars().find(|letter| letter.is_alphanumeric()).is_some_and(char::is_uppercase);
    match word {
        "etc." => capital(),
        word => word.ends_with(['.', '!', '?']) && !ABBREVIATIONS.contains(&word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings_in_files<const N: usize>(files: [(&str, &str); N]) -> Findings {
        let mut findings = Findings::default();
        check(&Repository::of(files), &mut findings);
        findings
    }

    fn findings(page: &str) -> Vec<String> {
        findings_in_files([("docs/page.md", page)]).failures()
    }

    fn words(count: usize) -> String {
        vec!["word"; count].join(" ")
    }

    #[test]
    fn report_of_a_sentence_over_35_words_names_the_line() {
        assert_eq!(findings(&format!("{}.", words(35))), [""; 0]);
        let found = findings(&format!("# Title\n\nShort.\n{}.\n", words(36)));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("docs/page.md:4: a sentence has 36 words"), "{found:?}");
    }

    #[test]
    fn line_breaks_and_emphasis_do_not_end_a_sentence() {
        let page = format!("{}\n**{}** [{}](x.md) - {}\n", words(10), words(10), words(10), words(6));
        let found = findings(&page);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("has 36 words"), "{found:?}");
    }

    #[test]
    fn prose_check_covers_paragraphs_list_items_and_table_cells() {
        let long = words(36);
        for page in [
            format!("- {long}"),
            format!("1. x\n\n   {long}"),
            format!("- x\n  - {long}\n"),
            format!("> {long}"),
            format!("| a |\n|---|\n| {long} |"),
            format!("![{long}](x.svg)"),
        ] {
            assert_eq!(findings(&page).len(), 1, "{page}");
        }
    }

    #[test]
    fn list_items_and_table_cells_are_separate_sentences() {
        let half = words(20);
        for page in [
            format!("{half}:\n- {half}\n- {half}\n"),
            format!("- {half}\n  - {half}\n"),
            format!("| a | b |\n|---|---|\n| {half} | {half} |\n"),
            format!("{half}\n\n{half}"),
        ] {
            assert_eq!(findings(&page), [""; 0], "{page}");
        }
    }

    #[test]
    fn prose_check_ignores_headings_table_headers_and_code() {
        let long = words(36);
        let page = format!(
            "# What {long}\n\n```text\nWhat {long}\n```\n\n    What {long}\n\n| What {long} |\n|---|\n| x |\n"
        );
        assert_eq!(findings(&page), [""; 0]);
    }

    #[test]
    fn code_span_counts_as_one_word_and_punctuation_as_none() {
        let code = format!("`{}`", words(9));
        assert_eq!(findings(&format!("{} {code}, – 1.5 → 2", words(32))), [""; 0]);
        assert_eq!(findings(&format!("{} {code}, – 1.5 → 2", words(33))).len(), 1);
    }

    #[test]
    fn tidy_reports_sentences_that_begin_with_what_or_who() {
        for opening in ["Who", "What", "Whose", "That", "What's", "(What", "“That", "**Who**"] {
            let found = findings(&format!("Text. {opening} reads it.\n"));
            assert_eq!(found.len(), 1, "{opening}: {found:?}");
            assert!(
                found[0].starts_with("docs/page.md:1: a sentence begins with `Wh")
                    || found[0].contains("`That`")
            );
        }
        for page in [
            "Whatever it is.",
            "So what? A node, that is.",
            "`What` is code.",
            "One word: What it is.",
            "- what is read",
        ] {
            assert_eq!(findings(page), [""; 0], "{page}");
        }
    }

    #[test]
    fn sentences_end_at_full_stops_only() {
        let half = words(18);
        for end in ["w.", "w?", "w!", "w.)", "`w w`.", "etc. Word", "2.5."] {
            assert_eq!(findings(&format!("{half} {end} {half}")), [""; 0], "{end}");
        }
        for middle in ["e.g.", "(i.e.", "etc.", "cf.", "1.5", "nats.go", "w:", "w;", "…"] {
            assert_eq!(findings(&format!("{half} {middle} {half}")).len(), 1, "{middle}");
        }
    }

    #[test]
    fn only_the_readme_and_handwritten_docs_pages_are_checked() {
        let page = "What is it.";
        assert_eq!(findings_in_files([(GENERATED, page), ("ARCHITECTURE.md", page)]).failures(), [""; 0]);
        assert_eq!(findings_in_files([("README.md", page), ("docs/how-to/x.md", page)]).failures().len(), 2);
    }
}
