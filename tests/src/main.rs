//! The program that the tests start as node, publisher or subscriber: `system-role ROLE ARGUMENTS…`.

fn main() -> anyhow::Result<()> {
    dunlin_system_tests::role::run(std::env::args().skip(1).collect())
}
