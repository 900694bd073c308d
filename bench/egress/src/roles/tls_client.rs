//! Measures new connections with real cryptography, nothing of which is kept from one to the next.

use super::{AT_A_TIME, seconds, usage};
use crate::Outcome;
use crate::target::{Dialler, Target};
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

/// Seconds, the certificate to trust, the name, the target. Prints connections per second, and how many failed.
pub(crate) fn run(words: &[&str]) -> Outcome<()> {
    let &[time, certificate, name, target] = words else { return usage("TLS client") };
    let time = seconds(time)?;
    let target: Target = target.parse()?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate)?)?;
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.resumption = Resumption::disabled();
    let (config, name) = (Arc::new(config), ServerName::try_from(name.to_string())?);

    let start = Instant::now();
    let clients: Vec<_> = (0..AT_A_TIME)
        .map(|_| {
            let (config, name, target) = (Arc::clone(&config), name.clone(), target.clone());
            thread::spawn(move || {
                let (mut done, mut failed) = (0, 0);
                let Ok(dialler) = Dialler::new(target) else { return (0, 1) };
                while start.elapsed() < time {
                    match one(&dialler, &config, &name) {
                        Ok(()) => done += 1,
                        Err(_) => failed += 1,
                    }
                }
                (done, failed)
            })
        })
        .collect();
    let counts = clients.into_iter().map(|client| client.join().unwrap_or((0, 1)));
    let (done, failed) = counts.fold((0_u64, 0_u64), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    println!("{} {failed}", done as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

/// Shakes hands, asks for one byte, and reads to the end.
fn one(dialler: &Dialler, config: &Arc<ClientConfig>, name: &ServerName<'static>) -> Outcome<()> {
    let stream = dialler.connect()?;
    stream.set_nodelay(true)?;
    let mut tls = StreamOwned::new(ClientConnection::new(Arc::clone(config), name.clone())?, stream);
    write!(tls, "GET /1 HTTP/1.1\r\nHost: {}\r\n\r\n", name.to_str())?;
    let mut reply = Vec::new();
    tls.read_to_end(&mut reply)?;
    if reply.starts_with(b"HTTP/1.1 200") && reply.ends_with(&[7]) {
        return Ok(());
    }
    Err("not the reply of the server".into())
}
