//! Caches the login of a connection whose requests carry credentials. While the requests have the same header and the
//! users file still has its credential, all requests of the connection share one login, which counts as one connection.

use std::sync::Arc;

use dunlin::Refused;
use tokio::sync::Mutex;

use super::throttle::ClientIp;
use super::{Access, Credentials, Login};
use crate::tls::ClientCertificate;

/// The login that the requests of one connection share.
#[derive(Debug)]
pub(crate) struct RequestLoginCache {
    entry: Mutex<Option<CachedLogin>>,
    /// The client's certificate, for requests without other credentials.
    certificate: Option<ClientCertificate>,
}

#[derive(Debug)]
struct CachedLogin {
    /// The header `authorization`; `None` for a login with the client's certificate.
    header: Option<Vec<u8>>,
    /// The generation of the users file at the last check.
    generation: u64,
    login: Arc<Login>,
}

impl RequestLoginCache {
    /// An empty cache for a connection with this client certificate.
    pub(crate) fn of(certificate: Option<ClientCertificate>) -> RequestLoginCache {
        RequestLoginCache { entry: Mutex::default(), certificate }
    }

    /// Logs in a request with this `authorization` header.
    pub(crate) async fn log_in(
        &self,
        access: &Arc<Access>,
        header: Option<&[u8]>,
        from: ClientIp,
    ) -> Result<Arc<Login>, Refused> {
        // Concurrent requests of the connection wait for one login.
        let mut entry = self.entry.lock().await;
        let generation = access.generation();
        if let Some(cached) = &mut *entry
            && cached.header.as_deref() == header
            && (cached.generation == generation || cached.login.check_validity().is_ok())
        {
            cached.generation = generation;
            return Ok(Arc::clone(&cached.login));
        }
        // Ends the old login first, so that only the new login counts as a connection.
        entry.take();
        let credentials = Credentials::from_header(header).or_certificate(self.certificate.as_ref());
        let login = access.log_in(credentials, from).await?;
        let cached = CachedLogin { header: header.map(<[u8]>::to_vec), generation, login };
        let login = Arc::clone(&cached.login);
        *entry = Some(cached);
        Ok(login)
    }
}
