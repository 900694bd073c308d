//! What happens to the head of a request: table by table.

use super::*;
use belljar_spec::egress::{PortRange, Reason, Refusal, RequestFilter};
use belljar_spec::secret::{Bodies, CredentialBinding, CredentialLocation, Inject, SecretRef};
use hyper::Request;
use hyper::body::Bytes;
use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const VALUE: &str = "sk-real-0123456789abcdefABCDEF";
const OTHER: &str = "ghp_another0123456789abcdefABC";

/// Values that a test can change.
#[derive(Default)]
struct Drawer(Mutex<BTreeMap<String, Option<String>>>);

impl Drawer {
    fn with(values: &[(&str, &str)]) -> Arc<Drawer> {
        let drawer = Drawer::default();
        for (name, value) in values {
            drawer.set(name, Some(value));
        }
        Arc::new(drawer)
    }

    fn set(&self, name: &str, value: Option<&str>) {
        self.0.lock().unwrap().insert(format!("secret:{name}"), value.map(String::from));
    }
}

impl SecretStore for Drawer {
    fn read(&self, reference: &SecretRef) -> Result<Secret, SecretError> {
        match self.0.lock().unwrap().get(&reference.to_string()) {
            Some(Some(value)) => Ok(Secret::new(value.as_bytes().to_vec())),
            _ => Err(SecretError { message: format!("there is no `{reference}`"), hint: "set it".into() }),
        }
    }
}

fn credential(name: &str, host: &str, locations: Vec<CredentialLocation>) -> Credential {
    Credential {
        name: name.parse().unwrap(),
        source: SecretSource::Stored(format!("secret:{name}").parse().unwrap()),
        bindings: vec![CredentialBinding {
            host: format!("={host}").parse().unwrap(),
            ports: PortRange::only(443).unwrap(),
            requests: RequestFilter {
                methods: ["GET", "POST"].map(|method| method.parse().unwrap()).to_vec(),
                paths: vec!["/v1/**".parse().unwrap()],
            },
            locations,
            inject: Inject::Placeholder,
        }],
        variables: vec![format!("{}_KEY", name.to_uppercase()).parse().unwrap()],
        bodies: Bodies::Watched,
    }
}

fn model() -> Credential {
    credential(
        "model",
        "api.example.com",
        vec![CredentialLocation::header("x-api-key").unwrap(), CredentialLocation::Bearer],
    )
}

fn forge() -> Credential {
    credential("forge", "git.example.com", vec![CredentialLocation::basic("x-access-token").unwrap()])
}

fn credentials(drawer: &Arc<Drawer>) -> Credentials {
    match Credentials::new(vec![model(), forge()], Arc::clone(drawer) as Arc<dyn SecretStore>) {
        Ok(credentials) => credentials,
        Err(error) => panic!("{error}"),
    }
}

fn both() -> Arc<Drawer> {
    Drawer::with(&[("model", VALUE), ("forge", OTHER)])
}

fn held<'a>(credentials: &'a Credentials, name: &str) -> &'a str {
    credentials.placeholder(&name.parse().unwrap()).unwrap()
}

fn origin(host: &str, port: u16, secure: bool) -> Origin {
    Origin { name: host.parse().unwrap(), port, secure }
}

fn request(method: &str, target: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// Nothing here waits for anything.
fn screen(credentials: &Credentials, to: &Origin, head: &mut Parts) -> Result<Screened, Refusal> {
    let future = pin!(credentials.screen(to, head));
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("it waits"),
    }
}

fn api() -> Origin {
    origin("api.example.com", 443, true)
}

fn sent<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
    head.headers.get(name).map(|value| value.to_str().unwrap())
}

#[test]
fn a_placeholder_becomes_the_value_where_it_belongs() {
    let credentials = credentials(&both());
    let placeholder = held(&credentials, "model");
    assert_eq!(placeholder.len(), VALUE.len());
    assert!(placeholder.starts_with("sk-") && placeholder != VALUE);
    let bearer = format!("Bearer {placeholder}");
    for (name, value, expected) in
        [("x-api-key", placeholder, VALUE.to_string()), ("authorization", &bearer, format!("Bearer {VALUE}"))]
    {
        let mut head = request(
            "POST",
            "/v1/messages",
            &[(name, value), ("accept-encoding", "gzip"), ("range", "bytes=0-9"), ("te", "gzip, trailers")],
        );
        let screened = screen(&credentials, &api(), &mut head).unwrap();
        assert_eq!(sent(&head, name), Some(expected.as_str()));
        assert_eq!(sent(&head, "accept-encoding"), Some("identity"));
        assert_eq!(sent(&head, "range"), None);
        assert_eq!(sent(&head, "te"), None);
        assert!(screened.request.is_some() && screened.response.is_some());
    }
}

#[test]
fn a_request_without_the_placeholder_gets_nothing() {
    let credentials = credentials(&both());
    for (to, target) in [(api(), "/v1/models"), (origin("git.example.com", 443, true), "/v1/repo")] {
        let mut bare = request("GET", target, &[]);
        // What comes back is searched all the same.
        assert!(screen(&credentials, &to, &mut bare).unwrap().response.is_some());
        assert_eq!((sent(&bare, "x-api-key"), sent(&bare, "authorization")), (None, None), "{to:?}");
    }
}

/// Both, with what they are added to if the configuration says so.
fn adding(drawer: &Arc<Drawer>) -> Credentials {
    let always = |mut credential: Credential| {
        credential.bindings[0].inject = Inject::Always;
        credential
    };
    Credentials::new(vec![always(model()), always(forge())], Arc::clone(drawer) as _).ok().unwrap()
}

#[test]
fn where_it_is_said_a_request_without_a_key_gets_one_and_one_with_its_own_keeps_it() {
    let credentials = adding(&both());
    let mut bare = request("GET", "/v1/models", &[]);
    screen(&credentials, &api(), &mut bare).unwrap();
    assert_eq!(sent(&bare, "x-api-key"), Some(VALUE));
    let mut own = request("GET", "/v1/models", &[("authorization", "Bearer sk-mine")]);
    screen(&credentials, &api(), &mut own).unwrap();
    assert_eq!((sent(&own, "authorization"), sent(&own, "x-api-key")), (Some("Bearer sk-mine"), None));
    // Where it does not belong nothing is added.
    for (method, target) in [("GET", "/"), ("GET", "/v2/x"), ("DELETE", "/v1/files"), ("TRACE", "/v1/x")] {
        let mut head = request(method, target, &[]);
        screen(&credentials, &api(), &mut head).unwrap();
        assert_eq!(sent(&head, "x-api-key"), None, "{method} {target}");
    }
    for to in [
        origin("api.example.com", 8443, true),
        origin("api.example.com", 443, false),
        origin("x.example.com", 443, true),
    ] {
        let mut head = request("GET", "/v1/x", &[]);
        screen(&credentials, &to, &mut head).unwrap();
        assert_eq!(sent(&head, "x-api-key"), None, "{to:?}");
    }
}

#[test]
fn a_placeholder_anywhere_else_is_refused() {
    let credentials = credentials(&both());
    let placeholder = held(&credentials, "model").to_string();
    let basic = format!("Basic {}", data_encoding::BASE64.encode(format!("me:{placeholder}").as_bytes()));
    let encoded: String = placeholder.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let twice = encoded.replace('%', "%25");
    let cookie = format!("session={placeholder}; a=b");
    let key = [("x-api-key", placeholder.as_str())];
    for (what, to, head) in [
        ("another host", origin("evil.example.com", 443, true), request("GET", "/v1/x", &key)),
        ("another port", origin("api.example.com", 8443, true), request("GET", "/v1/x", &key)),
        ("in clear text", origin("api.example.com", 443, false), request("GET", "/v1/x", &key)),
        ("another path", api(), request("GET", "/v2/x", &key)),
        ("a path that can be read otherwise", api(), request("GET", "/v1/%2e%2e/v2/x", &key)),
        ("another method", api(), request("PUT", "/v1/x", &key)),
        ("TRACE", api(), request("TRACE", "/v1/x", &key)),
        ("another header", api(), request("GET", "/v1/x", &[("x-other", &placeholder)])),
        ("beside a good one", api(), request("GET", "/v1/x", &[key[0], ("x-other", &placeholder)])),
        ("with more around it", api(), request("GET", "/v1/x", &[("x-api-key", &format!("{placeholder}x"))])),
        ("a cookie", api(), request("GET", "/v1/x", &[("cookie", &cookie)])),
        ("Basic, where only a bearer belongs", api(), request("GET", "/v1/x", &[("authorization", &basic)])),
        (
            "Basic, elsewhere",
            origin("evil.example.com", 443, true),
            request("GET", "/", &[("authorization", &basic)]),
        ),
        ("the query", api(), request("GET", &format!("/v1/x?key={placeholder}"), &[])),
        ("the query, encoded", api(), request("GET", &format!("/v1/x?key={encoded}"), &[])),
        ("the query, encoded twice", api(), request("GET", &format!("/v1/x?key={twice}"), &[])),
        ("the path", api(), request("GET", &format!("/v1/{placeholder}"), &[])),
        ("the user part", api(), request("GET", &format!("https://{placeholder}@api.example.com/v1/x"), &[])),
        ("the name of a header", api(), request("GET", "/v1/x", &[(&placeholder, "1")])),
        ("the other credential's host", origin("git.example.com", 443, true), request("GET", "/v1/x", &key)),
    ] {
        let mut head = head;
        let Err(refusal) = screen(&credentials, &to, &mut head) else { panic!("{what} was let out") };
        assert_eq!(refusal.reason, Reason::PlaceholderElsewhere, "{what}");
        assert!(refusal.detail.unwrap().as_str().contains("credential `model`"), "{what}");
    }
}

#[test]
fn git_gets_its_token_as_a_password() {
    let credentials = credentials(&both());
    let to = origin("git.example.com", 443, true);
    let coded = |pair: String| format!("Basic {}", data_encoding::BASE64.encode(pair.as_bytes()));
    let mut bare = request("GET", "/v1/repo", &[]);
    screen(&adding(&both()), &to, &mut bare).unwrap();
    assert_eq!(sent(&bare, "authorization"), Some(coded(format!("x-access-token:{OTHER}")).as_str()));
    let placeholder = held(&credentials, "forge");
    for (pair, expected) in [
        (format!("anybody:{placeholder}"), format!("anybody:{OTHER}")),
        (format!("{placeholder}:x-oauth-basic"), format!("{OTHER}:x-oauth-basic")),
    ] {
        let mut head = request("GET", "/v1/repo", &[("authorization", &coded(pair))]);
        screen(&credentials, &to, &mut head).unwrap();
        assert_eq!(sent(&head, "authorization"), Some(coded(expected).as_str()));
    }
}

#[test]
fn a_value_that_was_changed_counts_at_once_and_the_old_one_is_still_redacted() {
    let drawer = both();
    let credentials = credentials(&drawer);
    drawer.set("model", Some("sk-new-value-of-another-length-9876543210"));
    let mut head = request("GET", "/v1/x", &[("x-api-key", held(&credentials, "model"))]);
    let mut redact = screen(&credentials, &api(), &mut head).unwrap().response.unwrap();
    assert_eq!(sent(&head, "x-api-key"), Some("sk-new-value-of-another-length-9876543210"));
    let echo = format!("old {VALUE}, new sk-new-value-of-another-length-9876543210, other {OTHER}.");
    let mut out = redact.feed(Bytes::from(echo.clone())).to_vec();
    out.extend_from_slice(&redact.finish());
    let out = String::from_utf8(out).unwrap();
    assert_eq!(out.len(), echo.len());
    assert!(!out.contains(VALUE) && !out.contains("sk-new-value") && !out.contains(OTHER), "{out}");
    assert!(out.contains(held(&credentials, "model")), "{out}");
}

#[test]
fn a_secret_that_cannot_be_read_lets_nothing_out() {
    let drawer = both();
    let credentials = credentials(&drawer);
    drawer.set("model", None);
    let mut head = request("GET", "/v1/x", &[("x-api-key", held(&credentials, "model"))]);
    let refusal = screen(&credentials, &api(), &mut head).err().unwrap();
    assert_eq!(refusal.reason, Reason::SecretUnavailable);
    drawer.set("model", Some("bad\nvalue, with a line break"));
    let refusal = screen(&credentials, &api(), &mut head).err().unwrap();
    assert_eq!(refusal.reason, Reason::SecretUnavailable);
    assert!(!refusal.to_string().contains("bad"), "{refusal}");
}

#[test]
fn a_value_that_is_no_key_starts_nothing() {
    for value in ["short", "with a space in it", "with\r\nbreaks", "über-0123456789"] {
        let drawer = Drawer::with(&[("model", value)]);
        let error = Credentials::new(vec![model()], drawer).err().unwrap();
        assert!(error.message.contains("secret:model") && !error.message.contains(value), "{error}");
    }
    let error = Credentials::new(vec![model()], Drawer::with(&[])).err().unwrap();
    assert_eq!(
        (error.message.as_str(), error.hint.to_string().as_str()),
        ("there is no `secret:model`", "set it")
    );
}

#[test]
fn what_is_told_to_a_model_is_not_searched() {
    let talk = Credential { bodies: Bodies::Open, ..model() };
    let credentials = Credentials::new(vec![talk], both()).ok().unwrap();
    let mut head = request("POST", "/v1/messages", &[]);
    assert!(screen(&credentials, &api(), &mut head).unwrap().request.is_none());
    // Anywhere else it is.
    let mut head = request("POST", "/v2/messages", &[]);
    assert!(screen(&credentials, &api(), &mut head).unwrap().request.is_some());
}

#[test]
fn every_sandbox_has_its_own_placeholders() {
    let (one, two) = (credentials(&both()), credentials(&both()));
    assert_ne!(held(&one, "model"), held(&two, "model"));
    let names: Vec<String> = one.variables().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["MODEL_KEY", "FORGE_KEY"]);
    assert!(one.covers(&"api.example.com".parse().unwrap(), 443));
    assert!(!one.covers(&"api.example.com".parse().unwrap(), 80));
    assert!(Credentials::none().is_empty());
}

#[test]
fn no_flood_of_refusals_hides_what_became_of_a_credential() {
    let folder = tempfile::tempdir().unwrap();
    let id = belljar_spec::SandboxId::from_random([7; 8]);
    let log = belljar_audit::Log::create(folder.path(), id).unwrap();
    let recorder = Arc::new(Recorder::new(Some(log)));
    let credentials = credentials(&both());
    credentials.record_in(&recorder);
    for number in 0..25_000 {
        let name: HostName = format!("n{number}.example").parse().unwrap();
        recorder.connection_refused(&Refusal::new(name, Some(443), Reason::NameNotAllowed));
    }
    let key = held(&credentials, "model").to_string();
    screen(&credentials, &api(), &mut request("GET", "/v1/x", &[("x-api-key", &key)])).ok().unwrap();
    for number in 0..3000 {
        let other = origin(&format!("n{number}.example"), 443, true);
        assert!(screen(&credentials, &other, &mut request("GET", "/", &[("x-api-key", &key)])).is_err());
    }
    let path = folder.path().join(format!("{id}.jsonl"));
    let text = std::fs::read_to_string(path).unwrap();
    let lines = |kind: &str| text.lines().filter(|line| line.contains(&format!("\"{kind}\""))).count();
    assert_eq!(lines("credential_used"), 1);
    assert_eq!(lines("placeholder_elsewhere"), 3000);
}
