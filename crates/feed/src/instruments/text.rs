//! The texts of instrument files before their validation, and the files that are built into Dunlin.

use serde::{Deserialize, Serialize};

use super::{Instruments, InstrumentsError, Notation};

/// The instrument files that are built into Dunlin: the name and the text of each file. All of them are in JSON.
pub const SCENARIOS: [(&str, &str); 4] = [
    ("baseline_1x1_10k", include_str!("../../scenarios/baseline_1x1_10k.json")),
    ("fanout_1x100_1k", include_str!("../../scenarios/fanout_1x100_1k.json")),
    ("multi_100x10_500", include_str!("../../scenarios/multi_100x10_500.json")),
    ("loss_1x10_1k", include_str!("../../scenarios/loss_1x10_1k.json")),
];

/// The text of an instrument file before its validation, in JSON or TOML.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstrumentsText {
    /// The whole text.
    pub text: String,
    /// Format of the text.
    pub notation: Notation,
}

impl InstrumentsText {
    /// The built-in file with this name; `None` if [`SCENARIOS`] has no such file.
    pub fn scenario(name: &str) -> Option<Self> {
        let (_, text) = SCENARIOS.iter().find(|(scenario, _)| *scenario == name)?;
        Some(Self { text: (*text).to_owned(), notation: Notation::Json })
    }

    /// Parses and validates the text. An error names the field and the instrument.
    pub fn parse(&self) -> Result<Instruments, InstrumentsError> {
        Instruments::parse(&self.text, self.notation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_scenario_parses_and_has_instruments() {
        for (name, _) in SCENARIOS {
            let text = InstrumentsText::scenario(name).expect(name);
            assert!(!text.parse().expect(name).list().is_empty(), "{name}");
        }
        assert_eq!(InstrumentsText::scenario("nosuch"), None);
    }
}
