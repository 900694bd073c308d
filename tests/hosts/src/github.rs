//! A stand-in for GitHub's API, as much of it as an App's tokens need. It is as strict as the real one: the signature and
//! the times of a JWT, what an App may ask for, and what a token can do.

use crate::{HttpServer, Request, Response};
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// An App that is installed for `acme/widgets` and `acme/gadgets`.
pub struct GitHub {
    server: HttpServer,
    state: Arc<Mutex<State>>,
    key_pem: String,
}

/// A token that was minted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub permissions: BTreeMap<String, String>,
    /// Full names.
    pub repositories: Vec<String>,
    pub revoked: bool,
}

#[derive(Default)]
struct State {
    public: Vec<u8>,
    /// How long tokens live, in seconds.
    life: u64,
    tokens: Vec<Token>,
    /// No client gets a new token.
    is_down: bool,
    /// What was wrong with requests that were refused.
    complaints: Vec<String>,
}

impl GitHub {
    /// The App's id.
    pub const APP: u64 = 4242;
    /// The id of its installation.
    pub const INSTALLATION: u64 = 777;

    /// Whose tokens live for so many seconds.
    pub fn start(life: u64) -> GitHub {
        let key = KeyPair::generate(KeySize::Rsa2048).expect("a key is made");
        let der = key.as_der().expect("a key can be written");
        let key_pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            BASE64.encode(der.as_ref())
        );
        let public = key.public_key().as_ref().to_vec();
        let state = Arc::new(Mutex::new(State { public, life, ..State::default() }));
        let shared = Arc::clone(&state);
        let server = HttpServer::start(Ipv4Addr::LOCALHOST, move |request| {
            let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
            state.answer(request)
        });
        GitHub { server, state, key_pem }
    }

    /// Where its API is.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// The App's private key.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// Every token so far.
    pub fn tokens(&self) -> Vec<Token> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).tokens.clone()
    }

    /// Mints no more of them.
    pub fn go_down(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).is_down = true;
    }

    /// What was wrong with what was refused.
    pub fn complaints(&self) -> Vec<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).complaints.clone()
    }

    /// Can this token do that there? For servers that stand for the rest of GitHub.
    pub fn may(&self, token: &str, repository: &str, permission: &str, access: &str) -> bool {
        may(&self.tokens(), token, repository, permission, access)
    }

    /// The same question for a caller that outlives this borrow.
    pub fn judge(&self) -> impl Fn(&str, &str, &str, &str) -> bool + Send + Sync + 'static {
        let state = Arc::clone(&self.state);
        move |token, repository, permission, access| {
            let state = state.lock().unwrap_or_else(PoisonError::into_inner);
            may(&state.tokens, token, repository, permission, access)
        }
    }
}

fn may(tokens: &[Token], token: &str, repository: &str, permission: &str, access: &str) -> bool {
    let known = tokens.iter().find(|known| known.text == token && !known.revoked);
    known.is_some_and(|token| {
        let has = token.permissions.get(permission).is_some_and(|has| has == access || has == "write");
        has && token.repositories.iter().any(|name| name == repository)
    })
}

impl State {
    fn answer(&mut self, request: &Request) -> Response {
        let bearer = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let bearer = bearer.unwrap_or_default().to_string();
        let mint = format!("/app/installations/{}/access_tokens", GitHub::INSTALLATION);
        let outcome = match (request.method.as_str(), request.target.as_str()) {
            ("POST", _) if self.is_down => Err((503, "Service Unavailable".into())),
            ("POST", target) if target == mint => self.mint(&bearer, &request.body),
            ("DELETE", "/installation/token") => self.revoke(&bearer),
            _ => Err((404, "Not Found".into())),
        };
        outcome.unwrap_or_else(|(status, message)| {
            self.complaints.push(message.clone());
            Response { status, ..Response::ok(json!({ "message": message }).to_string()) }
        })
    }

    fn mint(&mut self, jwt: &str, body: &[u8]) -> Result<Response, (u16, String)> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that was set").as_secs();
        self.is_the_app(jwt, now).map_err(|why| (401, why.to_string()))?;
        let body: Value =
            serde_json::from_slice(body).map_err(|_| (400, "Problems parsing JSON".to_string()))?;
        let permissions: BTreeMap<String, String> = serde_json::from_value(body["permissions"].clone())
            .map_err(|_| (422, "no permissions were asked for".to_string()))?;
        for (what, how) in &permissions {
            if !APP_MAY.contains(&(what.as_str(), how.as_str())) {
                let message =
                    format!("The permissions requested are not granted to this installation: {what}");
                return Err((422, message));
            }
        }
        let names: Vec<String> = match &body["repositories"] {
            Value::Null => INSTALLED_FOR.map(String::from).to_vec(),
            names => serde_json::from_value(names.clone()).map_err(|_| (422, "repositories".to_string()))?,
        };
        if names.iter().any(|name| !INSTALLED_FOR.contains(&name.as_str())) {
            let message =
                "There is at least one repository that does not exist or is not accessible".to_string();
            return Err((422, message));
        }
        let repositories: Vec<String> = names.iter().map(|name| format!("acme/{name}")).collect();
        let text = format!("ghs_{:036}", 1_000_003 * (self.tokens.len() as u64 + 1) * (now % 1_000_000 + 7));
        let named: Vec<Value> = repositories.iter().map(|name| json!({ "full_name": name })).collect();
        let answer = json!({
            "token": text,
            "expires_at": moment(now + self.life),
            "permissions": permissions,
            "repositories": named,
        });
        self.tokens.push(Token { text, permissions, repositories, revoked: false });
        Ok(Response { status: 201, ..Response::ok(answer.to_string()) })
    }

    fn revoke(&mut self, token: &str) -> Result<Response, (u16, String)> {
        match self.tokens.iter_mut().find(|known| known.text == token && !known.revoked) {
            Some(known) => {
                known.revoked = true;
                Ok(Response::status(204))
            }
            None => Err((401, "Bad credentials".into())),
        }
    }

    fn is_the_app(&self, jwt: &str, now: u64) -> Result<(), &'static str> {
        let (signed, signature) = jwt.rsplit_once('.').ok_or("A JSON web token could not be decoded")?;
        let (header, claims) = signed.split_once('.').ok_or("A JSON web token could not be decoded")?;
        let decoded = |part: &str| BASE64URL_NOPAD.decode(part.as_bytes()).unwrap_or_default();
        let read = |part: &str| serde_json::from_slice::<Value>(&decoded(part)).unwrap_or_default();
        if read(header) != json!({ "alg": "RS256", "typ": "JWT" }) {
            return Err("the algorithm is not RS256");
        }
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.public)
            .verify(signed.as_bytes(), &decoded(signature))
            .map_err(|_| "the signature is not this App's")?;
        let claims = read(claims);
        let (issued, ends) = (claims["iat"].as_u64().unwrap_or(0), claims["exp"].as_u64().unwrap_or(0));
        if claims["iss"].as_str().and_then(|id| id.parse().ok()) != Some(GitHub::APP) {
            return Err("'Issuer' claim ('iss') must be this App");
        }
        // A minute back, for clocks that differ; some seconds for the way here.
        if !(now - 70..=now - 60).contains(&issued) {
            return Err("'Issued at' claim ('iat') is not a minute ago");
        }
        if ends <= now || ends - issued > 600 {
            return Err("'Expiration time' claim ('exp') is too far in the future");
        }
        Ok(())
    }
}

/// RFC 3339, as GitHub writes it.
fn moment(seconds: u64) -> String {
    let output = std::process::Command::new("date")
        .args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%dT%H:%M:%SZ"])
        .output()
        .expect("there is date(1)");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

const INSTALLED_FOR: [&str; 2] = ["widgets", "gadgets"];
/// More than any profile asks for.
const APP_MAY: [(&str, &str); 8] = [
    ("contents", "read"),
    ("contents", "write"),
    ("issues", "read"),
    ("issues", "write"),
    ("pull_requests", "read"),
    ("pull_requests", "write"),
    ("metadata", "read"),
    ("administration", "write"),
];
