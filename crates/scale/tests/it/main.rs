//! Tests of scaling.

mod bounds;
mod conducted;
mod cost;
mod documents;
mod forecasts;
mod inward;
mod out;
mod play;
mod simulator;
mod spot;
