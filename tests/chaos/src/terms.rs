//! Checks the terms that nodes report. A node reports the term that is stored on its disk. This term must never
//! decrease, even if the node loses power. After a decrease, the node could vote a second time in a term.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

/// The highest Raft term that each node has reported, and a description of every report of a lower term.
#[derive(Debug, Default)]
pub struct HighestTerms(Mutex<(BTreeMap<u64, u64>, Vec<String>)>);

impl HighestTerms {
    /// Records the term that a node reported. The term 0 is ignored, because a node reports it directly after its
    /// start.
    pub fn record(&self, node: u64, term: Option<u64>) {
        let Some(term) = term.filter(|term| *term > 0) else { return };
        let (highest, decreases) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let highest_term = highest.entry(node).or_default();
        if term < *highest_term {
            decreases.push(format!("node {node} was in term {highest_term}, and is in term {term}"));
        }
        *highest_term = term.max(*highest_term);
    }

    /// Fails if the term of any node has decreased.
    pub fn check(&self) -> Result<()> {
        match &self.0.lock().unwrap_or_else(PoisonError::into_inner).1[..] {
            [] => Ok(()),
            decreases => bail!("a node's term decreased: {}", decreases.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decreasing_term_of_a_running_node_is_reported() {
        let terms = HighestTerms::default();
        for (node, term) in [(1, 3), (2, 5), (1, 0), (1, 3), (1, 4)] {
            terms.record(node, Some(term));
        }
        terms.record(2, None);
        terms.check().unwrap();
        terms.record(2, Some(4));
        terms.record(2, Some(6));
        let error = terms.check().unwrap_err().to_string();
        assert!(error.contains("node 2 was in term 5, and is in term 4"), "{error}");
    }
}
