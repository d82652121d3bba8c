//! Caches the login of a connection whose requests carry credentials in their header `authorization`. Requests with the
//! same header share one login while the users file still contains the login's credential. A shared login counts as one
//! connection.

use std::sync::Arc;

use dunlin::Refused;
use tokio::sync::Mutex;

use super::throttle::ClientIp;
use super::{Access, Credentials, Login};
use crate::tls::ClientCertificate;

/// The present login of a connection, which its requests share.
#[derive(Debug)]
pub(crate) struct RequestLoginCache {
    entry: Mutex<Option<CachedLogin>>,
    /// The client's certificate. Requests without a header `authorization` log in with it.
    certificate: Option<ClientCertificate>,
}

#[derive(Debug)]
struct CachedLogin {
    /// The header `authorization` with which the login was made; `None` if it was made with the client's certificate.
    header: Option<Vec<u8>>,
    /// The generation (version number) of the users file at the login's last check.
    generation: u64,
    login: Arc<Login>,
}

impl RequestLoginCache {
    /// Creates an empty cache for a connection; `certificate` is the client's certificate.
    pub(crate) fn of(certificate: Option<ClientCertificate>) -> RequestLoginCache {
        RequestLoginCache { entry: Mutex::default(), certificate }
    }

    /// Returns the login of a request that has this `authorization` header.
    pub(crate) async fn log_in(
        &self,
        access: &Arc<Access>,
        header: Option<&[u8]>,
        from: ClientIp,
    ) -> Result<Arc<Login>, Refused> {
        // Concurrent requests wait here until one of them has logged in.
        let mut entry = self.entry.lock().await;
        let generation = access.generation();
        if let Some(cached) = &mut *entry
            && cached.header.as_deref() == header
            && (cached.generation == generation || cached.login.check_validity().is_ok())
        {
            cached.generation = generation;
            return Ok(Arc::clone(&cached.login));
        }
        // Ends the old login first, so that the two logins do not count as two connections.
        entry.take();
        let credentials = Credentials::from_header(header).or_certificate(self.certificate.as_ref());
        let login = access.log_in(credentials, from).await?;
        let cached = CachedLogin { header: header.map(<[u8]>::to_vec), generation, login };
        let login = Arc::clone(&cached.login);
        *entry = Some(cached);
        Ok(login)
    }
}
