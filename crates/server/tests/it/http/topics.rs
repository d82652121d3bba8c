use dunlin::topic::TopicConfig;
use serde_json::json;

use super::HttpServer;

#[test]
fn topic_is_created_described_and_deleted_over_http() {
    let fixture = HttpServer::new();
    let put = |body: &str| fixture.peer().request("PUT", "/v1/topics/orders", &[], body.as_bytes());
    let config = r#"{"pattern": "orders.>", "partitions": 2, "retention": {"records": 1000, "age": "10m"}}"#;
    assert_eq!(put(config).status, 201);
    assert_eq!(put(config).status, 200, "the same again is as good");
    let other = put(r#"{"pattern": "orders.>", "partitions": 3}"#);
    assert_eq!((other.status, other.code().as_str()), (409, "TOPIC_EXISTS"));
    fixture.publish("orders.eu", b"1");
    let shown = fixture.get("/v1/topics/orders").json();
    assert_eq!(shown["config"]["pattern"], "orders.>");
    assert_eq!(shown["config"]["retention"]["age"], "10m");
    assert_eq!(shown["logs"].as_array().unwrap().len(), 2);
    assert_eq!(shown["logs"][0]["retained_records"], 1);
    let listed = fixture.get("/v1/topics").json();
    assert_eq!(listed["topics"][0]["name"], "orders");
    assert_eq!((&listed["topics"][0]["records"], &listed["more"]), (&json!(1), &json!(false)));
    assert_eq!(fixture.peer().request("DELETE", "/v1/topics/orders", &[], b"").status, 204);
    let gone = fixture.get("/v1/topics/orders");
    assert_eq!((gone.status, gone.code().as_str()), (404, "NO_TOPIC"));
    assert_eq!(fixture.peer().request("DELETE", "/v1/topics/orders", &[], b"").status, 404);
}

#[test]
fn http_topic_move_is_refused_by_a_node_without_a_cluster() {
    let fixture = HttpServer::new();
    fixture.publish("orders", b"1");
    let refused = fixture.peer().request("PUT", "/v1/topics/orders/owner", &[], br#"{"node": 2}"#);
    assert_eq!((refused.status, refused.code().as_str()), (409, "NO_CLUSTER"), "{refused:?}");
    let detail = refused.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("\"orders\" cannot move") && detail.contains("--cluster-listen"), "{detail}");
}

#[test]
fn http_topic_list_is_paged() {
    let fixture = HttpServer::new();
    for n in 0..25 {
        fixture.publish(&format!("t{n:02}"), b"x");
    }
    let (mut after, mut names) = (String::new(), Vec::new());
    loop {
        let page = fixture.get(&format!("/v1/topics?limit=10&after={after}")).json();
        let topics = page["topics"].as_array().unwrap();
        names.extend(topics.iter().map(|topic| topic["name"].as_str().unwrap().to_owned()));
        after = names.last().unwrap().clone();
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(names, (0..25).map(|n| format!("t{n:02}")).collect::<Vec<_>>());
    let some = fixture.get("/v1/topics?pattern=t01").json();
    assert_eq!(some["topics"].as_array().unwrap().len(), 1);
}

#[test]
fn topic_list_can_be_filtered_by_part_of_the_name_and_by_state() {
    let fixture = HttpServer::new();
    for n in 0..2_500 {
        fixture.node.create_topic(&format!("many.{n:04}.Part"), TopicConfig::default(), false).unwrap();
    }
    let put = |name: &str, body: &[u8]| {
        fixture.peer().request("PUT", &format!("/v1/topics/{name}"), &[], body).status
    };
    assert_eq!(put("book.a", br#"{"reducer": {"kind": "book"}}"#), 201);
    assert_eq!(put("zz.last", br#"{"reducer": {"kind": "last"}}"#), 201);
    let names = |query: &str| {
        let page = fixture.get(&format!("/v1/topics?{query}")).json();
        let topics = page["topics"].as_array().unwrap();
        let names = topics.iter().map(|topic| topic["name"].as_str().unwrap().to_owned());
        (names.collect::<Vec<_>>(), page["next"].as_str().map(str::to_owned))
    };
    assert_eq!(names("contains=2499.pART"), (vec!["many.2499.Part".to_owned()], None));
    assert_eq!(names("contains=nothing").0, Vec::<String>::new());
    assert_eq!(names("state=any").0, ["book.a", "zz.last"]);
    assert_eq!(names("state=last&contains=ZZ").0, ["zz.last"]);
    assert_eq!(names("state=book&pattern=many.%3E").0, Vec::<String>::new());
    let (first, next) = names("contains=49&limit=2");
    assert_eq!(first, ["many.0049.Part", "many.0149.Part"]);
    let (second, _) = names(&format!("contains=49&limit=2&after={}", next.unwrap()));
    assert_eq!(second, ["many.0249.Part", "many.0349.Part"]);
    let refused = fixture.get("/v1/topics?state=bogus");
    assert_eq!(refused.status, 400);
    assert!(
        refused.text().contains("state=bogus: expected one of any, book, orders, last, region"),
        "{refused:?}"
    );
    let shown = fixture.get("/v1/topics?state=book").json();
    assert_eq!(shown["topics"][0]["state"], "book");
}

#[test]
fn invalid_topic_names_and_settings_are_refused_over_http() {
    let fixture = HttpServer::new();
    fixture.publish("taken.a", b"x");
    for (path, body, status, code) in [
        ("/v1/topics/a..b", "", 400, "SUBJECT"),
        ("/v1/topics/%24SYS", "", 400, "SUBJECT"),
        ("/v1/topics/a%20b", "", 400, "SUBJECT"),
        ("/v1/topics/t", "{\"partitions\": 0}", 400, "TOPIC_CONFIG"),
        ("/v1/topics/t", "{\"retention\": {\"bytes\": 1}}", 400, "TOPIC_CONFIG"),
        ("/v1/topics/t", "{\"durable\": {}}", 400, "TOPIC_CONFIG"),
        ("/v1/topics/t", "{\"reducer\": {\"kind\": \"unheard_of\"}}", 400, "TOPIC_CONFIG"),
        ("/v1/topics/t", "not json", 400, "TOPIC_CONFIG"),
        ("/v1/topics/t", "{\"pattern\": \"taken.>\"}", 409, "PATTERN_OVERLAPS"),
    ] {
        let response = fixture.peer().request("PUT", path, &[], body.as_bytes());
        assert_eq!(
            (response.status, response.code().as_str()),
            (status, code),
            "{path} {body}: {response:?}"
        );
    }
}
