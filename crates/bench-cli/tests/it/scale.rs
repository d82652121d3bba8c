//! Tests of the command `scale`.

use crate::program::run;

#[test]
fn prices_command_with_option_json_prints_an_object() {
    let prices: serde_json::Value =
        serde_json::from_str(&run(&["scale", "prices", "--json"]).done()).unwrap();
    assert!(prices["machine"][0]["per_hour"].as_f64() > Some(0.0), "{prices}");
}
