//! A daemon that dies while sandboxes work: they continue, no output is lost, and the next daemon finds them as they were.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use belljar_tests_daemon::{Command, Home, Sandbox, eventually};
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

#[test]
fn a_daemon_that_is_killed_comes_back_to_all_that_was() {
    let home = Home::new();
    let daemon = home.start();
    let fleet = Fleet::start(&home);
    daemon.kill();
    fleet.goes_on();
    let daemon = home.start();
    fleet.is_as_it_was();
    fleet.ends();
    home.is_clean(&[], &fleet.ids(), Some(&daemon));
    assert!(daemon.stop().success(), "{}", home.log());
}

#[test]
fn so_it_does_where_its_socket_directory_is_gone_as_well() {
    let home = Home::new();
    let daemon = home.start();
    let fleet = Fleet::start(&home);
    daemon.kill();
    fs::remove_dir_all(home.path("run")).unwrap();
    fleet.goes_on();
    fs::create_dir(home.path("run")).unwrap();
    let daemon = home.start();
    fleet.is_as_it_was();
    fleet.ends();
    home.is_clean(&[], &fleet.ids(), Some(&daemon));
}

#[test]
fn a_daemon_whose_socket_directory_is_removed_makes_a_new_one() {
    let home = Home::new();
    let daemon = home.start();
    let sandbox = Sandbox::create(&home.client(), &json!({}));
    for gone in [home.socket(), home.path("run/belljar")] {
        match gone.is_dir() {
            true => fs::remove_dir_all(&gone).unwrap(),
            false => fs::remove_file(&gone).unwrap(),
        }
        let answers = || {
            home.client().ask("GET", &sandbox.path("")).try_send().is_ok_and(|answer| answer.status == 200)
        };
        assert!(eventually(answers), "the daemon does not listen any more: {}", home.log());
    }
    assert_eq!(sandbox.run("echo here"), ("here\n".into(), 0));
    sandbox.delete();
    home.is_clean(&[], &[sandbox.id()], Some(&daemon));
}

#[test]
fn a_daemon_that_is_asked_to_stop_leaves_its_sandboxes_at_work() {
    let home = Home::new();
    let daemon = home.start();
    let sandbox = Sandbox::create(&home.client(), &json!({}));
    let command = sandbox.start("while [ ! -e stop ]; do sleep 0.1; done; echo end");
    assert!(daemon.stop().success(), "{}", home.log());
    assert!(!home.socket().exists(), "its socket is left");
    let daemon = home.start();
    assert_eq!(sandbox.info()["commands"], 1);
    sandbox.run("touch stop");
    assert_eq!(command.wait()["result"]["exit_code"], 0);
    assert_eq!(command.output(), "end\n");
    sandbox.delete();
    home.is_clean(&[], &[sandbox.id()], Some(&daemon));
}

/// Sandboxes, each with a command that counts, and leases; some are listened to.
struct Fleet {
    all: Vec<Member>,
    followers: Vec<Follower>,
}

struct Member {
    sandbox: Sandbox,
    command: Command,
    folder: PathBuf,
    leases: Vec<String>,
}

impl Fleet {
    fn start(home: &Home) -> Fleet {
        let client = home.client();
        let next = Mutex::new(0..MANY);
        let all = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    while let Some(number) = { next.lock().unwrap().next() } {
                        all.lock().unwrap().push(Member::start(home, number));
                    }
                });
            }
        });
        let all = all.into_inner().unwrap();
        assert_eq!(all.len(), MANY);
        let listed = client.get("/v1/sandboxes?limit=1000").ok();
        assert_eq!(listed["items"].as_array().unwrap().len(), MANY);
        let followers: Vec<Follower> =
            all.iter().take(FOLLOWED).map(|one| Follower::start(&one.command)).collect();
        assert!(
            eventually(|| followers.iter().all(|follower| follower.received() >= 3)),
            "the followers got no output"
        );
        Fleet { all, followers }
    }

    /// Judged from outside: what the commands count grows, with no client attached.
    fn goes_on(&self) {
        let before: Vec<u64> = self.all.iter().map(Member::count).collect();
        let grew = || self.all.iter().zip(&before).all(|(one, before)| one.count() > before + 2);
        assert!(eventually(grew), "the commands do not continue");
    }

    fn is_as_it_was(&self) {
        for one in &self.all {
            let info = one.sandbox.info();
            assert_eq!((&info["state"], &info["commands"]), (&json!("live"), &json!(1)), "{info:#}");
            assert_eq!(info["id"], one.sandbox.created["sandbox"]["id"], "it is another life: {info:#}");
            assert_eq!(one.sandbox.leases(), one.leases);
            assert_eq!(one.sandbox.run("echo $((6 * 7))"), ("42\n".into(), 0));
        }
    }

    /// Every command is told to end; all its output is there, once, in order; everything is removed.
    fn ends(&self) {
        // The followers continue where they were.
        let rest: Vec<Follower> =
            self.followers.iter().zip(&self.all).map(|(before, one)| before.resume(&one.command)).collect();
        for one in &self.all {
            fs::write(one.folder.join("stop"), "").unwrap();
        }
        for one in &self.all {
            let ended = one.command.wait();
            assert_eq!(
                (&ended["state"], &ended["result"]["exit_code"]),
                (&json!("ended"), &json!(0)),
                "{ended:#}"
            );
            assert_eq!(one.command.output(), one.expected());
        }
        for ((before, after), one) in self.followers.iter().zip(rest).zip(&self.all) {
            assert_eq!(before.text() + &after.whole(), one.expected(), "from a cursor");
        }
        for one in &self.all {
            one.sandbox.delete();
            one.sandbox.client.get(&one.sandbox.path("")).refused(404, "sandbox_not_found");
        }
    }

    fn ids(&self) -> Vec<String> {
        self.all.iter().map(|one| one.sandbox.id()).collect()
    }
}

impl Member {
    fn start(home: &Home, number: usize) -> Member {
        let client = home.client();
        let folder = home.folder(&number.to_string());
        let key = format!("counter {number}");
        let sandbox = Sandbox::create(
            &client,
            &json!({ "key": key, "persistent": number.is_multiple_of(2), "sandbox": { "workspace": { "folder": folder } } }),
        );
        let mut leases = vec![sandbox.lease.clone()];
        for _ in 0..number % 3 {
            leases.push(Sandbox::create(&client, &json!({ "key": key, "owner": false })).lease);
        }
        leases.sort();
        let command = sandbox.start(
            "i=0; while [ ! -e stop ]; do echo \"line $i\"; i=$((i + 1)); echo $i > .count; mv .count count; sleep 0.2; done; \
             echo \"end $i\"",
        );
        Member { sandbox, command, folder, leases }
    }

    fn count(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join("count")).unwrap_or_default();
        text.trim().parse().unwrap_or_default()
    }

    fn expected(&self) -> String {
        let count = self.count();
        (0..count).map(|number| format!("line {number}\n")).chain([format!("end {count}\n")]).collect()
    }
}

/// A client that follows a command's output.
struct Follower {
    received: Arc<Mutex<Received>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Received {
    text: String,
    last: String,
    events: usize,
    failed: Option<String>,
}

impl Follower {
    fn start(command: &Command) -> Follower {
        let command = command.clone();
        Follower::of(move || command.follow("0"))
    }

    /// Of the same command, from behind the last event that came.
    fn resume(&self, command: &Command) -> Follower {
        self.join();
        let (command, last) = (command.clone(), self.received.lock().unwrap().last.clone());
        Follower::of(move || command.follow_after(&last))
    }

    fn of(open: impl FnOnce() -> std::io::Result<belljar_tests_daemon::Events> + Send + 'static) -> Follower {
        let received = Arc::new(Mutex::new(Received::default()));
        let reported = Arc::clone(&received);
        let thread = thread::spawn(move || {
            let events = match open() {
                Ok(events) => events,
                Err(error) => return reported.lock().unwrap().failed = Some(error.to_string()),
            };
            for event in events {
                let mut received = reported.lock().unwrap();
                received.events += 1;
                received.last = event.id.clone().unwrap_or_else(|| received.last.clone());
                if let Some(text) = event.output() {
                    received.text.push_str(&text);
                }
            }
        });
        Follower { received, thread: Mutex::new(Some(thread)) }
    }

    fn received(&self) -> usize {
        self.received.lock().unwrap().events
    }

    fn text(&self) -> String {
        self.received.lock().unwrap().text.clone()
    }

    /// All that came, when nothing comes any more.
    fn whole(&self) -> String {
        self.join();
        assert_eq!(self.received.lock().unwrap().failed, None);
        self.text()
    }

    fn join(&self) {
        if let Some(thread) = self.thread.lock().unwrap().take() {
            thread.join().unwrap();
        }
    }
}

const MANY: usize = 50;
const FOLLOWED: usize = 6;
