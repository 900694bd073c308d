//! The dashboard: who is let in, by raw requests; and what a person sees and does, in a real browser.

use crate::persistent::home::Home;
use belljar_sys::rustix::process::{Pid, Signal, geteuid, kill_process};
use belljar_tests_hosts::have;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A user without powers.
const NOBODY: u32 = 65_534;

/// A dashboard that runs.
struct Dashboard {
    child: Child,
    link: String,
}

impl Dashboard {
    fn start(home: &Home) -> Dashboard {
        let mut child = home.command(&["ui", "--no-open"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut link = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut link).unwrap();
        Dashboard { child, link: link.trim().to_string() }
    }

    /// Address and port.
    fn authority(&self) -> &str {
        self.link.trim_start_matches("http://").split('/').next().unwrap()
    }

    fn key(&self) -> &str {
        self.link.split_once("key=").unwrap().1
    }

    /// The status of the answer, and all of it.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.authority()).unwrap();
        let host =
            headers.iter().find(|(name, _)| *name == "host").map_or(self.authority(), |(_, host)| host);
        let more: String = headers
            .iter()
            .filter(|(name, _)| *name != "host")
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n{more}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

#[test]
fn another_user_of_the_machine_is_not_let_in_with_the_link() {
    // Only root can be another user for a moment.
    if !geteuid().is_root() {
        return;
    }
    let home = Home::new();
    home.run(&["init"]);
    let ui = Dashboard::start(&home);
    let script = "import socket, sys\nhost, port = sys.argv[1].split(':')\ns = socket.create_connection((host, int(port)))\n\
        try: s.sendall(f'GET /enter?key={sys.argv[2]} HTTP/1.1\\r\\nhost: {sys.argv[1]}\\r\\n\\r\\n'.encode()); print(s.recv(12))\n\
        except OSError: print(b'')";
    let mut other = Command::new("python3");
    other.args(["-c", script, ui.authority(), ui.key()]).uid(NOBODY).gid(NOBODY).current_dir("/");
    let output = other.output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "b'HTTP/1.1 403'\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // And has not used it up.
    assert_eq!(ui.ask("GET", &format!("/enter?key={}", ui.key()), &[], "").0, 200);
}

#[test]
fn only_the_browser_with_the_link_is_let_in_and_only_from_our_pages() {
    let home = Home::new();
    home.run(&["init"]);
    assert_eq!(home.run(&["start"]).code, 0);
    let ui = Dashboard::start(&home);
    let own = format!("http://{}", ui.authority());
    assert!(!ui.authority().starts_with("127.0.0.1:"), "a cookie of 127.0.0.1 would go to every port there");
    for path in ["/", "/approvals", "/sandbox/x", "/enter", "/enter?key=", "/enter?key=00"] {
        let (status, answer) = ui.ask("GET", path, &[], "");
        assert!(status == 401 && !answer.contains("bj-"), "{path}: {answer}");
    }
    // A name that was made to lead here is not ours, also with the right key.
    let enter = format!("/enter?key={}", ui.key());
    assert_eq!(ui.ask("GET", &enter, &[("host", "evil.example")], "").0, 421);
    let (status, answer) = ui.ask("GET", &enter, &[], "");
    assert_eq!(status, 200, "{answer}");
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(ui.ask("GET", &enter, &[], "").0, 401, "a link that was stolen is used up");
    let (status, page) = ui.ask("GET", "/", &[("cookie", cookie)], "");
    assert!(status == 200 && page.contains("bj-"), "{page}");
    let policy = page.lines().find(|line| line.starts_with("content-security-policy: ")).unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    // Nothing of another origin is asked for, and no code stands in the page.
    assert!(!page.contains("https://") && !page.contains("onclick") && !page.contains("<style"), "{page}");
    let name = page.split("href=\"/sandbox/").nth(1).unwrap().split('"').next().unwrap().to_string();
    let form = "rule=evil.example&back=%2F";
    let path = format!("/sandbox/{name}/allow");
    for headers in [
        &[("cookie", cookie)][..],
        &[("cookie", cookie), ("origin", "http://evil.example")],
        &[("cookie", cookie), ("origin", "http://127.0.0.1:3000")],
        &[("cookie", cookie), ("origin", "null")],
        &[("cookie", cookie), ("origin", &own), ("host", "evil.example")],
        &[("cookie", cookie), ("origin", &own), ("sec-fetch-site", "same-site")],
        &[("origin", &own)],
    ] {
        let (status, answer) = ui.ask("POST", &path, headers, form);
        assert!([401, 403, 421].contains(&status), "{headers:?}: {answer}");
    }
    let shown = || home.run(&["policy", "show", ".", "--json"]).stdout;
    assert!(!shown().contains("evil.example"));
    let ours = [("cookie", cookie), ("origin", own.as_str())];
    let (status, answer) = ui.ask("POST", &path, &ours, "rule=good.example&back=%2F%2Fevil.example");
    assert!(status == 303 && answer.contains("location: /\r\n"), "it leads nowhere else: {answer}");
    assert!(shown().contains("good.example"));
    let (status, answer) = ui.ask("POST", &path, &ours, "rule=%3Cscript%3E&back=/");
    assert!(status == 422 && !answer.contains("<script>"), "{answer}");
}

/// A browser, driven over HTTP (W3C WebDriver).
struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    fn start(profile: &str) -> Browser {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut browser = Browser { driver, port, session: String::new() };
        let until = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() && Instant::now() < until {
            sleep(Duration::from_millis(50));
        }
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
        ];
        let args: Vec<String> =
            args.iter().map(ToString::to_string).chain([format!("--user-data-dir={profile}")]).collect();
        let expected = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": { "args": args } } } });
        let made = browser.call("POST", "/session", &expected);
        browser.session = made["sessionId"].as_str().unwrap().to_string();
        browser
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = if self.session.is_empty() {
            path.to_string()
        } else {
            format!("/session/{}{path}", self.session)
        };
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = String::new();
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            head.clear();
            reader.read_line(&mut head).unwrap();
            if let Some(value) = head.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if head.trim().is_empty() {
                break;
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert!(answer["value"]["error"].is_null(), "{method} {path}: {answer}");
        answer["value"].clone()
    }

    fn script(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    fn go(&self, url: &str) {
        self.call("POST", "/url", &json!({ "url": url }));
    }

    /// Waits until the page says this.
    fn sees(&self, words: &str) {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let text = self.script("return document.body.innerText");
            if text.as_str().is_some_and(|text| text.contains(words)) {
                return;
            }
            assert!(Instant::now() < until, "`{words}` is not in {text}");
            sleep(Duration::from_millis(100));
        }
    }

    /// Clicks a button by its words; the page may be renewed at that moment.
    fn clicks(&self, label: &str) {
        let script = format!(
            "const one = [...document.querySelectorAll('button')].find((b) => b.textContent === '{label}'); \
             if (one) one.click(); return !!one"
        );
        assert_eq!(self.script(&script), true, "{label}");
    }

    /// Kept for people to look at, where that is asked for.
    fn screenshot(&self, name: &str, width: u32, dark: bool) {
        let send = |command: &str, params: Value| {
            self.call("POST", "/goog/cdp/execute", &json!({ "cmd": command, "params": params }));
        };
        send(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600 }),
        );
        let scheme = if dark { "dark" } else { "light" };
        send(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
        // Nothing is wider than the window.
        let is_fine = self.script("return document.documentElement.scrollWidth <= window.innerWidth");
        assert_eq!(is_fine, true, "{name} at {width}");
        if let Some(folder) = std::env::var_os("BELLJAR_TEST_ARTEFACTS") {
            use base64::Engine;
            let image = self.call("GET", "/screenshot", &Value::Null);
            let bytes = base64::engine::general_purpose::STANDARD.decode(image.as_str().unwrap()).unwrap();
            std::fs::write(PathBuf::from(folder).join(format!("{name}-{width}-{scheme}.png")), bytes)
                .unwrap();
        }
    }

    fn screenshots(&self, name: &str) {
        self.screenshot(name, 390, false);
        self.screenshot(name, 1280, true);
        self.screenshot(name, 1280, false);
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its session, also where the test failed.
        let request = format!(
            "DELETE /session/{} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n",
            self.session
        );
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            let _ = stream.write_all(request.as_bytes());
            let _ = stream.read_to_end(&mut Vec::new());
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

#[test]
fn a_person_allows_denies_and_answers_in_a_browser() {
    if !have(["chromium", "chromedriver"]) {
        return;
    }
    let home = Home::new();
    home.run(&["init"]);
    let started = home.run(&["start", "--egress", "ask", "--group", "registries", "-p", "0:3000"]);
    assert_eq!(started.code, 0, "{}", started.stderr);
    let ui = Dashboard::start(&home);
    let browser = Browser::start(home.path("chromium").to_str().unwrap());
    browser.go(&ui.link);
    browser.sees("New sandbox");
    // The key is not in the address any more, nor in what was visited.
    assert_eq!(browser.script("return location.pathname + location.search"), "/");
    let dial = "for n in yes.example no.example; do bash -c \"exec 3<>/dev/tcp/$n/443\" & done
        python3 -c \"import socket; s = socket.create_server(('127.0.0.1', 8123)); s.accept()\" &
        exec 3<>/dev/tcp/ask.belljar.internal/80
        printf 'POST /docs.example HTTP/1.1\r\nHost: x\r\nContent-Length: 18\r\n\r\nto <i>read</i> it.' >&3
        wait";
    assert_eq!(home.run(&["exec", "-d", "--", "bash", "-c", dial]).code, 0);
    browser.sees("yes.example:443");
    browser.sees("no.example:443");
    // What a program says is text too.
    browser.sees("to <i>read</i> it.");
    browser.sees("127.0.0.1:");
    browser.screenshots("sandboxes");
    browser.script("document.querySelector('a.name').click(); return 1");
    let answer = |host: &str, verdict: &str| {
        let script = format!(
            "const one = [...document.querySelectorAll('.question')].find((q) => q.textContent.includes('{host}')); \
             one.querySelector('input[value={verdict}]').form.querySelector('button').click(); return 1"
        );
        browser.script(&script);
    };
    browser.sees("What may leave");
    browser.sees("8123 open inside");
    let link = browser.script("return document.querySelector('.facts a').href");
    assert!(link.as_str().is_some_and(|link| link.starts_with("http://127.0.0.1:")), "{link}");
    browser.screenshots("sandbox");
    answer("docs.example", "deny");
    answer("yes.example", "sandbox");
    browser.sees("=yes.example");
    answer("no.example", "deny");
    browser.sees("=no.example:443");
    // By the keyboard alone.
    browser.script("document.getElementById('rule').focus(); return 1");
    let keys: Vec<Value> = "typed.example\u{e007}"
        .chars()
        .flat_map(|key| {
            [
                json!({ "type": "keyDown", "value": key.to_string() }),
                json!({ "type": "keyUp", "value": key.to_string() }),
            ]
        })
        .collect();
    browser.call(
        "POST",
        "/actions",
        &json!({ "actions": [{ "type": "key", "id": "keys", "actions": keys }] }),
    );
    browser.sees("typed.example");
    // What a program inside chose is text.
    home.run(&["exec", "--", "getent", "hosts", "x<b>y.example"]);
    let shown = home.run(&["policy", "show", ".", "--json"]);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    let rules: Vec<&str> = shown["rules"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|rule| rule["live"] == true)
        .map(|rule| rule["rule"].as_str().unwrap())
        .collect();
    assert_eq!(rules, ["=docs.example:443", "=yes.example", "=no.example:443", "typed.example"]);
    // The daemon is killed, and the page goes on with the next one.
    assert_eq!(home.run(&["daemon", "stop"]).code, 0);
    assert_eq!(home.run(&["allow", "later.example", "--in", ".", "--for", "5m"]).code, 0);
    browser.sees("later.example");
    browser.screenshots("afterwards");
    browser.clicks("Stop");
    browser.sees("stopped");
}
