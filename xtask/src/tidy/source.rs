//! Finds the names that a Rust source file uses and declares, and the names of its tests, each with its line.
//!
//! The source is only split into tokens, so the types of values are unknown. Names in comments and strings do not
//! count; names in the arguments of macros count. A whole path such as `std::fs::File` is one name, and each path of a
//! braced `use` is a name of its own. Items under `#[cfg(test)]`, or under another `cfg` that requires `test`, are left
//! out.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The keywords that declare a type. The type's name follows the keyword.
const TYPE_KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// The names that one source file uses and declares.
#[derive(Debug, Default)]
pub struct SourceNames {
    /// All paths and single words in the source, each with its line.
    pub used: Vec<(usize, String)>,
    /// The modules that the source declares with `mod name;` or `mod name {`, each with its line.
    pub modules: Vec<(usize, String)>,
    /// The types that the source declares with an unrestricted `pub`, each with its line.
    pub public_types: Vec<(usize, String)>,
    /// The names of modules that have their own files and that this source declares only for tests.
    pub test_modules: Vec<String>,
}

/// Returns the names in a source. Fails if the source is not valid Rust.
pub fn names(source: &str) -> Result<SourceNames, String> {
    let mut names = SourceNames::default();
    names.walk("", tokens(source)?);
    Ok(names)
}

/// Returns the names of tests, each with its line. A test is a function with `#[test]`, or with an attribute whose path
/// ends with `test`, such as `#[tokio::test]`. Tests whose names are made by a macro are not found.
pub fn tests(source: &str) -> Result<Vec<(usize, String)>, String> {
    let mut tests = Vec::new();
    collect_tests(tokens(source)?, &mut tests);
    Ok(tests)
}

fn tokens(source: &str) -> Result<TokenStream, String> {
    source.parse().map_err(|error: proc_macro2::LexError| format!("{}: {error}", error.span().start().line))
}

fn collect_tests(tokens: TokenStream, tests: &mut Vec<(usize, String)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(group) = token {
            collect_tests(group.stream(), tests);
        }
        if marks_test_function(&tokens[at..]) {
            tests.extend(function_name(&tokens[at + 2..]));
        }
    }
}

/// Whether these tokens begin with an attribute that makes a function a test.
fn marks_test_function(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(mark), TokenTree::Group(attribute), ..] = tokens else { return false };
    let path = attribute.stream().into_iter().take_while(|token| match token {
        TokenTree::Ident(_) => true,
        TokenTree::Punct(mark) => mark.as_char() == ':',
        _ => false,
    });
    mark.as_char() == '#'
        && path.last().is_some_and(|last| matches!(last, TokenTree::Ident(word) if word == "test"))
}

/// Returns a test function's name and line. The tokens begin after the attribute that makes the function a test.
fn function_name(tokens: &[TokenTree]) -> Option<(usize, String)> {
    let end = tokens.iter().position(ends_item).unwrap_or(tokens.len());
    tokens[..end].windows(2).find_map(|pair| match pair {
        [TokenTree::Ident(word), TokenTree::Ident(name)] if word == "fn" => {
            Some((name.span().start().line, name.to_string()))
        }
        _ => None,
    })
}

impl SourceNames {
    /// Adds all names in these tokens. For the tokens of a braced group in a `use`, `prefix` is the path before the
    /// group; for all other tokens, `prefix` is empty.
    fn walk(&mut self, prefix: &str, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            if is_test_attribute(&tokens[at..]) {
                at += self.skip_item(&tokens[at..]);
            } else if matches!(tokens[at], TokenTree::Ident(_)) {
                at += self.path(prefix, &tokens[at..]);
            } else {
                if let TokenTree::Group(group) = &tokens[at] {
                    self.walk("", group.stream());
                }
                at += 1;
            }
        }
    }

    /// Reads the path at the start of these tokens, and adds `prefix` followed by this path. Returns the number of
    /// tokens of the path.
    fn path(&mut self, prefix: &str, tokens: &[TokenTree]) -> usize {
        let line = tokens[0].span().start().line;
        let mut path = prefix.to_owned();
        let mut at = 0;
        while let Some(TokenTree::Ident(word)) = tokens.get(at) {
            path.push_str(&word.to_string());
            at += 1;
            if !starts_with_double_colon(&tokens[at..]) {
                break;
            }
            match tokens.get(at + 2) {
                Some(TokenTree::Ident(_)) => path.push_str("::"),
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    self.walk(&format!("{path}::"), group.stream());
                    return at + 3;
                }
                _ => break,
            }
            at += 2;
        }
        if path == "mod"
            && let Some(TokenTree::Ident(name)) = tokens.get(1)
        {
            self.modules.push((line, name.to_string()));
        }
        if path == "pub"
            && let Some(name) = type_name(&tokens[1..])
        {
            self.public_types.push((line, name));
        }
        self.used.push((line, path));
        at
    }

    /// Skips an item that is compiled only for tests. The tokens begin with the item's attribute. Returns the number of
    /// tokens up to and including the end of the item, which is `{…}` or `;`.
    ///
    /// If the item is a module in a separate file, adds the module to `test_modules`.
    fn skip_item(&mut self, tokens: &[TokenTree]) -> usize {
        if matches!(&tokens[1], TokenTree::Punct(mark) if mark.as_char() == '!') {
            return tokens.len();
        }
        let end = tokens.iter().position(ends_item).map_or(tokens.len(), |at| at + 1);
        for window in tokens[..end].windows(3) {
            if let [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Punct(_)] = window
                && word == "mod"
            {
                self.test_modules.push(name.to_string());
            }
        }
        end
    }
}

/// Returns the name of the type that these tokens declare. The tokens are those after `pub`. Returns `None` if they do
/// not declare a type.
fn type_name(tokens: &[TokenTree]) -> Option<String> {
    match tokens {
        [TokenTree::Ident(word), rest @ ..] if word == "unsafe" => type_name(rest),
        [TokenTree::Ident(word), TokenTree::Ident(name), ..]
            if TYPE_KEYWORDS.contains(&word.to_string().as_str()) =>
        {
            Some(name.to_string())
        }
        _ => None,
    }
}

fn starts_with_double_colon(tokens: &[TokenTree]) -> bool {
    let colon =
        |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
    colon(tokens.first()) && colon(tokens.get(1))
}

fn ends_item(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(mark) => mark.as_char() == ';',
        _ => false,
    }
}

/// Whether these tokens begin with an attribute that compiles an item only for tests: `#[test]`, `#[cfg(test)]`,
/// `#[cfg(all(test, …))]` or `#![cfg(test)]`, but not `#[cfg(not(test))]`.
fn is_test_attribute(tokens: &[TokenTree]) -> bool {
    let mut tokens = tokens.iter();
    let marked = matches!(tokens.next(), Some(TokenTree::Punct(mark)) if mark.as_char() == '#');
    let attribute = tokens.find(|token| !matches!(token, TokenTree::Punct(mark) if mark.as_char() == '!'));
    let Some(TokenTree::Group(attribute)) = attribute.filter(|_| marked) else { return false };
    let words: Vec<TokenTree> = attribute.stream().into_iter().collect();
    match &words[..] {
        [TokenTree::Ident(word)] => word == "test",
        [TokenTree::Ident(word), TokenTree::Group(condition)] => word == "cfg" && requires_test(condition),
        _ => false,
    }
}

fn requires_test(condition: &Group) -> bool {
    let mut negated = false;
    condition.stream().into_iter().any(|token| {
        let is_required = match &token {
            TokenTree::Ident(word) => word == "test",
            TokenTree::Group(inner) => !negated && requires_test(inner),
            _ => false,
        };
        negated = matches!(&token, TokenTree::Ident(word) if word == "not");
        is_required
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(source: &str) -> Vec<(usize, String)> {
        names(source).unwrap().used
    }

    #[test]
    fn each_name_of_a_braced_import_is_listed() {
        let used = used("use std::{net::{self, TcpStream},\n fs as disk};");
        let expected = [(1, "use"), (1, "std::net::self"), (1, "std::net::TcpStream"), (2, "std::fs")];
        for (line, path) in expected {
            assert!(used.contains(&(line, path.to_owned())), "{path} in {used:?}");
        }
    }

    #[test]
    fn names_are_found_in_macros_but_not_in_comments_or_strings() {
        let used = used("// std::fs\n/// std::fs\nfn f() { print!(\"std::fs\", std::net::bind()) }");
        let paths: Vec<_> = used.iter().map(|(_, path)| path.as_str()).collect();
        assert_eq!(paths, ["doc", "fn", "f", "print", "std::net::bind"]);
        assert_eq!(used[4].0, 3);
    }

    #[test]
    fn uses_of_names_in_test_code_are_ignored() {
        let source = "#[cfg(test)] mod model;\n#[cfg(all(test, loom))]\n#[allow(x)]\nmod a { use std::fs; }\n\
                      #[test] fn deleted_file_cannot_be_read() { std::fs::read() }\n#[cfg(not(test))] fn product() {}";
        let names = names(source).unwrap();
        assert_eq!(names.test_modules, ["model"]);
        let fs = names.used.iter().find(|(_, path)| path.contains("fs"));
        assert_eq!(fs, None);
        assert!(names.used.iter().any(|(_, path)| path == "product"));
        assert!(super::names("#![cfg(test)]\nuse std::fs;").unwrap().used.is_empty());
    }

    #[test]
    fn type_search_finds_pub_but_no_pub_crate_types() {
        let source = "pub struct A;\n#[derive(Debug)]\npub enum B<T> { C(T) }\npub unsafe trait D { type E; }\n\
                      choice! { pub type F = u8; }\npub(crate) struct G;\nstruct H { pub union: u8 }\n\
                      pub fn i() {}\npub use a::J;\n#[cfg(test)]\nmod tests { pub struct K; }";
        let expected = [(1, "A"), (3, "B"), (4, "D"), (5, "F")].map(|(line, name)| (line, name.to_owned()));
        assert_eq!(names(source).unwrap().public_types, expected);
    }

    #[test]
    fn test_functions_are_found_by_their_attribute() {
        let source = "#[test]\nfn one() {}\nmod tests {\n#[tokio::test(flavor = \"multi_thread\")]\n#[ignore]\n\
                      async fn two() -> Result<(), Error> { }\n#[cfg(test)] fn none() {}\n#[doc = \"test\"] fn none() {}\n}\n\
                      proptest! { #[test] fn test_in_a_macro_is_found(x in 0..3) { fn none() {} } }\n\
                      macro_rules! m { ($name:ident) => { #[test] fn $name() {} } }";
        let expected = [(2, "one"), (6, "two"), (10, "test_in_a_macro_is_found")]
            .map(|(line, name)| (line, name.to_owned()));
        assert_eq!(tests(source).unwrap(), expected);
    }

    #[test]
    fn text_that_is_not_rust_is_an_error() {
        assert!(names("fn f( {").is_err());
        assert!(tests("fn f( {").is_err());
    }
}
