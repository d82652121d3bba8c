//! Tests of scaling.

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
