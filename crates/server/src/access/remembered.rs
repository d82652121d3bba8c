//! Who a connection is whose requests each bring credentials: as long as they are the same, and the users file is, they
//! are not looked at again.

use std::sync::Arc;

use dunlin::Refused;
use tokio::sync::Mutex;

use super::throttle::From;
use super::{Access, Credentials, Login};
use crate::tls::ClientCertificate;

/// See the module.
#[derive(Debug)]
pub(crate) struct Remembered {
    known: Mutex<Option<Known>>,
    /// Who the client is for requests that bring nothing else.
    certificate: Option<ClientCertificate>,
}

#[derive(Debug)]
struct Known {
    header: Vec<u8>,
    generation: u64,
    login: Arc<Login>,
}

impl Remembered {
    /// Of a connection whose client showed this certificate.
    pub(crate) fn of(certificate: Option<ClientCertificate>) -> Remembered {
        Remembered { known: Mutex::default(), certificate }
    }

    /// Who the request is of that has this header `authorization`.
    pub(crate) async fn log_in(
        &self,
        access: &Arc<Access>,
        header: Option<&[u8]>,
        from: From,
    ) -> Result<Arc<Login>, Refused> {
        let generation = access.generation();
        // Requests that come together wait for one look.
        let mut remembered = self.known.lock().await;
        if let Some(known) = &*remembered
            && known.generation == generation
            && Some(known.header.as_slice()) == header
        {
            return Ok(Arc::clone(&known.login));
        }
        // Its place is free for who comes now.
        remembered.take();
        let credentials = Credentials::of_header(header).or_certificate(self.certificate.as_ref());
        let login = access.log_in(credentials, from).await?;
        let known = Known { header: header.unwrap_or_default().to_vec(), generation, login };
        let login = Arc::clone(&known.login);
        *remembered = Some(known);
        Ok(login)
    }
}
