//! A sandbox with a route to a model, and a place for its key.

use crate::{LOOPBACK, SandboxFixture, World};
use belljar_engine::Engine;
use belljar_spec::BackendName;
use belljar_spec::egress::EgressPolicy;
use belljar_spec::llm::{LlmRoute, UpstreamKind};
use belljar_spec::secret::SecretRef;
use belljar_tests_hosts::{Model, Step, Usage};
use belljar_vault::{Secret, SecretError, SecretStore};
use std::sync::{Arc, Mutex, PoisonError};

/// One key, that a test can change.
pub struct Keys(Mutex<Option<String>>);

impl Keys {
    /// With this value.
    pub fn new(value: &str) -> Arc<Keys> {
        Arc::new(Keys(Mutex::new(Some(value.into()))))
    }

    /// Another one; or none.
    pub fn set(&self, value: Option<&str>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value.map(str::to_string);
    }
}

impl SecretStore for Keys {
    fn read(&self, _: &SecretRef) -> Result<Secret, SecretError> {
        let value = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        value
            .map(|value| Secret::new(value.into_bytes()))
            .ok_or_else(|| SecretError { message: "there is no key".into(), hint: "make one".into() })
    }
}

/// A sandbox whose route leads to a model of the test.
pub struct RouteTo {
    pub world: World,
    pub model: Arc<Model>,
    pub keys: Arc<Keys>,
    pub fixture: SandboxFixture,
}

/// What the route is opened with.
pub const KEY: &str = "sk-real-0123456789-key";

/// What the model says that an answer used: every figure another one.
const USED: Usage = Usage { input: 100, cache_write: 2000, cache_read: 7, output: 30, reasoning: 5 };

/// A model that has one answer.
pub fn model() -> Model {
    let model = Model::start(LOOPBACK);
    model.script([Step::say("one two").usage(USED)]);
    model
}

/// A sandbox that reaches a model and nothing else.
pub async fn routed(backend: BackendName, kind: UpstreamKind, change: impl FnOnce(&mut LlmRoute)) -> RouteTo {
    let (world, model, keys) = (World::new([]), Arc::new(model()), Keys::new(KEY));
    let mut route = LlmRoute::to(model.url().parse().expect("the URL of a model"));
    route.kind = kind;
    route.key = Some("secret:model".parse().expect("a reference"));
    change(&mut route);
    let engine = Engine::new().with_records(world.records()).with_secrets(keys.clone());
    let made = SandboxFixture::made_by(&engine, backend, |spec| {
        spec.egress = Some(EgressPolicy::none());
        spec.llm = Some(route);
    });
    let fixture = made.await.unwrap_or_else(|error| panic!("no sandbox: {error} ({})", error.code));
    RouteTo { world, model, keys, fixture }
}

impl RouteTo {
    /// What the record says of calls, and of those that were refused.
    pub fn events(&self, kind: &str) -> Vec<serde_json::Value> {
        let events = self.world.events(&self.fixture);
        events.into_iter().filter(|event| event["kind"] == *kind).collect()
    }

    /// What a Python program wrote that may use [`ASK`].
    pub async fn ask(&self, script: &str) -> String {
        self.fixture.python(&format!("{ASK}{script}")).await
    }
}

/// `ask(path, body, headers)` gives the status and the body of an answer.
const ASK: &str = r#"
import http.client, json

def ask(path, body=None, headers={}, host='127.0.0.1', port=14180, method=None):
    client = http.client.HTTPConnection(host, port, timeout=25)
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    kind = {} if body is None else {'content-type': 'application/json'}
    client.request(method or ('GET' if body is None else 'POST'), path, data, {**kind, **headers})
    response = client.getresponse()
    return response.status, response.read().decode()

def message(**more):
    return {'model': 'claude-test', 'max_tokens': 9, 'messages': [{'role': 'user', 'content': 'hi'}], **more}
"#;
