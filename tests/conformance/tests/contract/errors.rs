//! What is wrong is said: what happened, to what, and what to do next.

use belljar_engine::Engine;
use belljar_spec::{
    Assurance, BackendChoice, BackendName, Command, CommandError, EnvName, ErrorCode, ErrorKind, Permission,
    SandboxError, SandboxSpec, SharedPath,
};
use belljar_sys::seccomp::{install, no_new_privileges};
use belljar_tests_conformance::*;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

for_every_backend! {
    everywhere:
        a_workspace_that_is_missing_is_refused,
        a_workspace_that_is_a_file_is_refused,
        a_workspace_that_cannot_be_read_is_refused,
        a_workspace_that_holds_a_home_is_refused,
        a_workspace_of_the_system_is_refused,
        a_workspace_whose_path_is_not_text_is_refused,
        a_shared_path_that_is_missing_is_refused,
        a_shared_socket_is_refused,
        a_backend_that_is_too_weak_is_refused;
    living everywhere:
        a_command_that_is_not_there_ends_with_127,
        a_sandbox_survives_every_mistake;
    living each_kernel:
        a_command_that_cannot_be_run_ends_with_126,
        a_script_without_an_interpreter_says_so,
        arguments_beyond_the_kernels_limit_are_no_surprise,
        a_directory_that_is_not_there_is_an_error,
        an_environment_with_a_zero_byte_is_an_error,
        an_environment_that_is_too_large_is_an_error;
}

async fn refused(backend: BackendName, workspace: &Path) -> SandboxError {
    match SandboxFixture::try_with(backend, |spec| spec.workspace = Some(workspace.into())).await {
        Ok(_) => panic!("{} was taken as a workspace", workspace.display()),
        Err(error) => error,
    }
}

/// A refusal by policy that says what to do.
fn assert_refusal(error: &SandboxError, code: ErrorCode, about: &str) {
    assert_eq!((error.kind(), error.code), (ErrorKind::Policy, code), "{error}");
    assert!(error.message.contains(about), "`{error}` does not name {about}");
    assert!(error.hint.is_some(), "`{error}` does not say what to do");
    assert!(
        error.message.starts_with(|c: char| !c.is_uppercase()) && !error.message.ends_with('.'),
        "{error}"
    );
}

async fn a_workspace_that_is_missing_is_refused(backend: BackendName) {
    assert_refusal(
        &refused(backend, Path::new("/no/such/folder")).await,
        ErrorCode::PathInvalid,
        "/no/such/folder",
    );
    let folder = tempfile::TempDir::new().unwrap();
    std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
    assert_refusal(&refused(backend, &folder.path().join("link")).await, ErrorCode::PathInvalid, "link");
}

async fn a_workspace_that_is_a_file_is_refused(backend: BackendName) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = refused(backend, file.path()).await;
    assert_refusal(&error, ErrorCode::WorkspaceMissing, file.path().to_str().unwrap());
    assert_eq!(fs::read(file.path()).unwrap(), b"");
}

async fn a_workspace_that_cannot_be_read_is_refused(backend: BackendName) {
    if is_root() {
        return; // Root reads everything.
    }
    let folder = tempfile::TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o300)).unwrap();
    let error = refused(backend, folder.path()).await;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    assert_refusal(&error, ErrorCode::PathInvalid, folder.path().to_str().unwrap());
}

async fn a_workspace_that_holds_a_home_is_refused(backend: BackendName) {
    for path in ["/", "/home"] {
        assert_refusal(&refused(backend, Path::new(path)).await, ErrorCode::PathRefused, path);
    }
    let home = std::env::var("HOME").unwrap();
    assert_refusal(&refused(backend, Path::new(&home)).await, ErrorCode::PathRefused, &home);
}

async fn a_workspace_of_the_system_is_refused(backend: BackendName) {
    for path in ["/proc", "/sys", "/dev", "/run", "/proc/self"] {
        let error = refused(backend, Path::new(path)).await;
        assert_eq!((error.kind(), error.code), (ErrorKind::Policy, ErrorCode::PathRefused), "{path}");
    }
}

async fn a_workspace_whose_path_is_not_text_is_refused(backend: BackendName) {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join(OsStr::from_bytes(b"\xff"));
    fs::create_dir(&path).unwrap();
    let error = refused(backend, &path).await;
    assert_eq!((error.kind(), error.code), (ErrorKind::Policy, ErrorCode::PathInvalid));
}

async fn with_shared(backend: BackendName, path: &Path) -> Result<SandboxFixture, SandboxError> {
    let shared = vec![SharedPath { path: path.into(), permission: Permission::Read }];
    SandboxFixture::try_with(backend, |spec| spec.shared = shared).await
}

async fn a_shared_path_that_is_missing_is_refused(backend: BackendName) {
    let error = with_shared(backend, Path::new("/no/such/path")).await.err().expect("it is missing");
    // Where there is no isolation, sharing may be refused as such.
    if is_isolated(backend) || error.kind() != ErrorKind::Unavailable {
        assert_refusal(&error, ErrorCode::PathInvalid, "/no/such/path");
    }
}

async fn a_shared_socket_is_refused(backend: BackendName) {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let error = with_shared(backend, &path).await.err().expect("it is a socket");
    if is_isolated(backend) || error.kind() != ErrorKind::Unavailable {
        assert_refusal(&error, ErrorCode::PathRefused, "socket");
    }
}

async fn a_backend_that_is_too_weak_is_refused(backend: BackendName) {
    for least in Assurance::ALL {
        let outcome = SandboxFixture::try_with(backend, |spec| spec.at_least = Some(least)).await;
        match outcome {
            Ok(_) => assert!(backend.assurance().is_at_least(least), "{backend} is weaker than {least}"),
            Err(error) => {
                assert!(!backend.assurance().is_at_least(least), "{backend}: {error}");
                assert_eq!((error.kind(), error.code), (ErrorKind::Unavailable, ErrorCode::AssuranceTooLow));
            }
        }
    }
}

async fn a_command_that_is_not_there_ends_with_127(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for program in ["no-such-program", "./no-such-program", "/no/such/program", "no/such/program"] {
        let result = fixture.run(&command([program])).await;
        assert_eq!((result.exit_code, result.ended.signal), (Some(127), None), "{program}");
        assert!(result.ended.not_started.unwrap().contains(program));
    }
    // A program that ends like that by itself is another matter.
    assert_eq!(fixture.sh("exit 127").await.not_started, None);
}

async fn a_command_that_cannot_be_run_ends_with_126(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture
        .sh("echo text > data; printf '\\177ELF' > broken; chmod +x broken; mkdir folder; mkfifo pipe")
        .await;
    for program in ["./data", "./folder", "./broken", "./pipe", "/dev/null"] {
        let result = fixture.run(&command([program])).await;
        assert_eq!(result.exit_code, Some(126), "{program}: {result:?}");
        assert!(result.ended.not_started.unwrap().contains(program));
    }
}

async fn a_script_without_an_interpreter_says_so(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.sh("echo 'echo hallo' > script; chmod +x script").await;
    let result = fixture.run(&command(["./script"])).await;
    assert_eq!(result.exit_code, Some(126));
    assert!(result.ended.not_started.unwrap().contains("interpreter"));
    fixture.sh("printf '#!/no/such/interpreter\\n' > other; chmod +x other").await;
    let result = fixture.run(&command(["./other"])).await;
    assert!([Some(126), Some(127)].contains(&result.exit_code), "{result:?}");
}

async fn arguments_beyond_the_kernels_limit_are_no_surprise(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    // One word may have 128 KiB: execve(2), MAX_ARG_STRLEN.
    let word = "x".repeat(200_000);
    let result = fixture.run(&command(["true", word.as_str()])).await;
    assert_eq!(result.exit_code, Some(126));
    assert!(result.not_started.is_some());
    let too_long = Command::new(std::iter::repeat_n(word.as_str(), 20));
    assert_eq!(too_long.unwrap_err(), CommandError::TooLong);
    assert_eq!(Command::new::<&str>([]).unwrap_err(), CommandError::Empty);
    assert_eq!(Command::new([""]).unwrap_err(), CommandError::EmptyProgram);
    assert_eq!(Command::new(["a", "b\0c"]).unwrap_err(), CommandError::Nul);
}

async fn a_directory_that_is_not_there_is_an_error(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    fixture.write_file("file", b"").await.unwrap();
    for (cwd, code) in [
        ("missing", ErrorCode::NotFound),
        ("file", ErrorCode::FileOperation),
        ("/no/such/folder", ErrorCode::NotFound),
    ] {
        let mut command = sh(": > started");
        command.cwd = Some(cwd.into());
        let error = fixture.exec(&command).await.unwrap_err();
        if is_isolated(backend) || !cwd.starts_with('/') {
            assert_eq!((error.kind(), error.code), (ErrorKind::Runtime, code), "{cwd}");
        } else {
            assert_eq!((error.kind(), error.code), (ErrorKind::Policy, ErrorCode::PermissionDenied), "{cwd}");
        }
        assert!(error.message.contains(cwd), "{error}");
    }
    assert!(!fixture.host("started").exists());
}

async fn an_environment_with_a_zero_byte_is_an_error(backend: BackendName) {
    for name in ["", "A=B", "A\0"] {
        assert!(name.parse::<EnvName>().is_err(), "{name:?}");
    }
    let fixture = SandboxFixture::new(backend).await;
    let mut command = sh(": > started");
    command.env = vec![("NAME".parse().unwrap(), OsString::from_vec(b"a\0b".to_vec()))];
    match fixture.exec(&command).await {
        Ok(result) => assert_eq!(result.exit_code, Some(126), "{result:?}"),
        Err(error) => assert_ne!(error.code, ErrorCode::GuestGone),
    }
    assert!(!fixture.host("started").exists());
}

async fn an_environment_that_is_too_large_is_an_error(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    for size in [200_000, 5_000_000] {
        let mut command = sh(": > started");
        command.env = vec![("NAME".parse().unwrap(), "x".repeat(size).into())];
        match fixture.exec(&command).await {
            Ok(result) => assert_eq!(result.exit_code, Some(126), "{size}"),
            Err(error) => assert_ne!(error.code, ErrorCode::GuestGone, "{size}: {error}"),
        }
    }
    assert!(!fixture.host("started").exists());
}

async fn a_sandbox_survives_every_mistake(backend: BackendName) {
    let fixture = SandboxFixture::new(backend).await;
    let mut nowhere = sh("exit 0");
    nowhere.cwd = Some("missing".into());
    for _ in 0..20 {
        assert!(fixture.exec(&nowhere).await.is_err());
        assert_eq!(fixture.run(&command(["no-such-program"])).await.exit_code, Some(127));
        assert!(fixture.read_file("missing").await.is_err());
        assert!(fixture.write_file("missing/file", &[0; 200_000]).await.is_err());
    }
    assert_eq!(fixture.answer("echo alive").await, "alive");
}

/// What does not depend on a backend.
#[test]
fn no_name_of_a_backend_but_those_we_know() {
    for name in BackendName::ALL {
        assert_eq!(name.as_str().parse::<BackendChoice>().unwrap(), BackendChoice::Named(name));
    }
    assert_eq!("auto".parse::<BackendChoice>().unwrap(), BackendChoice::Auto);
    for name in ["", "Native", "docker ", "none", "nativ"] {
        let error = name.parse::<BackendChoice>().unwrap_err().to_string();
        assert!(error.contains(&format!("`{name}`")) && error.contains("native"), "{error}");
    }
}

/// Whether a sandbox starts with this backend, or with the one that `auto` takes, which must isolate.
fn starts(backend: BackendChoice) -> Result<BackendName, SandboxError> {
    let spec = SandboxSpec { backend, at_least: Some(Assurance::Namespace), ..Default::default() };
    Engine::new().create_blocking(&spec).map(|sandbox| sandbox.backend())
}

#[test]
fn auto_takes_native_before_others() {
    if starts(BackendChoice::Named(BackendName::Native)).is_ok() {
        assert_eq!(starts(BackendChoice::Auto), Ok(BackendName::Native));
    }
}

/// On a thread that may not unshare: native's guest enters its network by that, and bubblewrap is born in its own.
#[test]
fn auto_takes_bubblewrap_where_native_is_refused() {
    let unshare = if cfg!(target_arch = "x86_64") { 272 } else { 97 };
    // Load the call's number; is it that one? EPERM (1), or let it pass. linux/seccomp.h
    let filter = [(0x20u16, 0u8, 0u32), (0x15, 1, unshare), (0x06, 0, 0x0005_0001), (0x06, 0, 0x7fff_0000)];
    let instruction = |(code, otherwise, number): (u16, u8, u32)| {
        let mut bytes = code.to_ne_bytes().to_vec();
        bytes.extend([0, otherwise]);
        bytes.extend(number.to_ne_bytes());
        bytes
    };
    let filter: Vec<u8> = filter.into_iter().flat_map(instruction).collect();
    let has_bubblewrap = starts(BackendChoice::Named(BackendName::Bwrap)).is_ok();
    let thread = std::thread::spawn(move || {
        no_new_privileges().unwrap();
        install(&filter).unwrap();
        let native = BackendChoice::Named(BackendName::Native);
        let spec = SandboxSpec { backend: native, ..Default::default() };
        for _ in 0..30 {
            // With a command behind the setup: the guest may be gone before it can be sent, and said why.
            let refused = Engine::new().create_running(&spec, &command(["true"])).err().expect("it may not");
            assert_eq!(
                (refused.kind(), refused.code),
                (ErrorKind::Unavailable, ErrorCode::BackendUnavailable)
            );
        }
        match starts(BackendChoice::Auto) {
            Ok(backend) => assert_eq!(backend, BackendName::Bwrap),
            Err(error) => {
                assert!(!has_bubblewrap, "{error}");
                assert_eq!(error.code, ErrorCode::BackendUnavailable);
            }
        }
    });
    thread.join().unwrap();
}

#[test]
fn auto_never_takes_a_backend_that_is_too_weak() {
    let spec = belljar_spec::SandboxSpec { at_least: Some(Assurance::Microvm), ..Default::default() };
    let error = Engine::new().create_blocking(&spec).err().expect("there is no such backend");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(
        [ErrorCode::BackendUnavailable, ErrorCode::AssuranceTooLow].contains(&error.code),
        "{}",
        error.code
    );
    assert!(error.hint.is_some());
    // The backend that it takes isolates, also where the caller does not say how much.
    assert_eq!(BackendName::AUTO, [BackendName::Native, BackendName::Bwrap, BackendName::Landlock]);
    if let Ok(sandbox) = Engine::new().create_blocking(&belljar_spec::SandboxSpec::default()) {
        assert!(BackendName::AUTO.contains(&sandbox.backend()), "{}", sandbox.backend());
        sandbox.dispose_blocking();
    }
}
