//! `[profile.NAME]` and `[sandbox]`: the settings that each layer may have, and the result.

use belljar_config::{
    ConfigPaths, EgressFlags, Layer, Profile, SandboxSettings, check, load_from, profiles_from, propose_from,
};
use belljar_spec::{ErrorCode, SandboxError};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A machine whose operator runs the tests.
struct Machine {
    folder: tempfile::TempDir,
    places: ConfigPaths,
}

impl Machine {
    fn new(operator: &str, user: &str) -> Machine {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = |name: &str| folder.path().join(name);
        for name in ["etc", "config", "work/.belljar"] {
            fs::create_dir_all(path(name)).expect("the test can write its own files");
        }
        fs::set_permissions(path("etc"), Permissions::from_mode(0o755))
            .expect("the test can write its own files");
        let places = ConfigPaths {
            operator: path("etc/belljar.toml"),
            operator_id: fs::metadata(path("etc")).expect("the test can write its own files").uid(),
            user: Some(path("config/belljar.toml")),
            state: Some(path("state/belljar")),
        };
        write(&places.operator, operator);
        write(&path("config/belljar.toml"), user);
        Machine { places, folder }
    }

    fn profiles(&self) -> Result<Vec<Profile>, SandboxError> {
        profiles_from(&self.places)
    }

    fn workspace(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    fn sandbox(&self) -> SandboxSettings {
        load_from(&self.places, Some(&self.workspace()), EgressFlags::default()).expect("files").sandbox()
    }
}

fn write(file: &Path, content: &str) {
    fs::write(file, content).expect("the test can write its own files");
    fs::set_permissions(file, Permissions::from_mode(0o644)).expect("the test can write its own files");
}

fn error_of(layer: Layer, content: &str) -> SandboxError {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("belljar.toml");
    write(&file, content);
    check(&file, layer).expect_err(content)
}

#[test]
fn a_profile_is_read_with_where_it_stands() {
    let whole = r#"
[profile.locked]
label = "Locked down"
description = "nothing leaves"
default = true
backend = "native"
at_least = "namespace"
egress = "none"
nested = false
memory = "1g"
cpus = 0.5
pids = 100
disk = 1048576
timeout = "10m"
output = "16m"

[profile.web]
egress = "strict"
allow = ["example.com"]
groups = ["github"]
inspect = true
secrets = ["anthropic"]
"#;
    let machine = Machine::new(whole, "[profile.mine]\nlabel = \"Mine\"\n");
    let profiles = machine.profiles().expect("profiles");
    let names: Vec<(&str, Layer, bool)> =
        profiles.iter().map(|profile| (profile.name.as_str(), profile.layer, profile.default)).collect();
    assert_eq!(
        names,
        [("locked", Layer::Operator, true), ("web", Layer::Operator, false), ("mine", Layer::User, false)]
    );
    let locked = &profiles[0];
    assert_eq!(locked.label.as_deref(), Some("Locked down"));
    assert_eq!((locked.base.backend, locked.base.egress.mode), ("native".parse().ok(), "none".parse().ok()));
    let limits = &locked.base.limits;
    assert_eq!((limits.cpus, limits.disk, limits.pids), ("0.5".parse().ok(), "1m".parse().ok(), Some(100)));
    assert_eq!(locked.base.nested, Some(false));
    assert!(locked.place.to_string().ends_with("etc/belljar.toml:2"), "{}", locked.place);
    assert_eq!(profiles[1].base.egress.groups, ["github".parse().unwrap()]);
    assert!(profiles[1].base.egress.inspect && !locked.base.egress.inspect);
    assert_eq!(profiles[2].base.nested, None);
}

#[test]
fn one_profile_is_the_default_the_users_first() {
    let default = |name: &str| format!("[profile.{name}]\ndefault = true\n");
    let machine = Machine::new(&default("a"), &default("b"));
    let defaults: Vec<String> = machine
        .profiles()
        .expect("profiles")
        .into_iter()
        .filter(|profile| profile.default)
        .map(|profile| profile.name)
        .collect();
    assert_eq!(defaults, ["b"]);
    let error = error_of(Layer::User, &(default("a") + &default("b")));
    assert!(error.message.contains("cannot both be the default"), "{error}");
}

#[test]
fn a_user_does_not_rewrite_the_operators_profile() {
    let machine = Machine::new("[profile.safe]\negress = \"none\"\n", "[profile.safe]\negress = \"open\"\n");
    let error = machine.profiles().expect_err("two of one name");
    assert!(error.message.contains("is the operator's already"), "{error}");
    assert_eq!(error.hint.as_ref().map(|hint| hint.to_string()).as_deref(), Some("give yours another name"));
}

#[test]
fn what_makes_no_sense_in_a_profile_is_named_with_its_line() {
    for (line, message) in [
        ("backend = \"dockr\"", "docker"),
        ("at_least = \"strong\"", "strong"),
        ("egress = \"wide\"", "is not an egress mode"),
        ("allow = [\"*.x.com\"]", "write `x.com`"),
        ("groups = [\"githb\"]", "there are coding-agents"),
        ("secrets = [\"no such name\"]", "no such name"),
        ("memory = \"lots\"", "is not a size"),
        ("cpus = 0", "is not a number of processors"),
        ("pids = 0", "write one above 0"),
        ("disk = \"x\"", "is not a size"),
        ("timeout = \"soon\"", "is not a time"),
        ("output = \"x\"", "is not a size"),
    ] {
        let error = error_of(Layer::Operator, &format!("[profile.x]\n{line}\n"));
        assert!(error.message.contains("belljar.toml:2: "), "{error}");
        assert!(error.message.contains(message), "{line}: {error}");
    }
    let error = error_of(Layer::User, "[profile.x]\negres = \"none\"\n");
    assert_eq!(error.hint.as_ref().map(|hint| hint.to_string()).as_deref(), Some("did you mean `egress`?"));
    let error = error_of(Layer::User, "[profile.\"No Name\"]\n");
    assert!(error.message.contains("cannot name a profile"), "{error}");
    let error = error_of(Layer::User, "[profile.default]\ntimeout = \"3s\"\n");
    assert!(error.message.contains("belljar.toml:1: the profile `default` is built in"), "{error}");
}

#[test]
fn a_trusted_repository_says_what_its_sandboxes_need() {
    let machine = Machine::new("", "");
    let content = r#"
[sandbox]
ports = [3000, 8080, 3000]
profile = "web"
volumes = { cache = "/volumes/cache", npm = "/home/agent/.npm" }
env = { NODE_ENV = "test" }
rootfs = "oci:node:22"
checkpoint = true
"#;
    write(&machine.workspace().join(".belljar/config.toml"), content);
    assert!(machine.sandbox().is_empty(), "it is not trusted");
    propose_from(&machine.places, &machine.workspace()).expect("a file").keep().expect("it can be kept");
    let SandboxSettings { ports, volumes, env, rootfs, profile, checkpoint } = machine.sandbox();
    assert!(checkpoint);
    assert_eq!(rootfs.map(|root| root.to_string()).as_deref(), Some("oci:node:22"));
    assert_eq!(ports, [3000, 8080]);
    let volumes: Vec<String> = volumes.iter().map(|(name, at)| format!("{name} {at}")).collect();
    assert_eq!(volumes, ["cache /volumes/cache", "npm /home/agent/.npm"]);
    assert_eq!(
        env.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(),
        ["NODE_ENV=test"]
    );
    assert_eq!(profile.map(|profile| profile.value).as_deref(), Some("web"));
    // It opens nothing to the network.
    let loaded =
        load_from(&machine.places, Some(&machine.workspace()), EgressFlags::default()).expect("files");
    assert!(loaded.policy.is_none());
}

#[test]
fn what_makes_no_sense_of_a_sandbox_is_named_with_its_line() {
    for (line, message) in [
        ("ports = [0]", "write 1 to 65535"),
        ("rootfs = \"/srv\"", "a repository cannot name a directory of yours"),
        ("rootfs = \"oci:node\"", "neither a digest nor a tag"),
        ("ports = [65536]", "write 1 to 65535"),
        ("volumes = { x = \"/usr\" }", "a volume cannot be at `/usr`"),
        ("volumes = { x = \"/volumes/../proc\" }", "a volume cannot be at"),
        ("volumes = { \"../x\" = \"/volumes/x\" }", "cannot name a volume"),
        ("volumes = { a = \"/volumes/x\", b = \"/volumes/x\" }", "cannot both be at"),
        ("env = { A = \"secret:anthropic\" }", "cannot name a secret"),
        ("env = { \"A=B\" = \"x\" }", "is not the name of an environment variable"),
    ] {
        let error = error_of(Layer::Repository, &format!("[sandbox]\n{line}\n"));
        assert!(error.message.contains("belljar.toml:2: "), "{error}");
        assert!(error.message.contains(message), "{line}: {error}");
    }
    let error = error_of(Layer::Repository, "[sandbox]\nport = [1]\n");
    assert_eq!(error.hint.as_ref().map(|hint| hint.to_string()).as_deref(), Some("did you mean `ports`?"));
}

#[test]
fn each_table_belongs_to_its_layers() {
    for layer in [Layer::Operator, Layer::User] {
        let error = error_of(layer, "[sandbox]\nports = [3000]\n");
        assert_eq!(error.code, ErrorCode::ConfigInvalid, "{layer}");
    }
    let error = error_of(Layer::Repository, "[profile.x]\negress = \"open\"\n");
    assert_eq!(error.code, ErrorCode::ConfigInvalid);
    assert!(error.hint.unwrap_or_default().to_string().contains("`profile` below `[sandbox]`"));
}
