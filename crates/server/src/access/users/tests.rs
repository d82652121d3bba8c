use dunlin::{AccessExtent, Action};
use proptest::prelude::*;

use super::*;

const HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$RdescudvJCsgt3ub+b4dWRWJTmaaJObG";
const DIGEST: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000001";

fn file() -> String {
    format!(
        "# people\n[tenants.acme]\ndeny = [\"acme.audit.>\"]\n[tenants.acme.limits]\nconnections = 7\ntopic_idle = \"10m\"\n\
         [users.ana]\ntenant = \"acme\"\npassword = \"{HASH}\"\ntokens = [\"{DIGEST}\"]\npublish = [\"acme.orders.>\"]\n\
         subscribe = [\"acme.>\"]\nsubscribe_deny = [\"acme.secret.>\"]\n[users.ana.limits]\npublish_records_per_s = 9\n"
    )
}

#[test]
fn users_file_defines_users_tenants_and_permissions() {
    let users = UserDirectory::parse(&file(), "u.toml").unwrap();
    let ana = &users.by_name["ana"];
    assert_eq!((ana.tenant.as_str(), ana.password.as_deref()), ("acme", Some(HASH)));
    assert_eq!(users.user_by_token(&secret::parse_digest(DIGEST).unwrap()), Some("ana"));
    assert_eq!(ana.limits.publish_records_per_s, Some(9));
    assert_eq!(users.tenants["acme"].limits.together.connections, Some(7));
    assert_eq!(users.tenants["acme"].limits.topic_idle, Some(Duration::from_secs(600)));
    let extent = |action, text| ana.permissions.extent(action, &Pattern::parse(text).unwrap());
    assert_eq!(extent(Action::Publish, "acme.orders.eu"), AccessExtent::All);
    assert_eq!(extent(Action::Publish, "acme.audit.x"), AccessExtent::Nothing);
    assert_eq!(extent(Action::Subscribe, "acme.>"), AccessExtent::Part);
    assert_eq!(extent(Action::Create, "acme.x"), AccessExtent::Nothing, "what is not written is not allowed");
    assert!(!ana.permissions.surveys);
}

#[test]
fn truncated_users_file_is_refused() {
    let text = UserDirectory::with_end_line(&format!("{}[users.bob]\nsubscribe = [\">\"]\n", file()));
    let whole = UserDirectory::parse(&text, "u.toml").unwrap();
    assert!(whole.by_name.contains_key("ana") && whole.by_name.contains_key("bob"));
    assert_eq!(UserDirectory::with_end_line(&text), text, "written once more, it has both lines once");
    let ends = text.match_indices('\n').map(|(at, _)| at + 1).filter(|end| *end < text.len());
    for end in ends {
        let error = UserDirectory::parse(&text[..end], "u.toml").unwrap_err();
        assert!(error.why.contains("cut off"), "{end} bytes: {error}");
    }
    // The parser accepts a user after the last line, and a file that has neither the first nor the last line.
    let added = UserDirectory::parse(&format!("{text}[users.cid]\n"), "u.toml").unwrap();
    assert!(added.by_name.contains_key("cid"));
    assert_eq!(UserDirectory::parse(&file(), "u.toml").unwrap().by_name.len(), 1);
}

#[test]
fn invalid_users_file_is_refused_with_line_and_reason() {
    for (text, place, why) in [
        ("[users.ana", "u.toml:1", "table"),
        ("[users.ana]\npasswort = 'x'", "u.toml:2", "unknown field `passwort`"),
        ("[users.ana]\npassword = 'open sesame'", "u.toml:2", "never the password itself"),
        (
            "[users.ana]\npassword = '$argon2id$v=19$m=4194304,t=1,p=1$c29tZXNhbHRzb21lc2FsdA$RdescudvJCsgt3ub+b4dWRWJTmaaJObG'",
            "u.toml:2",
            "password of user ana: the hash has m=4194304, above the maximum m=65536",
        ),
        ("[users.ana]\n\ntokens = ['dunlin_x']", "u.toml:3", "sha256:"),
        ("[users.ana]\npublish = ['a', 'b..c']", "u.toml:2", "empty token"),
        ("[users.ana]\npublish = 'a'", "u.toml:2", "sequence"),
        ("[users.ana]\ntenant = 'acme'", "u.toml:2", "there is no tenant \"acme\""),
        ("\n[users.'a b']\n", "u.toml:2", "a name is"),
        ("[tenants.'a/b']", "u.toml:1", "a name is"),
        ("[tenants.a.limits]\ntopics = 0", "u.toml:2", "over 0"),
        ("[tenants.a.limits]\ntopics = -1", "u.toml:2", "invalid value"),
        ("[tenants.a.limits]\ntopic_idle = 'soon'", "u.toml:2", "duration"),
        ("[tenants.a.limits]\ntopic_idle = '0s'", "u.toml:2", "from 1ms to 100 years"),
        ("[tenants.a.limits]\ntopic_idle = '101years'", "u.toml:2", "from 1ms to 100 years"),
        ("[tenants.'a..b']", "u.toml:1", "set the patterns of the tenant's subjects"),
        ("[users.ana]\ntasks = ['toil']", "u.toml:2", "expected submit, work, work:TENANT or manage"),
        ("[users.ana]\ntasks = ['submit', 'work:a/b']", "u.toml:2", "not \"work:a/b\""),
        ("tenants = 3", "u.toml:1", "map"),
        ("nobody = 1", "u.toml:1", "unknown field `nobody`"),
    ] {
        let error = UserDirectory::parse(text, "u.toml").unwrap_err();
        assert_eq!(error.place, place, "{text}: {error}");
        assert!(error.why.contains(why), "{text}: {error}");
    }
    let twice = format!("[users.a]\ntokens = ['{DIGEST}']\n[users.b]\ntokens = ['{DIGEST}']");
    let error = UserDirectory::parse(&twice, "u.toml").unwrap_err();
    assert_eq!((error.place.as_str(), error.why.as_str()), ("u.toml:3", "users b and a have the same token"));
}

#[test]
fn work_permission_applies_to_all_or_to_named_tenants() {
    let work = |tasks: &str| {
        let users = UserDirectory::parse(&format!("[users.ana]\ntasks = [{tasks}]"), "u.toml").unwrap();
        users.by_name["ana"].permissions.tasks.work.clone()
    };
    let of = |names: &[&str]| WorkScope::Of(names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(work("'submit'"), WorkScope::None);
    assert_eq!(work("'work:acme', 'work:beta'"), of(&["acme", "beta"]));
    assert_eq!(work("'work:acme', 'work'"), WorkScope::All);
}

#[test]
fn empty_users_file_has_no_users() {
    let users = UserDirectory::parse("", "u.toml").unwrap();
    assert_eq!(users.list().count(), 0);
    assert!(users.user_by_token(&[0; 32]).is_none());
}

proptest! {
    #[test]
    fn users_file_with_arbitrary_text_causes_no_panic(text in "\\PC*") {
        let _ = UserDirectory::parse(&text, "u.toml");
    }

    #[test]
    fn every_parse_error_of_a_users_file_has_a_line_and_a_reason(
        at in 0usize..600, with in "[\\[\\]=\"'.>*a0\n-]{0,3}", cut in 0usize..4,
    ) {
        let text = file();
        let at = at.min(text.len());
        let end = (at + cut).min(text.len());
        let changed = format!("{}{with}{}", &text[..at], &text[end..]);
        if let Err(error) = UserDirectory::parse(&changed, "u.toml") {
            prop_assert!(error.place.starts_with("u.toml:") && !error.why.is_empty());
        }
    }
}

#[test]
fn users_path_must_be_a_regular_file() {
    let refused = UserDirectory::read(Path::new("/dev/zero")).unwrap_err();
    assert!(refused.to_string().contains("not a regular file"), "{refused}");
}
