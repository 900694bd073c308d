//! `[llm]`: the settings of the route to a model that each layer may have, and merging files and flags.

use belljar_config::{ConfigPaths, EgressFlags, Layer, LlmLoaded, check, load_from};
use belljar_spec::llm::{Price, PriceOrigin, Rates, UpstreamKind};
use belljar_spec::request::{LlmRequest, LlmUrl};
use belljar_spec::{ErrorCode, SandboxError};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

fn loaded(operator: &str, user: &str, flags: &LlmRequest) -> Result<Option<LlmLoaded>, SandboxError> {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = |name: &str| folder.path().join(name);
    for (name, content) in [("etc", operator), ("config", user)] {
        fs::create_dir(path(name)).expect("the folder is ours");
        fs::set_permissions(path(name), Permissions::from_mode(0o755)).expect("the folder is ours");
        fs::write(path(name).join("belljar.toml"), content).expect("the folder is ours");
    }
    let places = ConfigPaths {
        operator: path("etc/belljar.toml"),
        operator_id: fs::metadata(path("etc")).expect("the folder is ours").uid(),
        user: Some(path("config/belljar.toml")),
        state: Some(path("state")),
    };
    let loaded = load_from(&places, None, EgressFlags::default())?;
    assert!(loaded.policy.is_none(), "a model is no word on what may be reached");
    loaded.llm.route(flags)
}

fn route(operator: &str, user: &str, flags: &LlmRequest) -> LlmLoaded {
    loaded(operator, user, flags).expect("it makes sense").expect("there is a route")
}

fn to(url: &str) -> LlmRequest {
    LlmRequest { url: Some(url.parse().expect("a URL")), ..LlmRequest::default() }
}

const OPERATOR: &str = r#"
[llm]
url = "https://litellm.example:4000"
key = "file:/run/secrets/llm"
admin_key = "env:ADMIN"
models = ["claude-*", "gpt-*"]
end_user = "team-1"

[llm.budget]
calls = 100
turns = 30
tokens = "2m"
usd = 5.5

[llm.price."claude-*"]
input = 3
output = 15.0
cache_read = 0.3
"#;

#[test]
fn a_whole_table_is_understood() {
    let LlmLoaded { route, admin_key, .. } = route(OPERATOR, "", &LlmRequest::default());
    assert_eq!(
        (route.upstream.as_str(), route.kind),
        ("https://litellm.example:4000", UpstreamKind::LiteLlm)
    );
    assert_eq!(route.key.as_ref().map(ToString::to_string).as_deref(), Some("file:/run/secrets/llm"));
    assert_eq!(admin_key.map(|key| key.to_string()).as_deref(), Some("env:ADMIN"));
    assert_eq!(route.budget.to_string(), "calls=100,turns=30,tokens=2000000,usd=5.50");
    assert!(route.allows("claude-x") && route.allows("gpt-5") && !route.allows("gemini"));
    let expected = Price::flat(Rates {
        input: Some(3_000_000),
        output: Some(15_000_000),
        cache_read: Some(300_000),
        cache_write: Some(3_000_000),
        cache_write_1h: Some(3_000_000),
    });
    assert_eq!(route.price("claude-x"), Some((&expected, PriceOrigin::Configured)));
    assert_eq!(route.price("gpt-5").map(|(_, origin)| origin), Some(PriceOrigin::Listed));
    assert_eq!(route.price("gpt-unheard-of"), None);
    assert_eq!((route.billing.account(), route.port), ("team-1", 14180));
}

#[test]
fn a_key_is_not_shown_to_another_server_than_it_was_named_for() {
    for (user, flags) in [
        ("[llm]\nurl = \"https://evil.example\"", LlmRequest::default()),
        ("[llm]\nurl = \"http://litellm.example:4000\"", LlmRequest::default()),
        ("[llm]\nurl = \"https://litellm.example\"", LlmRequest::default()),
        ("", to("https://evil.example")),
        ("", to("https://litellm.example.evil.example:4000")),
    ] {
        let LlmLoaded { route, admin_key, .. } = route(OPERATOR, user, &flags);
        assert_eq!((route.key, admin_key), (None, None), "{user} {flags:?}");
    }
    // Another path of the same server is the same server, and users may have their own key.
    assert!(route(OPERATOR, "", &to("https://litellm.example:4000/v1")).route.key.is_some());
    let own = route(OPERATOR, "[llm]\nkey = \"secret:mine\"", &LlmRequest::default()).route;
    assert_eq!(own.key.map(|key| key.to_string()).as_deref(), Some("secret:mine"));
}

#[test]
fn no_budget_exceeds_the_operators() {
    let flags =
        |text: &str| LlmRequest { budget: Some(text.parse().expect("a budget")), ..LlmRequest::default() };
    let budget = |user: &str, given: &str| {
        loaded(OPERATOR, user, &flags(given)).map(|loaded| loaded.expect("a route").route.budget.to_string())
    };
    assert_eq!(budget("", "calls=7").expect("less"), "calls=7,turns=30,tokens=2000000,usd=5.50");
    assert_eq!(
        budget("[llm.budget]\ncalls = 3", "calls=7").expect("a flag"),
        "calls=7,turns=30,tokens=2000000,usd=5.50"
    );
    for (user, given) in [
        ("", "calls=101"),
        ("", "turns=31"),
        ("", "tokens=3m"),
        ("", "usd=6"),
        ("[llm.budget]\nusd = 100", "calls=1"),
    ] {
        let error = budget(user, given).expect_err(given);
        assert_eq!(error.code, ErrorCode::NotGranted);
        assert!(error.message.contains("belljar.toml:2"), "{error}");
    }
    let flags = LlmRequest {
        models: vec!["gemini".parse().expect("a name"), "claude-1".parse().expect("a name")],
        ..LlmRequest::default()
    };
    let narrow = route(OPERATOR, "[llm]\nmodels = [\"claude-*\"]", &flags).route;
    assert!(
        narrow.allows("claude-1")
            && !narrow.allows("gemini")
            && !narrow.allows("claude-2")
            && !narrow.allows("gpt-5")
    );
    // A price of zero would be an endless budget, and another account would bill another customer.
    let cheap = route(
        OPERATOR,
        "[llm]\nend_user = \"other\"\n[llm.price.\"claude-x\"]\ninput = 0\noutput = 0",
        &LlmRequest::default(),
    )
    .route;
    assert_eq!(
        (cheap.price("claude-x").and_then(|(price, _)| price.rates.input), cheap.billing.account()),
        (Some(3_000_000), "team-1")
    );
}

#[test]
fn a_run_can_do_without() {
    let off = LlmRequest { url: Some(LlmUrl::Off), ..LlmRequest::default() };
    assert!(loaded(OPERATOR, "", &off).expect("it makes sense").is_none());
    assert!(loaded("", "", &LlmRequest::default()).expect("it makes sense").is_none());
    let keyed = LlmRequest { key: Some("env:K".parse().expect("a reference")), ..LlmRequest::default() };
    assert_eq!(loaded("", "", &keyed).expect_err("no URL").code, ErrorCode::RequestConflict);
}

#[test]
fn what_makes_no_sense_is_named_with_its_line() {
    for (line, reason) in [
        ("url = \"litellm\"", "is not the URL of a model"),
        ("url = \"https://user:sk-secret@x\"", "has no user"),
        ("kind = \"azure\"", "write litellm, anthropic, openai or gemini"),
        ("key = \"sk-secret\"", "not a reference"),
        ("models = [\"a b\"]", "is not the name of a model"),
        ("port = 80", "write 1024 to 65535"),
        ("end_user = \"a b\"", "not an account"),
        ("authority = \"ca.pem\"", "from the root"),
        ("budget.calls = 0", "is not a number"),
        ("budget.usd = -1", "is not an amount"),
        ("price.x = { input = -1.0, output = 1.0 }", "is not a price"),
        ("price.x = { input = 1.0 }", "missing field `output`"),
        ("prices = 1", "there is no key `prices`"),
    ] {
        let error = loaded("", &format!("[llm]\n{line}\n"), &LlmRequest::default()).expect_err(line);
        assert!(
            error.message.contains("belljar.toml:2: ") && error.message.contains(reason),
            "{line}: {error}"
        );
        assert!(!error.message.contains("sk-secret"), "{error}");
    }
}

#[test]
fn a_repository_has_no_say_in_it() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("config.toml");
    fs::write(&file, "[llm]\nurl = \"https://evil.example\"\n").expect("the folder is ours");
    assert_eq!(check(&file, Layer::Repository).expect_err("not for it").code, ErrorCode::ConfigInvalid);
    assert!(check(&file, Layer::User).is_ok());
}
