//! The environment of commands: it starts empty.

use belljar_spec::BackendName;
use belljar_tests_conformance::*;
use std::collections::BTreeMap;

for_every_backend! {
    everywhere:
        nothing_of_the_callers_environment_gets_in,
        the_sandboxs_variables_are_in_every_command;
    each_kernel:
        a_commands_own_variables_win,
        no_name_is_there_twice;
    living everywhere:
        what_programs_expect_is_there,
        home_and_temporary_folder_can_be_written,
        every_program_of_the_system_is_on_the_path;
    living each_kernel:
        values_arrive_as_they_are;
}

async fn environment(fixture: &SandboxFixture) -> BTreeMap<String, String> {
    let listed = text(&fixture.run(&command(["env", "-0"])).await.stdout);
    let pairs = listed.split_terminator('\0').map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

async fn nothing_of_the_callers_environment_gets_in(backend: BackendName) {
    if std::env::var_os("BELLJAR_AGAIN").is_none() {
        let name = "environment::nothing_of_the_callers_environment_gets_in";
        let preparation = "export ANTHROPIC_API_KEY=sk-secret AWS_SECRET_ACCESS_KEY=secret SSH_AUTH_SOCK=/x \
             http_proxy=secret LD_LIBRARY_PATH=/x TERM=x LC_ALL=C LC_TIME=secret TZ=/secret";
        let output = again(backend, name, "rich", preparation).output().unwrap();
        let printed = text(&output.stdout);
        assert!(output.status.success() && printed.contains("1 passed"), "{printed}{}", text(&output.stderr));
        return;
    }
    let fixture = SandboxFixture::new(backend).await;
    let documented =
        ["HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR", "PS1", "BELLJAR", "PATH", "GIT_CONFIG_SYSTEM"];
    let installing = ["PIP_BREAK_SYSTEM_PACKAGES", "NPM_CONFIG_PREFIX", "GOFLAGS"];
    // The language alone is the caller's.
    let documented = documented.into_iter().chain(installing).chain(["LC_ALL"]).collect::<Vec<_>>();
    // They lead programs to home and temporary files where these are no paths that every program knows.
    let leading = [
        "TMP",
        "TEMP",
        "JAVA_TOOL_OPTIONS",
        "XDG_CONFIG_HOME",
        "XDG_CACHE_HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
    ];
    let leading = leading.into_iter().filter(|_| !has_own_etc(backend));
    let documented = documented.into_iter().chain(leading).collect::<Vec<_>>();
    // Only where such a tool is on the PATH; they name a folder, nothing more.
    let tools = ["ASDF_DIR", "RUSTUP_HOME", "PYENV_ROOT", "RBENV_ROOT", "VOLTA_HOME"];
    for (name, value) in environment(&fixture).await {
        let tool = tools.contains(&name.as_str()) && value.starts_with('/');
        assert!(tool || documented.contains(&name.as_str()), "{name}={value}");
        assert!(!value.contains("secret"), "{name}={value}");
    }
    assert_eq!(fixture.answer("echo $LC_ALL $LC_TIME").await, "C", "and only what the system knows");
}

async fn what_programs_expect_is_there(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let environment = environment(&fixture).await;
    for name in ["HOME", "USER", "PATH", "LANG", "SHELL", "TMPDIR"] {
        assert!(environment.get(name).is_some_and(|value| !value.is_empty()), "{name}");
    }
    assert_eq!(environment["BELLJAR"], "1");
    assert_eq!(
        fixture.sh("[ -x \"$SHELL\" ] && [ -d \"$HOME\" ] && [ -d \"$TMPDIR\" ]").await.exit_code,
        Some(0)
    );
}

async fn home_and_temporary_folder_can_be_written(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let script =
        "f=$(mktemp) && echo a > \"$f\" && rm \"$f\" && echo b > \"$HOME/file\" && rm \"$HOME/file\"";
    let result = fixture.sh(script).await;
    assert_eq!(result.exit_code, Some(0), "{}", text(&result.stderr));
    if is_isolated(backend) {
        assert_ne!(fixture.answer("echo $HOME").await, std::env::var("HOME").unwrap_or_default());
    }
}

async fn every_program_of_the_system_is_on_the_path(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for program in ["sh", "ls", "env", "cat", "sleep"] {
        assert_ne!(fixture.run(&command([program, "--version"])).await.exit_code, Some(127), "{program}");
    }
    let path = environment(&fixture).await["PATH"].clone();
    assert!(path.split(':').all(|entry| entry.starts_with('/')), "{path}");
}

async fn the_sandboxs_variables_are_in_every_command(backend: BackendName) {
    let fixture = SandboxFixture::with(backend, |spec| {
        spec.env = vec![("COLOR".parse().unwrap(), "blue".into()), ("LANG".parse().unwrap(), "de_DE".into())];
    })
    .await;
    for _ in 0..2 {
        assert_eq!(fixture.answer("echo $COLOR $LANG").await, "blue de_DE");
    }
}

async fn a_commands_own_variables_win(backend: BackendName) {
    let fixture =
        SandboxFixture::with(backend, |spec| spec.env = vec![("COLOR".parse().unwrap(), "blue".into())])
            .await;
    let mut command = sh("echo $COLOR $HOME");
    command.env = vec![
        ("COLOR".parse().unwrap(), "red".into()),
        ("HOME".parse().unwrap(), "/first".into()),
        ("HOME".parse().unwrap(), "/last".into()),
    ];
    assert_eq!(text(&fixture.run(&command).await.stdout), "red /last\n");
    assert_eq!(fixture.answer("echo $COLOR").await, "blue", "only for that command");
}

async fn values_arrive_as_they_are(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for value in ["", " ", "a=b=c", "line\nend", "$(id)", "ü", &"x".repeat(100_000)] {
        let mut command = command(["printenv", "VALUE"]);
        command.env = vec![("VALUE".parse().unwrap(), value.into())];
        assert_eq!(text(&fixture.run(&command).await.stdout), format!("{value}\n"));
    }
}

async fn no_name_is_there_twice(backend: BackendName) {
    let fixture = SandboxFixture::with(backend, |spec| {
        spec.env = vec![("A".parse().unwrap(), "1".into()), ("A".parse().unwrap(), "2".into())];
    })
    .await;
    let mut command = command(["env", "-0"]);
    command.env = vec![("A".parse().unwrap(), "3".into()), ("PATH".parse().unwrap(), "/usr/bin:/bin".into())];
    let listed = text(&fixture.run(&command).await.stdout);
    let mut names: Vec<&str> =
        listed.split_terminator('\0').filter_map(|pair| pair.split('=').next()).collect();
    let all = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "{listed}");
    assert!(listed.contains("A=3\0"));
}
