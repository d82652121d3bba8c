//! Creates the certificates that a user needs to try TLS on one machine: for an authority, a node and a client.
//!
//! The authority's key is discarded after signing, so that nothing else can be signed with it. New certificates
//! therefore need a new authority, and a directory of their own.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

/// The names for which the node's certificate is valid.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// How long all certificates are valid, in days.
const VALID_DAYS: i64 = 397;
/// The permissions of files with a private key.
const SECRET: u32 = 0o600;
/// The permissions of files with a certificate.
const PUBLIC: u32 = 0o644;

/// The paths of generated TLS certificates and keys (PEM), for a node and a client on one machine.
#[derive(Debug, Clone)]
pub struct Certificates {
    pub dir: String,
    pub ca: String,
    pub node: String,
    pub node_key: String,
    pub client: String,
    pub client_key: String,
    /// Whether `open_or_create` created the files; `false` if they existed already.
    pub are_new: bool,
}

impl Certificates {
    /// Returns the paths of the certificates in `dir`. Creates the files if `dir` contains none of them.
    pub fn open_or_create(dir: &Path) -> Result<Certificates> {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("cannot create the directory {}", dir.display()))?;
        let dir =
            dir.canonicalize().with_context(|| format!("cannot find the directory {}", dir.display()))?;
        let path = |name: &str| {
            let path = dir.join(name);
            path.to_str().map(str::to_owned).with_context(|| format!("{} is not valid UTF-8", path.display()))
        };
        let mut certificates = Certificates {
            dir: path("")?.trim_end_matches('/').to_owned(),
            ca: path("ca.pem")?,
            node: path("node.pem")?,
            node_key: path("node-key.pem")?,
            client: path("client.pem")?,
            client_key: path("client-key.pem")?,
            are_new: false,
        };
        let missing: Vec<_> =
            certificates.files().into_iter().filter(|path| !Path::new(path).exists()).collect();
        match missing.len() {
            0 => {}
            5 => {
                certificates.generate()?;
                certificates.are_new = true;
            }
            _ => bail!(
                "{} has some certificates but not {}: remove the directory, so that the next start creates all of them",
                certificates.dir,
                missing.join(", ")
            ),
        }
        Ok(certificates)
    }

    fn files(&self) -> [String; 5] {
        [&self.ca, &self.node, &self.node_key, &self.client, &self.client_key].map(Clone::clone)
    }

    fn generate(&self) -> Result<()> {
        let mut authority = params(&[], "Dunlin, for trying things on this machine")?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let sign = |names: &[&str], subject, purpose| -> Result<(String, String)> {
            let mut params = params(names, subject)?;
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![purpose];
            params.use_authority_key_identifier_extension = true;
            let key = KeyPair::generate()?;
            Ok((params.signed_by(&key, &authority)?.pem(), key.serialize_pem()))
        };
        let (node, node_key) = sign(&NAMES, "a Dunlin node", ExtendedKeyUsagePurpose::ServerAuth)?;
        let (client, client_key) = sign(&[], "a client of Dunlin", ExtendedKeyUsagePurpose::ClientAuth)?;
        write(&self.node_key, &node_key, SECRET)?;
        write(&self.node, &node, PUBLIC)?;
        write(&self.client_key, &client_key, SECRET)?;
        write(&self.client, &client, PUBLIC)?;
        write(&self.ca, &authority.pem(), PUBLIC)
    }
}

fn params(names: &[&str], subject: &str) -> Result<CertificateParams> {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names)?;
    let now = OffsetDateTime::now_utc();
    // The certificates are valid from a day ago, because the clocks of other machines may be behind this machine's
    // clock.
    (params.not_before, params.not_after) = (now - Duration::DAY, now + Duration::days(VALID_DAYS));
    params.distinguished_name.push(DnType::CommonName, subject);
    Ok(params)
}

fn write(path: &str, text: &str, mode: u32) -> Result<()> {
    let path = PathBuf::from(path);
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(&path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn existing_certificates_are_reused_and_key_files_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let created = Certificates::open_or_create(&dir.path().join("tls")).unwrap();
        assert!(created.are_new);
        let read = |path: &str| std::fs::read(path).unwrap();
        let before = created.files().map(|path| read(&path));
        let found = Certificates::open_or_create(&dir.path().join("tls")).unwrap();
        assert!(!found.are_new);
        assert_eq!(found.files().map(|path| read(&path)), before);
        for key in [&created.node_key, &created.client_key] {
            assert_eq!(std::fs::metadata(key).unwrap().permissions().mode() & 0o777, SECRET, "{key}");
        }
        std::fs::remove_file(&created.client).unwrap();
        let error = Certificates::open_or_create(&dir.path().join("tls")).unwrap_err().to_string();
        assert!(error.contains("client.pem"), "{error}");
    }
}
