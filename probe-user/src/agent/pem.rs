//! Certificates and keys from PEM files. Errors name the file and the reason.

use std::path::Path;

use tokio_rustls::rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

/// All certificates of a file. An error if it has none.
pub(super) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match all {
        Ok(all) if all.is_empty() => Err(format!("{} has no certificate", file.display())),
        all => all.map_err(|error| format!("cannot use {}: {error}", file.display())),
    }
}

/// The certificates of a file, as authorities to trust.
pub(super) fn authorities(file: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        let added = roots.add(certificate);
        added.map_err(|error| format!("cannot use {}: {error}", file.display()))?;
    }
    Ok(roots)
}

/// The private key of a file.
pub(super) fn key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(file)
        .map_err(|error| format!("cannot use {}: {error}", file.display()))
}
