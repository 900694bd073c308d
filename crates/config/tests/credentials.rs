//! The credentials that a run gets from files, flags and the built-in ones.

use belljar_config::{ConfigPaths, CredentialFlags, EgressFlags, Loaded, load_from};
use belljar_spec::egress::Mode;
use belljar_spec::request::{GitHubRequest, WebSearch};
use belljar_spec::secret::{Credential, GitHubProfile, SecretName, SecretRef, SecretSource};
use belljar_spec::{ErrorCode, SandboxError};
use belljar_vault::{Secret, SecretError, SecretStore};
use std::fs;
use std::os::unix::fs::MetadataExt;

/// A machine's files.
struct Machine {
    _folder: tempfile::TempDir,
    places: ConfigPaths,
}

impl Machine {
    fn with(operator: &str, user: &str) -> Machine {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = |name: &str| folder.path().join(name);
        let places = ConfigPaths {
            operator: path("operator.toml"),
            operator_id: fs::metadata(folder.path()).expect("it is there").uid(),
            user: Some(path("user.toml")),
            state: Some(path("state")),
        };
        for (content, file) in [(operator, "operator.toml"), (user, "user.toml")] {
            fs::write(path(file), content).expect("it can be written");
        }
        Machine { _folder: folder, places }
    }

    fn ask(&self, flags: &CredentialFlags) -> Result<Loaded, SandboxError> {
        self.ask_with(EgressFlags::default(), flags)
    }

    fn ask_with(&self, egress: EgressFlags, flags: &CredentialFlags) -> Result<Loaded, SandboxError> {
        load_from(&self.places, None, egress)?.with_credentials(flags, &FixedSecrets(&["exa", "brave"]))
    }
}

/// Secrets of these names.
struct FixedSecrets(&'static [&'static str]);

impl SecretStore for FixedSecrets {
    fn read(&self, reference: &SecretRef) -> Result<Secret, SecretError> {
        match reference {
            SecretRef::Vault(name) if self.0.contains(&name.as_str()) => {
                Ok(Secret::new(b"0123456789".to_vec()))
            }
            other => Err(SecretError { message: format!("no {other}"), hint: "".into() }),
        }
    }
}

fn name(text: &str) -> SecretName {
    text.parse().expect("a name")
}

fn secrets(names: &[&str]) -> CredentialFlags {
    CredentialFlags { secrets: names.iter().map(|text| name(text)).collect(), ..Default::default() }
}

fn names(loaded: &Loaded) -> Vec<&str> {
    loaded.credentials.iter().map(|credential| credential.name.as_str()).collect()
}

fn variables(credential: &Credential) -> Vec<&str> {
    credential.variables.iter().map(|name| name.as_str()).collect()
}

const BUILD: &str =
    "[credential.build]\nhost = \"=build.example.com\"\nport = 8443\nvariables = [\"BUILD_KEY\"]\n";
const APP: &str = "[github]\napp = 1\ninstallation = 2\nkey = \"secret:app\"\n";

#[test]
fn a_credential_opens_its_places_and_no_more() {
    let loaded = Machine::with("", BUILD).ask(&secrets(&["anthropic", "build"])).expect("both");
    assert_eq!(names(&loaded), ["anthropic", "build"]);
    let policy = loaded.policy.expect("a policy");
    assert_eq!(policy.mode, Mode::Strict);
    let labels: Vec<String> = policy.allow.iter().map(|rule| rule.label.to_string()).collect();
    assert_eq!(
        labels,
        [
            "`=api.anthropic.com:443/tls` (credential anthropic)",
            "`=build.example.com:8443/tls` (credential build)"
        ]
    );
}

#[test]
fn a_file_that_only_binds_secrets_changes_nothing_by_itself() {
    let machine = Machine::with(BUILD, APP);
    let loaded = machine.ask(&CredentialFlags::default()).expect("nothing was asked");
    assert!(loaded.policy.is_none() && loaded.credentials.is_empty());
    assert_eq!(loaded.bindings().len(), 1);
}

#[test]
fn the_operators_word_counts_before_the_users() {
    let operator = "[credential.build]\nhost = \"=inside.example.com\"\n";
    let loaded = Machine::with(operator, BUILD).ask(&secrets(&["build"])).expect("the operator's");
    assert_eq!(loaded.credentials[0].bindings[0].host.to_string(), "=inside.example.com");
    let moved = "[credential.openai]\nsecret = \"env:OPENAI_API_KEY\"\n";
    let loaded = Machine::with("", moved).ask(&secrets(&["openai"])).expect("the user's");
    assert_eq!(loaded.credentials[0].source.to_string(), "env:OPENAI_API_KEY");
}

#[test]
fn what_the_operator_closed_stays_closed() {
    let only = "[egress]\nonly = [\"example.com\"]\n";
    let error = Machine::with(only, "").ask(&secrets(&["anthropic"])).expect_err("outside");
    assert_eq!(error.code, ErrorCode::NotGranted);
    assert!(error.message.starts_with("credential `anthropic` goes to"), "{error}");
    assert!(Machine::with(only, BUILD).ask(&secrets(&["build"])).is_ok());
    let none = EgressFlags { mode: Some(Mode::None), ..Default::default() };
    let error = Machine::with("", "").ask_with(none, &secrets(&["anthropic"])).expect_err("no egress");
    assert_eq!(error.code, ErrorCode::RequestConflict);
}

#[test]
fn a_secret_without_a_credential_is_refused_with_a_hint() {
    let machine = Machine::with("", BUILD);
    let error = machine.ask(&secrets(&["nobody"])).expect_err("no such");
    assert_eq!(error.message, "there is no credential `nobody`");
    assert!(error.hint.unwrap_or_default().to_string().contains("[credential.nobody]"));
    let error = machine.ask(&secrets(&["tavily"])).expect_err("not asked for");
    assert_eq!(error.hint.as_ref().map(|hint| hint.to_string()).as_deref(), Some("use `web_search: tavily`"));
}

#[test]
fn a_search_is_found_in_its_order() {
    let search = |which| CredentialFlags { web_search: Some(which), ..Default::default() };
    let machine = Machine::with("", "");
    // Tavily comes first, and has no secret.
    assert_eq!(names(&machine.ask(&search(WebSearch::Detect)).expect("exa")), ["exa"]);
    assert_eq!(names(&machine.ask(&search(WebSearch::Named(name("brave")))).expect("brave")), ["brave"]);
    assert!(machine.ask(&search(WebSearch::Named(name("github")))).is_err());
    let loaded = load_from(&machine.places, None, EgressFlags::default()).expect("files");
    let error = loaded.with_credentials(&search(WebSearch::Detect), &FixedSecrets(&[])).expect_err("none");
    assert_eq!(error.message, "no search of the web has a secret: tavily, exa, brave");
}

#[test]
fn a_variable_gets_a_placeholder_or_nothing() {
    let machine = Machine::with("", &format!("{BUILD}secret = \"secret:other\"\n"));
    let ask = |variable: &str, key: &str, forward: &[&str]| {
        machine.ask(&CredentialFlags {
            variables: vec![(variable.parse().expect("a variable"), name(key))],
            forward: forward.iter().map(|key| name(key)).collect(),
            ..Default::default()
        })
    };
    // By the name of the credential, and by the secret that it is bound to.
    for key in ["build", "other"] {
        let loaded = ask("MY_KEY", key, &[]).expect(key);
        assert_eq!(variables(&loaded.credentials[0]), ["BUILD_KEY", "MY_KEY"], "{key}");
        assert!(loaded.forwarded.is_empty());
    }
    let error = ask("MY_KEY", "unbound", &[]).expect_err("no binding");
    assert_eq!(error.code, ErrorCode::CredentialMissing);
    assert!(error.hint.unwrap_or_default().to_string().contains("--forward-secret unbound"));
    let loaded = ask("MY_KEY", "unbound", &["unbound"]).expect("forwarded");
    assert!(loaded.credentials.is_empty());
    assert_eq!(loaded.forwarded[0].source.to_string(), "secret:unbound");
    assert_eq!(ask("MY_KEY", "build", &["unbound"]).expect_err("for nothing").code, ErrorCode::RequestValue);
}

#[test]
fn two_credentials_do_not_share_a_variable() {
    let twice =
        format!("{BUILD}\n[credential.again]\nhost = \"x.example.com\"\nvariables = [\"BUILD_KEY\"]\n");
    let error = Machine::with("", &twice).ask(&secrets(&["build", "again"])).expect_err("twice");
    assert_eq!(error.code, ErrorCode::RequestConflict);
}

#[test]
fn a_token_for_github_needs_an_app() {
    let ask = |profile, danger_forward_key| CredentialFlags {
        github: Some(GitHubRequest { profile, repositories: Vec::new() }),
        danger_forward_app_key: danger_forward_key,
        ..Default::default()
    };
    let error = Machine::with("", "").ask(&ask(GitHubProfile::Read, false)).expect_err("no App");
    assert_eq!(error.code, ErrorCode::CredentialMissing);
    let machine = Machine::with("", APP);
    let loaded = machine.ask(&ask(GitHubProfile::Read, false)).expect("an App");
    assert_eq!(loaded.credentials[0].source, SecretSource::GitHubApp);
    assert_eq!(variables(&loaded.credentials[0]), ["GITHUB_TOKEN", "GH_TOKEN", "GIT_TOKEN"]);
    // Two conditions: the profile, and the request.
    for profile in [GitHubProfile::Read, GitHubProfile::IssuesWrite, GitHubProfile::ReviewWrite] {
        assert_eq!(machine.ask(&ask(profile, true)).expect_err("no").code, ErrorCode::NotGranted);
    }
    let grant =
        machine.ask(&ask(GitHubProfile::RepoWrite, true)).expect("both gates").github.expect("a grant");
    assert!(grant.danger_forward_key);
    let both = CredentialFlags { secrets: vec![name("github")], ..ask(GitHubProfile::Read, false) };
    assert_eq!(machine.ask(&both).expect_err("twice").code, ErrorCode::RequestConflict);
}

#[test]
fn a_github_of_ones_own_has_its_own_places() {
    let app = format!("{APP}api = \"https://ghe.example.com/api/v3\"\nhost = \"ghe.example.com\"\n");
    let flags = CredentialFlags {
        github: Some(GitHubRequest { profile: GitHubProfile::Read, repositories: Vec::new() }),
        danger_forward_app_key: false,
        ..Default::default()
    };
    let loaded = Machine::with("", &app).ask(&flags).expect("an App");
    let bindings = &loaded.credentials[0].bindings;
    let goes = |host: &str, path: &str| {
        let host = host.parse().expect("a host");
        bindings.iter().any(|binding| binding.is_at(&host, 443) && binding.requests.allows("GET", path))
    };
    assert!(
        goes("ghe.example.com", "/acme/widgets.git/info/refs") && goes("ghe.example.com", "/api/v3/user")
    );
    assert!(!goes("ghe.example.com", "/acme") && !goes("api.github.com", "/user"));
}
