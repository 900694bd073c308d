//! What package managers install inside goes into the home, and is found there. The packages are made inside and come from a server on
//! the sandbox's own loopback: nothing of the network is needed.

use crate::persistent::home::Home as Folder;
use belljar_tests_cli::Home;
use std::process::Command;

/// Whether a program works on this machine; the tests of one that is missing say so.
#[expect(clippy::print_stderr, reason = "it is for the person who runs the tests")]
fn works(program: &str, args: &[&str]) -> bool {
    let works = Command::new(program).args(args).output().is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("skipped: {program} {args:?} does not work here");
    }
    works
}

fn printed(script: &str) -> (u8, String, String) {
    let home = Home::new("");
    let run = home.run(&["run", "--", "sh", "-ec", script]);
    (run.code as u8, run.stdout, run.stderr)
}

/// The system's own Python forbids it outside (PEP 668); in a virtual environment nothing goes into the home.
#[test]
fn pip_installs_into_the_home() {
    if !works("/usr/bin/python3", &["-m", "pip", "--version"]) {
        return;
    }
    let (code, stdout, stderr) = printed(PIP);
    assert_eq!(
        (code, stdout.as_str()),
        (0, "/home/agent/.local/bin/bjhello\nhello from pip\nhello from pip\n"),
        "{stderr}"
    );
    if works("/usr/bin/python3", &["-m", "ensurepip", "--version"]) {
        let (code, stdout, stderr) = printed(&format!("{PIP}\n{VENV}"));
        assert_eq!((code, stdout.lines().last()), (0, Some("in the environment")), "{stderr}");
    }
}

#[test]
fn npm_installs_into_the_home() {
    if !works("npm", &["--version"]) {
        return;
    }
    let (code, stdout, stderr) = printed(NPM);
    assert_eq!((code, stdout.as_str()), (0, "/home/agent/.local/bin/bjnode\nhello from npm\n"), "{stderr}");
}

#[test]
fn programs_of_cargo_and_go_are_found_in_the_home() {
    let (code, stdout, stderr) = printed(
        "for folder in .cargo/bin go/bin; do
             mkdir -p ~/$folder
             printf '#!/bin/sh\\necho from %s\\n' $folder > ~/$folder/${folder%/bin}-program
             chmod +x ~/$folder/${folder%/bin}-program
         done
         .cargo-program; go-program",
    );
    assert_eq!((code, stdout.as_str()), (0, "from .cargo/bin\nfrom go/bin\n"), "{stderr}");
}

/// From a package's own folder, so that no registry is asked. A persistent sandbox keeps its home.
#[test]
fn cargo_installs_into_the_home_which_is_kept() {
    if !works("cargo", &["--version"]) {
        return;
    }
    let folder = Folder::ready();
    let run = folder.run(&["exec", "--", "sh", "-ec", CARGO]);
    let expected = "/home/agent/.cargo/bin/bjcargo\nhello from cargo\n";
    assert_eq!((run.code, run.stdout.as_str()), (0, expected), "{}", run.stderr);
    assert_eq!(folder.run(&["stop"]).code, 0);
    let again = folder.run(&["exec", "--", "bjcargo"]);
    assert_eq!((again.code, again.stdout.as_str()), (0, "hello from cargo\n"), "{}", again.stderr);
}

#[test]
fn go_installs_into_the_home() {
    if !works("go", &["version"]) {
        return;
    }
    let (code, stdout, stderr) = printed(GO);
    assert_eq!((code, stdout.as_str()), (0, "/home/agent/go/bin/bjgo\nhello from go\n"), "{stderr}");
}

/// A package with a program, in an index as PyPI has it.
const PIP: &str = r#"
mkdir -p index/simple/bjhello
/usr/bin/python3 - <<'END'
import zipfile
info = 'bjhello-1.0.dist-info/'
files = {
    'bjhello.py': 'def main():\n    print("hello from pip")\n',
    info + 'METADATA': 'Metadata-Version: 2.1\nName: bjhello\nVersion: 1.0\n',
    info + 'WHEEL': 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
    info + 'entry_points.txt': '[console_scripts]\nbjhello = bjhello:main\n',
}
name = 'bjhello-1.0-py3-none-any.whl'
with zipfile.ZipFile('index/simple/bjhello/' + name, 'w') as wheel:
    for path, content in files.items():
        wheel.writestr(path, content)
    wheel.writestr(info + 'RECORD', ''.join(path + ',,\n' for path in files) + info + 'RECORD,,\n')
open('index/simple/bjhello/index.html', 'w').write(f'<a href="{name}">{name}</a>')
END
/usr/bin/python3 -m http.server --directory index --bind 127.0.0.1 18765 > served 2>&1 &
until grep -q Serving served || curl -s -o /dev/null http://127.0.0.1:18765/; do sleep 0.1; done
export PIP_INDEX_URL=http://127.0.0.1:18765/simple PIP_DISABLE_PIP_VERSION_CHECK=1
/usr/bin/python3 -m pip install bjhello >&2
command -v bjhello
bjhello
/usr/bin/python3 -m pip install --user --force-reinstall bjhello >&2
/usr/bin/python3 -c 'import bjhello; bjhello.main()'
"#;

const VENV: &str = r"
/usr/bin/python3 -m venv environment
environment/bin/pip install bjhello >&2
test -x environment/bin/bjhello
echo in the environment
";

const CARGO: &str = r#"
mkdir -p package/src
cd package
printf '[package]\nname = "bjcargo"\nversion = "1.0.0"\nedition = "2021"\n' > Cargo.toml
echo 'fn main() { println!("hello from cargo"); }' > src/main.rs
cargo install --offline --debug --path . >&2
command -v bjcargo
bjcargo
"#;

const GO: &str = r#"
mkdir package
cd package
printf 'module example.com/bjgo\n\ngo 1.18\n' > go.mod
printf 'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello from go") }\n' > main.go
GOPROXY=off go install . >&2
command -v bjgo
bjgo
"#;

const NPM: &str = r#"
mkdir package
cd package
echo '{"name":"bjnode","version":"1.0.0","bin":{"bjnode":"cli.js"}}' > package.json
printf '#!/usr/bin/env node\nconsole.log("hello from npm")\n' > cli.js
npm pack --silent >&2
npm install -g --offline --no-audit --no-fund ./bjnode-1.0.0.tgz >&2
command -v bjnode
bjnode
"#;
