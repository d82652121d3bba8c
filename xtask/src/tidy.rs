//! `tidy`: what the documents say is compared with the tree. One file for each rule; each rule's tests show it fail.
//!
//! A rule only looks at a [`Repository`] and adds to [`Findings`]; nothing here changes a file.
//! That doors hold no topic state and that limits stand in one struct per crate no machine can see; readers must.

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

use anyhow::{Result, bail};

use repository::Repository;

/// The page whose tables are compared with the tree.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

const RULES: [fn(&Repository, &mut Findings); 10] = [
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
];

/// Runs every rule, prints what was found, and fails unless there were only warnings.
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
        count => bail!("tidy: {count} to put right"),
    }
}

/// What the rules found, in the order they found it.
#[derive(Default)]
pub struct Findings {
    all: Vec<Finding>,
}

struct Finding {
    place: String,
    text: String,
    warning: bool,
}

impl Findings {
    /// The text goes on after the place: what is wrong, and what to do.
    fn fail(&mut self, path: &str, line: usize, text: String) {
        self.all.push(Finding { place: format!("{path}:{line}"), text, warning: false });
    }

    fn warn(&mut self, path: &str, line: usize, text: String) {
        self.all.push(Finding { place: format!("{path}:{line}"), text, warning: true });
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
        format!("{}: {warning}{}", self.place, self.text)
    }
}
