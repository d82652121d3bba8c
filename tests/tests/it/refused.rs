//! What a node refuses, to the one who asked, and nobody else notices.

use dunlin_client::{Client, Options};

use crate::stage::{Node, alone, role};

#[test]
fn a_port_in_use_ends_the_second_node_with_an_error_that_names_it() {
    let _alone = alone();
    let node = Node::anywhere(&[]);
    let mut second = role("second node", &["node", &node.address.to_string()]);
    assert_eq!(second.finish(std::time::Duration::from_secs(20)), Vec::<String>::new(), "it says no READY");
    assert!(!second.wait().success());
    let errors = second.errors();
    assert!(errors.contains(&format!("listen on {}", node.address)), "{errors}");
    assert!(!errors.contains("panicked"), "{errors}");
    Client::connect(&node.url(), Options::default()).unwrap();
}
