//! Requests to one endpoint, with our credentials, bounds, and time limits.

use super::auth::{Challenge, challenge};
use super::credentials::{self, Login, Shy};
use super::endpoint::{Endpoint, may_lead_to};
use crate::error::ImageError;
use crate::limits::{ANSWER, DOCUMENT, DOCUMENT_TIME};
use crate::options::PullOptions;
use crate::progress::Progress;
use crate::reference::Reference;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, RANGE, RETRY_AFTER, WWW_AUTHENTICATE};
use reqwest::redirect::Policy;
use reqwest::{Response, StatusCode, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use zeroize::Zeroizing;

/// Requests about one image to one endpoint.
pub(crate) struct Client<'a> {
    http: reqwest::Client,
    endpoint: Endpoint,
    reference: &'a Reference,
    options: &'a PullOptions,
    login: Option<Login>,
    /// What let us in last time.
    authorization: Mutex<Option<HeaderValue>>,
    progress: &'a dyn Progress,
    /// How long is waited for a document, or for a blob to begin.
    time_limit: Duration,
}

impl<'a> Client<'a> {
    pub(crate) fn new(
        endpoint: Endpoint,
        reference: &'a Reference,
        options: &'a PullOptions,
        progress: &'a dyn Progress,
    ) -> Result<Client<'a>, ImageError> {
        let login = match &options.credentials {
            Some(file) => credentials::login(file, &endpoint.known_as)?,
            None => None,
        };
        let named = options.plain_http.clone();
        let policy = Policy::custom(move |attempt| {
            let to = host_of(attempt.url());
            let is_safe = attempt.url().scheme() == "https"
                || attempt.previous().iter().all(|before| before.scheme() == "http")
                    && attempt
                        .previous()
                        .first()
                        .is_some_and(|first| may_lead_to(&host_of(first), &to, &named));
            match attempt.previous().len() {
                _ if !is_safe => attempt.error(Insecure(to)),
                0..REDIRECTS => attempt.follow(),
                _ => attempt.error("it sends us around in circles"),
            }
        });
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls(&endpoint, options)?)
            .redirect(policy)
            .referer(false)
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .user_agent(concat!("belljar/", env!("CARGO_PKG_VERSION")));
        if endpoint.is_plain {
            // A registry next to us is not asked through a proxy, which would also see the password.
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| unreachable(&endpoint, &error))?;
        let authorization = Mutex::new(None);
        let time_limit = DOCUMENT_TIME;
        Ok(Client { http, endpoint, reference, options, login, authorization, progress, time_limit })
    }

    /// A manifest or an index, by tag or digest. Whether it is the right one is for the caller to see.
    pub(crate) async fn manifest(&self, which: &str) -> Result<Vec<u8>, ImageError> {
        let url = self.endpoint.url(&self.reference.repository, "manifests", which);
        self.whole(&url, &[(ACCEPT, MANIFESTS)]).await
    }

    /// A small blob.
    pub(crate) async fn document(&self, digest: &str) -> Result<Vec<u8>, ImageError> {
        let url = self.endpoint.url(&self.reference.repository, "blobs", digest);
        self.whole(&url, &[]).await
    }

    /// The answer for a blob from `offset` on: all of it (200), the rest (206), or that there is no rest (416).
    pub(super) async fn blob(&self, digest: &str, offset: u64) -> Result<Response, ImageError> {
        let url = self.endpoint.url(&self.reference.repository, "blobs", digest);
        let range = format!("bytes={offset}-");
        let headers: &[_] = if offset > 0 { &[(RANGE, range.as_str())] } else { &[] };
        // What comes before it, a token or a refusal, could drip for ever.
        self.in_time("the beginning of a blob", self.get(&url, headers)).await
    }

    /// That something is tried again, and after how long.
    pub(super) async fn wait(&self, attempt: u32, why: &str) {
        self.progress.again(why);
        tokio::time::sleep(FIRST_PAUSE * 2u32.pow(attempt.min(5))).await;
    }

    /// The registry or mirror.
    pub(crate) fn server(&self) -> &str {
        &self.endpoint.host
    }

    pub(super) fn too_slow(&self, least: u64) -> ImageError {
        ImageError::TooSlow { registry: self.endpoint.host.clone(), least }
    }

    pub(super) fn progress(&self) -> &dyn Progress {
        self.progress
    }

    pub(super) fn broken(&self, error: &reqwest::Error) -> ImageError {
        unreachable(&self.endpoint, error)
    }

    async fn whole(
        &self,
        url: &str,
        headers: &[(reqwest::header::HeaderName, &str)],
    ) -> Result<Vec<u8>, ImageError> {
        self.in_time("a document", self.whole_at_last(url, headers)).await
    }

    /// With all that is tried again.
    async fn in_time<T>(
        &self,
        what: &str,
        work: impl Future<Output = Result<T, ImageError>>,
    ) -> Result<T, ImageError> {
        match tokio::time::timeout(self.time_limit, work).await {
            Ok(done) => done,
            Err(_) => {
                let why = format!("{what} took longer than {} s", self.time_limit.as_secs_f64());
                Err(ImageError::Unreachable { registry: self.endpoint.host.clone(), why })
            }
        }
    }

    async fn whole_at_last(
        &self,
        url: &str,
        headers: &[(reqwest::header::HeaderName, &str)],
    ) -> Result<Vec<u8>, ImageError> {
        let mut attempt = 0;
        loop {
            let mut response = self.get(url, headers).await?;
            match bounded(&mut response, DOCUMENT).await {
                Ok(Some(bytes)) => return Ok(bytes),
                Ok(None) => {
                    let why = format!("it is larger than {DOCUMENT} bytes");
                    return Err(ImageError::Document { what: "manifest or configuration", why });
                }
                Err(error) if attempt < ATTEMPTS => {
                    attempt += 1;
                    self.wait(attempt, &error.to_string()).await;
                }
                Err(error) => return Err(self.broken(&error)),
            }
        }
    }

    /// Asks, says who we are if that is wanted, and asks again if it may help.
    async fn get(
        &self,
        url: &str,
        headers: &[(reqwest::header::HeaderName, &str)],
    ) -> Result<Response, ImageError> {
        let (mut attempt, mut has_authorized) = (0, false);
        loop {
            let mut request = self.http.get(url);
            for (name, value) in headers {
                request = request.header(name, *value);
            }
            let known = self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(authorization) = known {
                request = request.header(AUTHORIZATION, authorization);
            }
            let pause = match request.send().await {
                Err(error) if error.is_redirect() || attempt >= ATTEMPTS => return Err(self.broken(&error)),
                Err(error) => error.to_string(),
                Ok(response) => match response.status() {
                    // A server that the registry redirected us to names no token server: that one would be told the
                    // registry's password.
                    StatusCode::UNAUTHORIZED if !has_authorized && is_of(&response, url) => {
                        has_authorized = true;
                        self.say_who(response.headers()).await?;
                        continue;
                    }
                    status if is_passing(status) && attempt < ATTEMPTS => {
                        if let Some(seconds) = retry_after(response.headers()) {
                            tokio::time::sleep(seconds.min(MAX_PAUSE)).await;
                        }
                        format!("it answered {status}")
                    }
                    status if status.is_success() || status == StatusCode::RANGE_NOT_SATISFIABLE => {
                        return Ok(response);
                    }
                    _ => return Err(self.refusal(url, response).await),
                },
            };
            attempt += 1;
            self.wait(attempt, &pause).await;
        }
    }

    /// Finds out what would let us in, and keeps it.
    async fn say_who(&self, headers: &HeaderMap) -> Result<(), ImageError> {
        let values = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenges: Vec<Challenge> = values.filter_map(challenge).collect();
        let bearer = challenges.iter().find(|challenge| matches!(challenge, Challenge::Bearer { .. }));
        let header = match bearer.or(challenges.first()) {
            Some(Challenge::Bearer { realm, service, scope }) => {
                self.token(realm, service.as_deref(), scope.as_deref()).await?
            }
            Some(Challenge::Basic) => match &self.login {
                Some(login) => login.header(),
                None => return Err(self.unauthorized()),
            },
            None => return Err(self.unauthorized()),
        };
        let mut value = HeaderValue::from_str(&header).map_err(|_| self.unauthorized())?;
        value.set_sensitive(true);
        *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        Ok(())
    }

    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
    ) -> Result<Zeroizing<String>, ImageError> {
        let mut url: Url = realm.parse().map_err(|_| self.unauthorized())?;
        let host = host_of(&url);
        if url.scheme() != "https"
            && !(self.endpoint.is_plain && may_lead_to(&self.endpoint.host, &host, &self.options.plain_http))
        {
            return Err(ImageError::Downgrade { registry: self.endpoint.host.clone(), to: host });
        }
        let ours = format!("repository:{}:pull", self.endpoint.repository(&self.reference.repository));
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", service);
        }
        url.query_pairs_mut().append_pair("scope", scope.unwrap_or(&ours));
        let mut response = self.ask_for_token(&url).await?;
        let body = bounded(&mut response, ANSWER).await.map_err(|error| self.broken(&error))?;
        let token: Option<Token> = body.and_then(|body| serde_json::from_slice(&body).ok());
        let token = token.and_then(|token| token.token.or(token.access_token));
        let token = token.filter(|token| !token.0.is_empty()).ok_or_else(|| self.unauthorized())?;
        Ok(Zeroizing::new(format!("Bearer {}", *token.0)))
    }

    /// Asks again where that may help: a server that is busy says nothing about who we are.
    async fn ask_for_token(&self, url: &Url) -> Result<Response, ImageError> {
        let mut attempt = 0;
        loop {
            let mut request = self.http.get(url.clone());
            if let Some(login) = &self.login {
                let mut value = HeaderValue::from_str(&login.header()).map_err(|_| self.unauthorized())?;
                value.set_sensitive(true);
                request = request.header(AUTHORIZATION, value);
            }
            let why = match request.send().await {
                Err(error) if error.is_redirect() || attempt >= ATTEMPTS => return Err(self.broken(&error)),
                Err(error) => error.to_string(),
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) if is_passing(response.status()) => {
                    if attempt >= ATTEMPTS {
                        return Err(ImageError::Answer {
                            registry: host_of(url),
                            status: response.status().as_u16(),
                            detail: "when it was asked for a token".into(),
                        });
                    }
                    if let Some(seconds) = retry_after(response.headers()) {
                        tokio::time::sleep(seconds.min(MAX_PAUSE)).await;
                    }
                    format!("`{}` answered {}", host_of(url), response.status())
                }
                Ok(_) => return Err(self.unauthorized()),
            };
            attempt += 1;
            self.wait(attempt, &why).await;
        }
    }

    async fn refusal(&self, url: &str, mut response: Response) -> ImageError {
        let registry = self.endpoint.host.clone();
        match response.status() {
            StatusCode::NOT_FOUND => ImageError::NotFound { registry, image: self.reference.to_string() },
            // What another server answers, to which the registry redirected us, may not be the registry's to know; nor does
            // a password help.
            status if !is_of(&response, url) => {
                let detail = format!("of `{}`, where it sent us", host_of(response.url()));
                ImageError::Answer { registry, status: status.as_u16(), detail }
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.unauthorized(),
            status => {
                let body = bounded(&mut response, ANSWER).await.ok().flatten().unwrap_or_default();
                let detail: String = String::from_utf8_lossy(&body).chars().take(200).collect();
                let detail = detail.escape_debug().to_string();
                ImageError::Answer { registry, status: status.as_u16(), detail }
            }
        }
    }

    fn unauthorized(&self) -> ImageError {
        let registry = self.endpoint.known_as.clone();
        ImageError::Unauthorized { registry, image: self.reference.to_string() }
    }
}

#[derive(Deserialize)]
struct Token {
    token: Option<Shy>,
    access_token: Option<Shy>,
}

/// A redirect from TLS to the clear.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` has no TLS")]
struct Insecure(String);

/// All of a body; nothing if it is longer than it may be.
async fn bounded(response: &mut Response, most: u64) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() as u64 > most {
            return Ok(None);
        }
    }
    Ok(Some(body))
}

/// TLS as everywhere in belljar: one provider, the system's authorities and those that were named.
fn tls(endpoint: &Endpoint, options: &PullOptions) -> Result<rustls::ClientConfig, ImageError> {
    let failed = |why: String| ImageError::Unreachable { registry: endpoint.host.clone(), why };
    let mut roots = rustls::RootCertStore::empty();
    // A registry in the clear may redirect us to a server with TLS.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for file in &options.authorities {
        let certificates =
            CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let certificates = certificates.map_err(|error| failed(format!("`{}`: {error}", file.display())))?;
        roots.add_parsable_certificates(certificates);
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| failed(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn unreachable(endpoint: &Endpoint, error: &reqwest::Error) -> ImageError {
    let registry = endpoint.host.clone();
    let (mut why, mut source) = (String::new(), error.source());
    while let Some(cause) = source {
        if let Some(Insecure(to)) = cause.downcast_ref::<Insecure>() {
            return ImageError::Downgrade { registry, to: to.clone() };
        }
        why = cause.to_string();
        source = cause.source();
    }
    if why.is_empty() {
        why = if error.is_timeout() { "it is silent".into() } else { error.to_string() };
    }
    ImageError::Unreachable { registry, why }
}

/// Whether an answer is of the server that was asked, and not of one that it sent us to.
fn is_of(response: &Response, url: &str) -> bool {
    url.parse().is_ok_and(|url| is_same_server(&url, response.url()))
}

/// A port that was written out and the usual one that was not are the same.
fn is_same_server(one: &Url, two: &Url) -> bool {
    one.origin() == two.origin()
}

fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_string(),
    }
}

fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";
/// As curl and Go have it.
const REDIRECTS: usize = 10;
/// After the first.
pub(super) const ATTEMPTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(125);
const MAX_PAUSE: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(10);
/// Between two pieces of an answer.
const SILENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;
    use crate::dripping;
    use crate::progress::Silent;
    use crate::registry::endpoints;

    #[test]
    fn what_comes_before_a_blob_and_drips_is_given_up() {
        for what in ["a token", "a refusal"] {
            // In the end all of it is there: a client that waits for so long gets the blob, or the reason.
            let address = dripping::serve(move |request, address| match what {
                "a refusal" => ("400 Bad Request", String::new(), "no"),
                _ if request.starts_with("GET /token") => ("200 OK", String::new(), r#"{"token":"t"}"#),
                _ if request.contains("authorization:") => ("200 OK", String::new(), ""),
                _ => {
                    let realm = format!("WWW-Authenticate: Bearer realm=\"http://{address}/token\"\r\n");
                    ("401 Unauthorized", realm, "")
                }
            });
            let reference = Reference::of(&format!("{address}/app:1").parse().unwrap());
            let options = PullOptions::default();
            let endpoint = endpoints(&reference, &options).remove(0);
            let mut client = Client::new(endpoint, &reference, &options, &Silent).unwrap();
            client.time_limit = Duration::from_millis(100);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let error = runtime.block_on(client.blob(&Digest::of(b"x").to_string(), 0)).unwrap_err();
            assert!(error.to_string().contains("took longer than 0.1 s"), "{what}: {error}");
        }
    }

    #[test]
    fn a_server_is_the_same_by_its_scheme_its_name_and_its_port() {
        for (one, two, is_same) in [
            ("https://r.lan:443/v2/a", "https://r.lan/v2/b", true),
            ("http://r.lan:80/v2/a", "http://r.lan/", true),
            ("https://r.lan:5000/a", "https://R.lan:5000/b", true),
            ("http://r.lan/a", "https://r.lan/a", false),
            ("https://r.lan/a", "https://r.lan:5000/a", false),
            ("https://r.lan/a", "https://cdn.r.lan/a", false),
        ] {
            let (one, two): (Url, Url) = (one.parse().unwrap(), two.parse().unwrap());
            assert_eq!(is_same_server(&one, &two), is_same, "{one} {two}");
        }
    }
}
