//! Reads the names in a certificate that a client has shown.

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The names in a verified client certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    /// The whole subject of the certificate, such as `CN=worker-7, O=Example`.
    pub(crate) subject: String,
    /// The DNS names, email addresses and URIs among the certificate's subject alternative names.
    pub(crate) names: Vec<String>,
}

impl ClientCertificate {
    pub(crate) fn read(der: &[u8]) -> Option<ClientCertificate> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        let subject = parsed.subject();
        let alternative_names = parsed.subject_alternative_name().ok().flatten();
        let names = alternative_names.into_iter().flat_map(|all| &all.value.general_names);
        Some(ClientCertificate {
            subject: subject.to_string(),
            names: names.filter_map(text).map(str::to_owned).collect(),
        })
    }
}

fn text<'a>(name: &GeneralName<'a>) -> Option<&'a str> {
    match name {
        GeneralName::DNSName(text) | GeneralName::RFC822Name(text) | GeneralName::URI(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

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
        assert!(read.subject.contains("CN=worker-7") && read.subject.contains("O=Example"), "{read:?}");
        assert_eq!(read.names, ["worker-7.example", "spiffe://example/worker/7"]);
        assert_eq!(ClientCertificate::read(b"nonsense"), None);
    }
}
