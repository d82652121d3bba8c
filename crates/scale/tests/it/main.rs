//! Tests of the crate `dunlin-scale`, which decides how many workers run.

mod autoscaler;
mod bounds;
mod cost;
mod documents;
mod forecasts;
mod scale_in;
mod scale_out;
mod simulation;
mod simulator;
mod spot;
