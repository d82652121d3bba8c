//! `tidy`: checks that source, tests and pages follow the repository's rules. Each rule has its own file. The tests in
//! this file contain examples that break the rule.
//!
//! A rule reads a [`Repository`] and adds to [`Findings`]; no rule changes a file. Two requirements have no rule here,
//! so reviewers must check them: listeners hold no topic state, and each crate has all its limits in one struct.

mod absence;
mod changelog;
mod conflicts;
mod crates;
mod lengths;
mod naming;
mod pages;
mod patches;
mod prose;
mod repository;
mod source;
mod table;
mod test_names;
mod type_names;

use anyhow::{Result, bail};

use repository::Repository;

/// The path of the page that contains the tables which the rules compare with the tree.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

const RULES: [fn(&Repository, &mut Findings); 11] = [
    crates::check,
    absence::check,
    naming::check,
    pages::check,
    lengths::check,
    conflicts::check,
    patches::check,
    changelog::check,
    prose::check,
    test_names::check,
    type_names::check,
];

/// Applies every rule and prints the findings. Fails if one of the findings is an error; warnings are allowed.
pub fn run() -> Result<()> {
    let repository = Repository::read()?;
    let mut findings = Findings::default();
    for rule in RULES {
        rule(&repository, &mut findings);
    }
    for finding in &findings.all {
        println!("{}", finding.line());
    }
    match findings.failures().len() {
        0 => Ok(()),
        count => bail!("tidy: {count} problems to fix"),
    }
}

/// The findings of all tidiness rules, in order.
#[derive(Default)]
pub struct Findings {
    all: Vec<Finding>,
}

struct Finding {
    location: String,
    text: String,
    warning: bool,
}

impl Findings {
    /// Adds an error about a line of the file `path`. `text` says what is wrong and what to do.
    fn fail(&mut self, path: &str, line: usize, text: String) {
        self.all.push(Finding { location: format!("{path}:{line}"), text, warning: false });
    }

    fn warn(&mut self, path: &str, line: usize, text: String) {
        self.all.push(Finding { location: format!("{path}:{line}"), text, warning: true });
    }

    fn failures(&self) -> Vec<String> {
        self.all.iter().filter(|finding| !finding.warning).map(Finding::line).collect()
    }

    #[cfg(test)]
    fn warnings(&self) -> Vec<String> {
        self.all.iter().filter(|finding| finding.warning).map(Finding::line).collect()
    }
}

impl Finding {
    fn line(&self) -> String {
        let warning = if self.warning { "warning: " } else { "" };
        format!("{}: {warning}{}", self.location, self.text)
    }
}
