//! Reads the names in a certificate that a client has shown.

use std::fmt::Write as _;

use x509_parser::asn1_rs::{Any, BmpString, Tag, ToDer as _};
use x509_parser::extensions::GeneralName;
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

/// The names in a verified client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    /// The whole subject of the certificate, such as `CN=worker-7, O=Example`. Different subjects have different texts.
    pub(crate) subject: String,
    /// The DNS names, email addresses and URIs among the certificate's subject alternative names. A name that looks like
    /// another kind of name, or like a subject, is left out.
    pub(crate) names: Vec<String>,
}

impl ClientCertificate {
    pub(crate) fn read(der: &[u8]) -> Option<ClientCertificate> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        let subject = subject_text(parsed.subject())?;
        let alternative_names = parsed.subject_alternative_name().ok().flatten();
        let names = alternative_names.into_iter().flat_map(|all| &all.value.general_names);
        Some(ClientCertificate { subject, names: names.filter_map(text).map(str::to_owned).collect() })
    }
}

/// The kind of a name. [`NameKind::of`] gives each text exactly one kind, so names of different kinds are never equal.
#[derive(PartialEq, Eq)]
enum NameKind {
    Subject,
    Dns,
    Email,
    Uri,
}

impl NameKind {
    fn of(text: &str) -> NameKind {
        match text.chars().find(|character| matches!(character, '=' | ':')) {
            Some('=') => NameKind::Subject,
            Some(_) => NameKind::Uri,
            None if text.contains('@') => NameKind::Email,
            None => NameKind::Dns,
        }
    }
}

fn text<'a>(name: &GeneralName<'a>) -> Option<&'a str> {
    let (text, kind) = match *name {
        GeneralName::DNSName(text) => (text, NameKind::Dns),
        GeneralName::RFC822Name(text) => (text, NameKind::Email),
        GeneralName::URI(text) => (text, NameKind::Uri),
        _ => return None,
    };
    (NameKind::of(text) == kind).then_some(text)
}

/// Writes a subject as in RFC 4514, but in the certificate's order, and with the separators `, ` and ` + `.
fn subject_text(subject: &X509Name<'_>) -> Option<String> {
    let mut text = String::new();
    for attributes in subject.iter() {
        for (index, attribute) in attributes.iter().enumerate() {
            if !text.is_empty() {
                text.push_str(if index == 0 { ", " } else { " + " });
            }
            let oid = attribute.attr_type();
            let name = oid2abbrev(oid, oid_registry()).map_or_else(|_| format!("{oid:?}"), str::to_owned);
            text.push_str(&name);
            text.push('=');
            text.push_str(&value_text(attribute.attr_value())?);
        }
    }
    Some(text)
}

/// The escaped text of an attribute's value. A value that is no text becomes `#` and its DER encoding in hexadecimal.
fn value_text(value: &Any<'_>) -> Option<String> {
    let text = match value.tag() {
        Tag::BmpString => BmpString::try_from(value).ok().map(|text| text.string()),
        Tag::NumericString
        | Tag::VisibleString
        | Tag::PrintableString
        | Tag::GeneralString
        | Tag::ObjectDescriptor
        | Tag::GraphicString
        | Tag::T61String
        | Tag::VideotexString
        | Tag::Utf8String
        | Tag::Ia5String => std::str::from_utf8(value.data).ok().map(str::to_owned),
        _ => None,
    };
    match text {
        Some(text) => Some(escape(&text)),
        None => {
            let digits =
                value.to_der_vec().ok()?.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            Some(format!("#{digits}"))
        }
    }
}

/// Escapes the characters that have a meaning in a subject. Spaces at the ends become `\20`, because the users file's
/// entries are trimmed.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        let is_at_end = at == 0 || at + 1 == text.len();
        match character {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=' => escaped.extend(['\\', character]),
            '#' if at == 0 => escaped.push_str("\\#"),
            _ if character.is_ascii_control() || (character == ' ' && is_at_end) => {
                let _ = write!(escaped, "\\{:02X}", u32::from(character));
            }
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use rcgen::string::Ia5String;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};
    use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
    use x509_parser::x509::{AttributeTypeAndValue, RelativeDistinguishedName};

    use super::*;

    #[test]
    fn subject_and_names_are_read_from_a_client_certificate() {
        let mut params = CertificateParams::new(vec!["worker-7.example".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "worker-7");
        params.distinguished_name.push(DnType::OrganizationName, "Example");
        params.subject_alt_names.push(SanType::URI("spiffe://example/worker/7".try_into().unwrap()));
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let read = ClientCertificate::read(certificate.der()).unwrap();
        assert_eq!(read.subject, "CN=worker-7, O=Example");
        assert_eq!(read.names, ["worker-7.example", "spiffe://example/worker/7"]);
        assert_eq!(ClientCertificate::read(b"nonsense"), None);
    }

    #[test]
    fn special_characters_in_a_certificate_subject_are_escaped() {
        for (value, expected) in [
            ("ana, O=Ex", r"CN=ana\, O\=Ex"),
            ("ana + O=Ex", r"CN=ana \+ O\=Ex"),
            (r#"a\"<>;b"#, r#"CN=a\\\"\<\>\;b"#),
            ("#04", r"CN=\#04"),
            ("a#b c", "CN=a#b c"),
            (" ana ", r"CN=\20ana\20"),
            ("a\0\nb", r"CN=a\00\0Ab"),
            ("Zoë: 7", "CN=Zoë: 7"),
        ] {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(DnType::CommonName, value);
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            assert_eq!(ClientCertificate::read(certificate.der()).unwrap().subject, expected);
        }
    }

    #[test]
    fn certificate_subject_shows_multivalued_and_binary_attributes() {
        let attribute = |oid, tag, data: &'static [u8]| {
            AttributeTypeAndValue::new(oid, Any::from_tag_and_data(tag, data))
        };
        let name = [
            vec![
                attribute(OID_X509_COMMON_NAME, Tag::BmpString, b"\0a\0,"),
                attribute(OID_X509_ORGANIZATION_NAME, Tag::PrintableString, b"Ex"),
            ],
            vec![attribute(OID_X509_COMMON_NAME, Tag::OctetString, b"ana")],
            vec![attribute(OID_X509_COMMON_NAME, Tag::T61String, b"\xe9")],
        ];
        let name = X509Name::new(name.into_iter().map(RelativeDistinguishedName::new).collect(), &[]);
        assert_eq!(subject_text(&name).unwrap(), r"CN=a\, + O=Ex, CN=#0403616e61, CN=#1401e9");
    }

    #[test]
    fn ambiguous_alternative_names_of_a_certificate_are_ignored() {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        type NewName = fn(Ia5String) -> SanType;
        let names: [(NewName, &str); 12] = [
            (SanType::URI, "CN=ana, O=Ex"),
            (SanType::Rfc822Name, "CN=ana, O=Ex"),
            (SanType::DnsName, "CN=ana, O=Ex"),
            (SanType::Rfc822Name, "CN=ana@example"),
            (SanType::URI, "ana@example"),
            (SanType::DnsName, "ana@example"),
            (SanType::URI, "ana.example"),
            (SanType::Rfc822Name, "ana.example"),
            (SanType::DnsName, "spiffe://example/ana"),
            (SanType::URI, "spiffe://example/ana?CN=ana"),
            (SanType::Rfc822Name, "ana@example"),
            (SanType::DnsName, "ana.example"),
        ];
        params.subject_alt_names = names.map(|(kind, text)| kind(text.try_into().unwrap())).into();
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let read = ClientCertificate::read(certificate.der()).unwrap();
        assert_eq!(read.names, ["spiffe://example/ana?CN=ana", "ana@example", "ana.example"]);
    }
}
