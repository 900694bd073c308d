//! Merging files, layers, trust and flags.

use belljar_config::{
    ConfigPaths, EgressFlags, Layer, Loaded, Origin, Standing, check, load_from, propose_from, revoke_from,
};
use belljar_spec::egress::{Mode, Rule, RuleSource, groups};
use belljar_spec::{ErrorCode, SandboxError};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A machine with no files yet. The user who runs the tests is its operator.
struct Machine {
    folder: tempfile::TempDir,
    places: ConfigPaths,
}

impl Machine {
    fn new() -> Machine {
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
        Machine { places, folder }
    }

    fn with(operator: &str, user: &str, repository: &str) -> Machine {
        let machine = Machine::new();
        for (content, file) in [
            (operator, machine.places.operator.clone()),
            (user, machine.user()),
            (repository, machine.repository()),
        ] {
            if !content.is_empty() {
                write(&file, &format!("[egress]\n{content}\n"));
            }
        }
        if !repository.is_empty() {
            machine.trust();
        }
        machine
    }

    fn user(&self) -> PathBuf {
        self.places.user.clone().expect("this machine has a user")
    }

    fn workspace(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    fn repository(&self) -> PathBuf {
        self.workspace().join(".belljar/config.toml")
    }

    fn record(&self) -> PathBuf {
        let trust = self.places.state.as_ref().expect("this machine has a state").join("trust");
        let mut records = fs::read_dir(trust).expect("something was trusted").flatten();
        records.next().expect("a record").path()
    }

    /// Without checking the higher layers: they may change later.
    fn trust(&self) {
        let places =
            ConfigPaths { user: None, operator: "/nowhere/belljar.toml".into(), ..self.places.clone() };
        match propose_from(&places, &self.workspace()) {
            Ok(proposal) => proposal.keep().expect("it can be kept"),
            Err(error) if error.code == ErrorCode::NotGranted => {
                write(&self.user(), "egress.mode = \"open\"");
                let places = ConfigPaths { user: Some(self.user()), ..places };
                propose_from(&places, &self.workspace()).expect("a file").keep().expect("it can be kept");
                fs::remove_file(self.user()).expect("the test can write its own files");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn load(&self, flags: EgressFlags) -> Result<Loaded, SandboxError> {
        load_from(&self.places, Some(&self.workspace()), flags)
    }
}

fn write(file: &Path, content: &str) {
    fs::write(file, content).expect("the test can write its own files");
    fs::set_permissions(file, Permissions::from_mode(0o644)).expect("the test can write its own files");
}

fn mode(mode: Mode) -> EgressFlags {
    EgressFlags { mode: Some(mode), ..EgressFlags::default() }
}

fn allowing(rules: &[&str], groups: &[&str]) -> EgressFlags {
    EgressFlags {
        allow: rules.iter().map(|rule| Rule::allow(rule, RuleSource::Flag).expect("a rule")).collect(),
        groups: groups.iter().map(|name| name.parse().expect("a group")).collect(),
        ..EgressFlags::default()
    }
}

fn labels(rules: &[Rule]) -> Vec<String> {
    rules.iter().map(|rule| rule.label.text().to_string()).collect()
}

#[test]
fn without_files_and_flags_nothing_is_said() {
    let machine = Machine::new();
    let loaded = machine.load(EgressFlags::default()).expect("nothing is no error");
    assert_eq!((loaded.policy, loaded.notes.len(), loaded.files.len()), (None, 0, 0));
    let places = ConfigPaths { user: None, state: None, ..machine.places };
    assert!(load_from(&places, None, EgressFlags::default()).expect("nothing is no error").policy.is_none());
}

#[test]
fn files_that_say_nothing_are_as_none() {
    let machine = Machine::with("# nothing", "# nothing", "");
    assert!(machine.load(EgressFlags::default()).expect("two files").policy.is_none());
}

#[test]
fn the_mode_is_the_nearest_that_may_be_said() {
    use Mode::{None, Open, Strict};
    let line = |mode: &str| if mode.is_empty() { String::new() } else { format!("mode = \"{mode}\"") };
    for (operator, user, repository, flag, expected) in [
        ("", "", "", Option::None, Strict),
        ("none", "", "", Option::None, None),
        ("open", "", "", Option::None, Open),
        ("none", "open", "", Option::None, Open),
        ("open", "strict", "", Option::None, Strict),
        ("", "", "none", Option::None, None),
        ("", "", "strict", Option::None, Strict),
        ("", "open", "strict", Option::None, Strict),
        ("", "open", "open", Option::None, Open),
        ("open", "", "open", Option::None, Open),
        ("", "", "none", Some(Open), Open),
        ("", "none", "", Some(Strict), Strict),
        ("", "open", "", Some(None), None),
        ("", "", "open", Some(Strict), Strict),
    ] {
        let machine = Machine::with(&line(operator), "", &line(repository));
        if !user.is_empty() {
            write(&machine.user(), &format!("[egress]\n{}", line(user)));
        }
        let flags = EgressFlags { mode: flag, ..EgressFlags::default() };
        let loaded = machine.load(flags).expect("these may be said");
        let case = format!("{operator:?} {user:?} {repository:?} {flag:?}");
        assert_eq!(loaded.policy.map_or(Strict, |policy| policy.mode), expected, "{case}");
    }
}

#[test]
fn a_repository_cannot_widen_the_mode() {
    for (user, repository) in [("", "open"), ("mode = \"none\"", "strict"), ("mode = \"strict\"", "open")] {
        let machine = Machine::with("", "", &format!("mode = \"{repository}\""));
        if !user.is_empty() {
            write(&machine.user(), &format!("[egress]\n{user}"));
        }
        let error = machine.load(EgressFlags::default()).expect_err("a repository that widens");
        assert_eq!(error.code, ErrorCode::NotGranted);
        assert!(error.message.contains(".belljar/config.toml:2: a repository cannot widen"), "{error}");
        assert!(error.hint.unwrap_or_default().to_string().contains("`egress.mode: "));
    }
}

#[test]
fn the_widest_mode_limits_all_lower_layers() {
    // The operator's: for files and for flags.
    let machine = Machine::with("widest = \"strict\"", "mode = \"open\"", "");
    let error = machine.load(EgressFlags::default()).expect_err("wider than the operator allows");
    assert!(error.message.contains("config/belljar.toml:2: the mode cannot be open"), "{error}");
    assert!(error.message.contains("etc/belljar.toml:2"), "{error}");
    let machine = Machine::with("widest = \"strict\"", "", "");
    let error = machine.load(mode(Mode::Open)).expect_err("a flag that is wider");
    assert!(error.message.starts_with("egress mode `open`: the widest mode is strict"), "{error}");
    assert!(machine.load(mode(Mode::Strict)).is_ok());
    // The default mode is narrowed to fit.
    let machine = Machine::with("widest = \"none\"", "", "");
    let loaded = machine.load(EgressFlags::default()).expect("no other layer sets a mode");
    assert_eq!(loaded.policy.map(|policy| policy.mode), Some(Mode::None));
    assert!(matches!(loaded.origins.mode, Origin::Line(place) if place.line == 2));
    // The user's: for the repository, not for the user's own flags.
    let machine = Machine::with("mode = \"open\"", "widest = \"strict\"", "");
    let loaded = machine.load(EgressFlags::default()).expect("the user narrows");
    assert_eq!(loaded.policy.map(|policy| policy.mode), Some(Mode::Strict));
    assert!(machine.load(mode(Mode::Open)).is_ok());
    let machine = Machine::with("", "mode = \"open\"\nwidest = \"strict\"", "");
    assert!(machine.load(EgressFlags::default()).is_err());
}

#[test]
fn rules_add_up_and_what_is_denied_stays_denied() {
    let machine = Machine::with(
        "allow = [\"a.example\"]\ndeny = [\"=x.github.com\"]\nprivate = [\"10.0.0.0/8\"]",
        "allow = [\"b.example\"]\ngroups = [\"github\"]\ndeny = [\"evil.example:25\"]",
        "allow = [\"c.example\"]\ngroups = [\"github\"]\ndeny = [\"com\"]",
    );
    let loaded = machine.load(allowing(&["d.example"], &["providers"])).expect("all of it");
    let policy = loaded.policy.expect("a policy");
    assert_eq!(
        labels(&policy.allow),
        [
            "d.example",
            "anthropic.com",
            "openai.com",
            "openrouter.ai",
            "a.example",
            "b.example",
            "github.com",
            "*.githubusercontent.com",
            "c.example"
        ]
    );
    assert_eq!(labels(&policy.deny), ["=x.github.com", "evil.example:25", "com"]);
    assert_eq!(policy.private.len(), 1);
    let groups: Vec<String> = loaded.origins.groups.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(groups, ["providers", "github"]);
    let layers: Vec<Layer> = loaded.files.iter().map(|(layer, _)| *layer).collect();
    assert_eq!(layers, [Layer::Operator, Layer::User, Layer::Repository]);
}

#[test]
fn nothing_outside_of_only_is_allowed_by_anybody_below() {
    let only = "only = [\"example.com\", \"=github.com\"]\nallow = [\"operators.own\"]";
    for (line, fine) in [
        ("allow = [\"example.com\"]", true),
        ("allow = [\"=api.example.com:8443/tls\"]", true),
        ("allow = [\"=github.com\"]", true),
        ("allow = [\"github.com\"]", false),
        ("allow = [\"api.github.com\"]", false),
        ("allow = [\"notexample.com\"]", false),
        ("groups = [\"github\"]", false),
        ("mode = \"open\"", false),
        ("mode = \"none\"", true),
    ] {
        let machine = Machine::with(only, line, "");
        let outcome = machine.load(EgressFlags::default());
        assert_eq!(outcome.is_ok(), fine, "{line}");
        if let Err(error) = outcome {
            let text = error.to_string();
            assert!(text.contains("config/belljar.toml:2: "), "{text}");
            assert!(text.contains("etc/belljar.toml:2"), "{text}");
            assert!(error.hint.is_some(), "{text}");
        }
        if !line.starts_with("mode") {
            let machine = Machine::with(only, "", line);
            assert_eq!(machine.load(EgressFlags::default()).is_ok(), fine, "repository: {line}");
        }
    }
    let machine = Machine::with(only, "", "");
    assert!(machine.load(allowing(&["a.example.com"], &[])).is_ok());
    let error = machine.load(allowing(&["x.com"], &[])).expect_err("a flag outside");
    assert!(error.message.starts_with("the rule `x.com` is outside of the operator's `only` ("), "{error}");
    assert!(machine.load(allowing(&[], &["providers"])).is_err());
    let error = machine.load(mode(Mode::Open)).expect_err("open mode is every name");
    assert!(error.message.contains("by `only` of the operator"), "{error}");
    // None at all is less than some.
    let machine = Machine::with("only = []", "", "");
    assert!(machine.load(allowing(&["x.com"], &[])).is_err());
}

#[test]
fn the_smallest_limit_holds() {
    for (operator, user, repository, connections, bytes) in [
        ("", "mode = \"strict\"", "", 1024, None),
        ("connections = 10", "connections = 5000", "connections = 20", 10, None),
        ("", "connections = 5000", "", 5000, None),
        ("", "", "connections = 5000", 1024, None),
        ("", "", "connections = 7", 7, None),
        ("bytes = \"1g\"", "bytes = \"2g\"", "", 1024, Some(1 << 30)),
        ("", "bytes = \"2k\"", "bytes = \"1k\"", 1024, Some(1 << 10)),
        ("", "bytes = \"1k\"", "bytes = \"1t\"", 1024, Some(1 << 10)),
    ] {
        let machine = Machine::with(operator, user, repository);
        let loaded = machine.load(EgressFlags::default()).expect("limits");
        let limits = loaded.policy.expect("a policy").limits;
        let found = (limits.connections, limits.bytes.map(|bytes| bytes.as_u64()));
        assert_eq!(found, (connections, bytes), "{operator} {user} {repository}");
    }
}

#[test]
fn any_layer_can_turn_inspection_on() {
    let yes = "inspect = true";
    for (operator, user, repository, is_inspected) in [
        ("", "", "mode = \"strict\"", false),
        (yes, "inspect = false", "inspect = false", true),
        ("", yes, "", true),
        ("", "", yes, true),
        ("inspect = false", "", "", false),
    ] {
        let machine = Machine::with(operator, user, repository);
        let loaded = machine.load(EgressFlags::default()).expect("a file");
        let found = loaded.policy.is_some_and(|policy| policy.inspect);
        assert_eq!(found, is_inspected, "{operator} {user} {repository}");
        let loaded = machine.load(EgressFlags { inspect: true, ..EgressFlags::default() }).expect("a flag");
        assert!(loaded.policy.expect("a policy").inspect);
    }
}

#[test]
fn the_operators_resolvers_win_and_the_user_is_told() {
    let machine = Machine::with("resolvers = [\"10.0.0.1:53\"]", "resolvers = [\"1.1.1.1:53\"]", "");
    let loaded = machine.load(EgressFlags::default()).expect("both");
    assert_eq!(loaded.policy.expect("a policy").resolvers, ["10.0.0.1:53".parse().unwrap()]);
    assert_eq!(loaded.notes[0].code, "resolvers_not_used");
    let machine = Machine::with("", "resolvers = [\"1.1.1.1:53\"]", "");
    let loaded = machine.load(EgressFlags::default()).expect("the user's");
    assert_eq!(loaded.policy.expect("a policy").resolvers, ["1.1.1.1:53".parse().unwrap()]);
}

#[test]
fn rules_that_cannot_count_are_said() {
    let machine = Machine::with("", "mode = \"none\"", "");
    let loaded = machine.load(allowing(&["x.com"], &[])).expect("no error");
    assert_eq!(loaded.notes[0].code, "mode_is_none");
}

#[test]
fn an_operators_file_that_others_can_change_does_not_count() {
    let machine = Machine::with("mode = \"open\"", "", "");
    let refused = |machine: &Machine| {
        let error = machine.load(EgressFlags::default()).expect_err("others can change it");
        assert_eq!(error.code, ErrorCode::ConfigInvalid);
        assert!(error.hint.unwrap_or_default().to_string().contains("chown root:root"));
    };
    fs::set_permissions(&machine.places.operator, Permissions::from_mode(0o664)).unwrap();
    refused(&machine);
    fs::set_permissions(&machine.places.operator, Permissions::from_mode(0o646)).unwrap();
    refused(&machine);
    fs::set_permissions(&machine.places.operator, Permissions::from_mode(0o644)).unwrap();
    assert!(machine.load(EgressFlags::default()).is_ok());
    fs::set_permissions(machine.folder.path().join("etc"), Permissions::from_mode(0o777)).unwrap();
    refused(&machine);
    fs::set_permissions(machine.folder.path().join("etc"), Permissions::from_mode(0o755)).unwrap();
    let elsewhere = Machine {
        places: ConfigPaths { operator_id: machine.places.operator_id + 1, ..machine.places.clone() },
        folder: machine.folder,
    };
    refused(&elsewhere);
}

#[test]
fn a_world_writable_user_file_does_not_count() {
    let machine = Machine::with("", "mode = \"open\"", "");
    fs::set_permissions(machine.user(), Permissions::from_mode(0o646)).unwrap();
    let error = machine.load(EgressFlags::default()).expect_err("it is world-writable");
    assert_eq!(error.code, ErrorCode::ConfigInvalid);
}

#[test]
fn a_config_path_that_is_no_file_is_an_error_without_waiting() {
    let machine = Machine::new();
    fs::create_dir(machine.user()).unwrap();
    let error = machine.load(EgressFlags::default()).expect_err("a folder");
    assert!(error.message.contains("not a regular file"), "{error}");
    fs::remove_dir(machine.user()).unwrap();
    assert!(Command::new("mkfifo").arg(machine.user()).status().unwrap().success());
    fs::set_permissions(machine.user(), Permissions::from_mode(0o600)).unwrap();
    let error = machine.load(EgressFlags::default()).expect_err("a pipe");
    assert!(error.message.contains("not a regular file"), "{error}");
    fs::remove_file(machine.user()).unwrap();
    write(&machine.user(), &"#".repeat(64 * 1024 + 1));
    let error = machine.load(EgressFlags::default()).expect_err("a huge file");
    assert!(error.message.contains("larger than 64 KiB"), "{error}");
    write(&machine.user(), &"#".repeat(64 * 1024));
    assert!(machine.load(EgressFlags::default()).is_ok());
    fs::write(machine.user(), b"# \xff").unwrap();
    let error = machine.load(EgressFlags::default()).expect_err("no text");
    assert!(error.message.contains("not UTF-8"), "{error}");
}

#[test]
fn a_repositorys_file_counts_only_as_it_was_trusted() {
    let machine = Machine::new();
    write(&machine.repository(), "[egress]\nallow = [\"x.com\"]");
    let code = |machine: &Machine| {
        let loaded = machine.load(EgressFlags::default()).expect("never an error");
        assert!(loaded.policy.is_none(), "nothing of it counts");
        assert!(
            loaded.notes[0].hint.as_ref().expect("a command").to_string().contains("belljar config trust /")
        );
        loaded.notes[0].code
    };
    assert_eq!(code(&machine), "repository_untrusted");
    let proposal = propose_from(&machine.places, &machine.workspace()).expect("a file");
    assert_eq!((proposal.standing, proposal.settings.rules()), (Standing::Unknown, 1));
    assert_eq!(code(&machine), "repository_untrusted", "looking is not trusting");
    proposal.keep().expect("it can be kept");
    let policy = machine.load(EgressFlags::default()).expect("trusted").policy.expect("a policy");
    assert_eq!(labels(&policy.allow), ["x.com"]);
    // The shown content is stored, even if the file has changed by now.
    write(&machine.repository(), "[egress]\nallow = [\"evil.example\"]");
    proposal.keep().expect("it can be kept");
    assert_eq!(code(&machine), "repository_changed");
    assert_eq!(
        propose_from(&machine.places, &machine.workspace()).expect("a file").standing,
        Standing::Changed
    );
    // One more space makes it another file.
    write(&machine.repository(), "[egress]\nallow = [\"x.com\"] ");
    assert_eq!(code(&machine), "repository_changed");
    write(&machine.repository(), "[egress]\nallow = [\"x.com\"]");
    assert!(machine.load(EgressFlags::default()).expect("trusted").policy.is_some());
    assert!(revoke_from(&machine.places, &machine.workspace()).expect("it can be forgotten"));
    assert_eq!(code(&machine), "repository_untrusted");
    assert!(!revoke_from(&machine.places, &machine.workspace()).expect("nothing to forget"));
}

#[test]
fn trust_is_for_one_place() {
    let machine = Machine::with("", "", "allow = [\"x.com\"]");
    let copy = machine.folder.path().join("copy");
    fs::create_dir_all(copy.join(".belljar")).unwrap();
    fs::copy(machine.repository(), copy.join(".belljar/config.toml")).unwrap();
    let loaded = load_from(&machine.places, Some(&copy), EgressFlags::default()).expect("never an error");
    assert_eq!(loaded.notes[0].code, "repository_untrusted");
    // By any path that leads to it.
    let link = machine.folder.path().join("link");
    symlink(machine.workspace(), &link).unwrap();
    let loaded = load_from(&machine.places, Some(&link), EgressFlags::default()).expect("the same place");
    assert!(loaded.policy.is_some());
}

#[test]
fn a_record_is_the_users_alone() {
    let machine = Machine::with("", "", "allow = [\"x.com\"]");
    let record = machine.record();
    assert_eq!(fs::metadata(&record).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(record.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
    let checked = Command::new("sha256sum").arg("--check").arg("--quiet").arg(&record).status();
    assert!(checked.is_ok_and(|status| status.success()), "sha256sum reads it");
    let counts = || machine.load(EgressFlags::default()).expect("never an error").policy.is_some();
    assert!(counts());
    fs::set_permissions(&record, Permissions::from_mode(0o622)).unwrap();
    assert!(!counts(), "others could have written it");
    fs::set_permissions(&record, Permissions::from_mode(0o600)).unwrap();
    let elsewhere = machine.folder.path().join("elsewhere");
    fs::rename(&record, &elsewhere).unwrap();
    symlink(&elsewhere, &record).unwrap();
    assert!(!counts(), "a link");
}

#[test]
fn what_is_kept_in_the_workspace_proves_nothing() {
    let machine = Machine::with("", "", "allow = [\"x.com\"]");
    let inside = machine.workspace().join("state");
    fs::create_dir(&inside).unwrap();
    let places = ConfigPaths { state: Some(inside.join("belljar")), ..machine.places.clone() };
    let error = propose_from(&places, &machine.workspace()).expect_err("a sandbox can write there");
    assert_eq!(error.code, ErrorCode::PathRefused);
    // Forged from inside.
    let forged = inside.join("belljar/trust");
    fs::create_dir_all(&forged).unwrap();
    fs::copy(machine.record(), forged.join(machine.record().file_name().unwrap())).unwrap();
    let loaded =
        load_from(&places, Some(&machine.workspace()), EgressFlags::default()).expect("never an error");
    assert!(loaded.policy.is_none());
    assert_eq!(loaded.notes[0].code, "repository_untrusted");
}

#[test]
fn what_lies_in_a_repository_instead_of_a_file_is_not_followed() {
    let machine = Machine::new();
    let reports = |machine: &Machine, why: &str| {
        let loaded = machine.load(EgressFlags::default()).expect("never an error");
        assert!(loaded.policy.is_none());
        assert_eq!(loaded.notes[0].code, "repository_unreadable");
        assert!(loaded.notes[0].message.contains(why), "{}", loaded.notes[0].message);
        let error = propose_from(&machine.places, &machine.workspace()).expect_err(why);
        assert!(error.message.contains(why), "{error}");
    };
    let file = machine.repository();
    let secret = machine.folder.path().join("secret");
    write(&secret, "[egress]\n");
    symlink(&secret, &file).unwrap();
    reports(&machine, "it is a link");
    fs::remove_file(&file).unwrap();
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    reports(&machine, "not a regular file");
    fs::remove_file(&file).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(&file).unwrap();
    reports(&machine, "not a regular file");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    reports(&machine, "not a regular file");
    fs::remove_dir(&file).unwrap();
    write(&file, &"#".repeat(64 * 1024 + 1));
    reports(&machine, "larger than 64 KiB");
    fs::remove_file(&file).unwrap();
    // The folder as well.
    fs::remove_dir(file.parent().unwrap()).unwrap();
    let elsewhere = machine.folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    write(&elsewhere.join("config.toml"), "[egress]\n");
    symlink(&elsewhere, file.parent().unwrap()).unwrap();
    reports(&machine, "it is a link");
    fs::remove_file(file.parent().unwrap()).unwrap();
    // A plain file of the folder's name is not ours, and is ignored.
    write(file.parent().unwrap(), "");
    assert!(machine.load(EgressFlags::default()).expect("nothing").notes.is_empty());
}

#[test]
fn only_what_makes_sense_can_be_trusted() {
    let machine = Machine::with("only = [\"example.com\"]", "", "");
    for (content, code) in [
        ("[egress]\nalow = []", ErrorCode::ConfigInvalid),
        ("[egress]\nprivate = [\"10.0.0.0/8\"]", ErrorCode::ConfigInvalid),
        ("[egress]\nmode = \"open\"", ErrorCode::NotGranted),
        ("[egress]\nallow = [\"x.com\"]", ErrorCode::NotGranted),
    ] {
        write(&machine.repository(), content);
        let error = propose_from(&machine.places, &machine.workspace()).expect_err(content);
        assert_eq!(error.code, code, "{error}");
        assert!(
            machine.load(EgressFlags::default()).is_ok(),
            "and as long as nobody trusts it, nobody is bothered"
        );
    }
    fs::remove_file(machine.repository()).unwrap();
    let error = propose_from(&machine.places, &machine.workspace()).expect_err("nothing");
    assert_eq!(error.code, ErrorCode::ConfigInvalid);
}

#[test]
fn a_file_is_checked_for_its_layer() {
    let machine = Machine::new();
    let file = machine.folder.path().join("any.toml");
    write(&file, "[egress]\nprivate = [\"127.1.0.0/16\"]\nallow = [\"x.com\"]");
    assert_eq!(check(&file, Layer::Operator).expect("a file").rules(), 1);
    assert!(check(&file, Layer::User).is_err());
    assert_eq!(
        check(Path::new("/nowhere"), Layer::User).expect_err("no file").code,
        ErrorCode::ConfigInvalid
    );
}

#[test]
fn the_documentation_shows_what_is_read() {
    let machine = Machine::new();
    let page = include_str!("../../../docs/configuration.md");
    let example =
        page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let file = machine.folder.path().join("example.toml");
    write(&file, example);
    let settings = check(&file, Layer::Repository).expect("the example makes sense");
    assert_eq!((settings.groups.len(), settings.allow.len(), settings.deny.len()), (2, 3, 1));
    let page = include_str!("../../../docs/egress.md");
    for group in groups() {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", group.name())));
        let mut shown: Vec<&str> = row.expect("a row").split('`').skip(3).step_by(2).collect();
        let mut known: Vec<&str> = group.rules().map(|rule| rule.label.text()).collect();
        shown.sort_unstable();
        known.sort_unstable();
        assert_eq!(shown, known, "{}", group.name());
    }
}
