//! The processes that the tests start: `system-role ROLE ARGUMENTS…`.

fn main() -> anyhow::Result<()> {
    dunlin_system_tests::role::run(std::env::args().skip(1).collect())
}
