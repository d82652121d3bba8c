//! The parts that `cargo xtask test --all` runs. Each part takes less than 90 minutes on two cores.

use anyhow::Result;

use super::nextest::{self, TestSelection};
use super::{Step, bench, build, demo_once, doc_tests};
use crate::{cases, chaos, check, clients, demo, nats_clients, page, process, python, race, tidy, web};

/// A part of all tests: its name, its description and its steps.
pub struct TestPart {
    pub name: &'static str,
    pub about: &'static str,
    pub steps: &'static [Step],
}

pub const ALL: &[TestPart] = &[
    TestPart {
        name: "lints",
        about: "tidy, format, dependencies, clippy",
        steps: &[
            Step { name: "all-tidy", run: tidy::run },
            Step { name: "all-format", run: check::format },
            Step { name: "all-dependencies", run: check::dependencies },
            Step { name: "all-clippy", run: check::lints },
        ],
    },
    TestPart {
        name: "all-tests",
        about: "every test, the long ones too, and doc tests",
        steps: &[
            Step { name: "build-tests", run: build },
            Step { name: "long-tests", run: all_tests },
            Step { name: "all-doc-tests", run: doc_tests },
        ],
    },
    TestPart {
        name: "clients",
        about: "every client library: gRPC, NATS, Python's wheel, the browser's client",
        steps: &[
            Step { name: "grpc-clients", run: clients::run_all },
            Step { name: "nats-clients", run: nats_clients::run },
            Step { name: "wheel", run: python::test_wheel },
            Step { name: "web", run: web::run },
        ],
    },
    TestPart {
        name: "cases",
        about: "programs that reproduce faults found by outsiders",
        steps: &[Step { name: "cases", run: cases::run_all }],
    },
    TestPart {
        name: "browser",
        about: "every page of the dashboard in a browser",
        steps: &[Step { name: "pages", run: page::run_all }],
    },
    TestPart {
        name: "chaos",
        about: "injected faults in keys, topics and regions, with a process for each node",
        steps: &[
            Step { name: "chaos-control", run: chaos::control::quick },
            Step { name: "chaos-topics", run: chaos::topics::quick },
            Step { name: "chaos-space", run: chaos::space::quick },
        ],
    },
    TestPart {
        name: "race",
        about: "the lock-free code in every interleaving, with each ordering weakened in turn",
        steps: &[Step { name: "race-models", run: race::quick }],
    },
    TestPart {
        name: "demos",
        about: "every demo, once",
        steps: &[Step { name: "demo-together", run: demo_once }, Step { name: "demo-feed", run: demo_feeds }],
    },
    TestPart {
        name: "benchmarks-quick",
        about: "every suite of the benchmarks, with few and short runs",
        steps: &[
            Step { name: "bench-spot", run: || bench("spot") },
            Step { name: "bench-broker", run: || bench("broker") },
            Step { name: "bench-control", run: || bench("control") },
        ],
    },
];

fn all_tests() -> Result<()> {
    nextest::run(&TestSelection { profile: "all", ..TestSelection::default() })
}

fn demo_feeds() -> Result<()> {
    process::run(&mut demo::prepare(&demo::Options::feeds())?)
}
