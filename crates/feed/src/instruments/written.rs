//! A file of instruments before it is checked, and the files that come with Dunlin.

use serde::{Deserialize, Serialize};

use super::{Instruments, InstrumentsError, Notation};

/// The files of instruments that come with Dunlin, all JSON: name and text.
pub const SCENARIOS: [(&str, &str); 4] = [
    ("baseline_1x1_10k", include_str!("../../scenarios/baseline_1x1_10k.json")),
    ("fanout_1x100_1k", include_str!("../../scenarios/fanout_1x100_1k.json")),
    ("multi_100x10_500", include_str!("../../scenarios/multi_100x10_500.json")),
    ("loss_1x10_1k", include_str!("../../scenarios/loss_1x10_1k.json")),
];

/// The text of a file of instruments, not checked yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstrumentsText {
    /// All of the file.
    pub text: String,
    /// How it is written.
    pub notation: Notation,
}

impl InstrumentsText {
    /// The file of this name that comes with Dunlin; `None` if there is none in [`SCENARIOS`].
    pub fn scenario(name: &str) -> Option<Self> {
        let (_, text) = SCENARIOS.iter().find(|(known, _)| *known == name)?;
        Some(Self { text: (*text).to_owned(), notation: Notation::Json })
    }

    /// Checks the text; the error says which field of which instrument is wrong.
    pub fn parse(&self) -> Result<Instruments, InstrumentsError> {
        Instruments::parse(&self.text, self.notation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_a_valid_file() {
        for (name, _) in SCENARIOS {
            let text = InstrumentsText::scenario(name).expect(name);
            assert!(!text.parse().expect(name).list().is_empty(), "{name}");
        }
        assert_eq!(InstrumentsText::scenario("nosuch"), None);
    }
}
