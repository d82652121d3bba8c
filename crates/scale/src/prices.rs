//! Reads the prices of machines from a table in TOML, which users can edit.

use serde::Deserialize;

/// The built-in table of prices, as TOML.
pub const PRICES_TOML: &str = include_str!("prices.toml");

const MACHINES_MAX: usize = 1_000;

/// A table of machine types and their prices.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// The currency of all prices in the table, such as `USD`.
    pub currency: String,
    /// The number of hours in a month, with which prices per hour become costs per month.
    pub hours_per_month: f64,
    /// The price of an instance in the warm pool, per hour.
    pub warm_per_hour: f64,
    /// The machine types in the table.
    #[serde(rename = "machine")]
    pub machines: Vec<MachineType>,
}

/// A machine type: its processors, its memory and its prices.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineType {
    /// The name of the machine type.
    pub name: String,
    /// The number of processors.
    pub cpus: u32,
    /// The size of the memory in GiB.
    pub memory_gib: f64,
    /// The price of an on-demand machine, per hour.
    pub per_hour: f64,
    /// The price of a machine on the spot market, per hour.
    pub spot_per_hour: f64,
}

/// Why a table of machine prices is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PricesError {
    /// The text is not TOML, or does not have the expected fields.
    #[error("the table of prices cannot be read: {0}")]
    Unreadable(String),
    /// A number is not above 0.
    #[error("in the table of prices, {what} is not a number above 0")]
    Number {
        /// The name of the number.
        what: String,
    },
    /// The table has no machine type, too many machine types, or the same machine type twice.
    #[error("the table of prices has {count} machines: it must list 1 to {most} machines, each only once")]
    Machines {
        /// The number of machine types in the table.
        count: usize,
        /// The largest allowed number of machine types.
        most: usize,
    },
}

impl Prices {
    /// Parses a table, and checks its values.
    pub fn parse(text: &str) -> Result<Prices, PricesError> {
        let prices: Prices = toml::from_str(text)
            .map_err(|error| PricesError::Unreadable(error.to_string().trim_end().to_owned()))?;
        prices.check()?;
        Ok(prices)
    }

    fn check(&self) -> Result<(), PricesError> {
        let mut names: Vec<_> = self.machines.iter().map(|machine| &machine.name).collect();
        names.sort_unstable();
        names.dedup();
        let count = self.machines.len();
        if !(1..=MACHINES_MAX).contains(&count) || names.len() != count {
            return Err(PricesError::Machines { count, most: MACHINES_MAX });
        }
        check_positive("hours_per_month", self.hours_per_month)?;
        check_positive("warm_per_hour", self.warm_per_hour)?;
        self.machines.iter().try_for_each(|machine| {
            let name = &machine.name;
            check_positive(&format!("the number of {name}'s processors"), f64::from(machine.cpus))?;
            check_positive(&format!("{name}'s memory"), machine.memory_gib)?;
            check_positive(&format!("{name}'s price"), machine.per_hour)?;
            check_positive(&format!("{name}'s price on the spot market"), machine.spot_per_hour)
        })
    }

    /// Returns the machine type with this name.
    pub fn machine(&self, name: &str) -> Option<&MachineType> {
        self.machines.iter().find(|machine| machine.name == name)
    }
}

impl Default for Prices {
    fn default() -> Prices {
        Prices::parse(PRICES_TOML).expect("the built-in table is valid")
    }
}

fn check_positive(what: &str, value: f64) -> Result<(), PricesError> {
    let is_positive = value.is_finite() && value > 0.0;
    if is_positive { Ok(()) } else { Err(PricesError::Number { what: what.to_owned() }) }
}
