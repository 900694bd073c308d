//! `belljar images`: what a person sees of images.

use belljar_tests_cli::Home;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

/// What `docker save` would write of an image with one file in one layer, made by tar itself.
fn saved(home: &Home) -> String {
    let folder = home.path("image");
    fs::create_dir_all(folder.join("layer/etc")).expect("a folder can be made");
    fs::write(folder.join("layer/etc/hello"), "hello").expect("a file can be written");
    tar(&folder.join("layer"), &folder.join("layer.tar"), &["--mtime=@0", "."]);
    let sum = Command::new("sha256sum").arg(folder.join("layer.tar")).output().expect("sha256sum runs");
    let sum = String::from_utf8(sum.stdout).expect("digits are text");
    let digits = &sum[..64];
    let config = format!(r#"{{"os":"linux","config":{{}},"rootfs":{{"diff_ids":["sha256:{digits}"]}}}}"#);
    fs::write(folder.join("config.json"), config).expect("a file can be written");
    let manifest = r#"[{"Config":"config.json","RepoTags":null,"Layers":["layer.tar"]}]"#;
    fs::write(folder.join("manifest.json"), manifest).expect("a file can be written");
    let file = home.path("image.tar");
    tar(&folder, &file, &["manifest.json", "config.json", "layer.tar"]);
    file.to_str().expect("a path of ours is text").to_string()
}

fn tar(folder: &Path, file: &Path, what: &[&str]) {
    let status = Command::new("tar").arg("-C").arg(folder).arg("-cf").arg(file).args(what).status();
    assert!(status.expect("tar runs").success());
}

#[test]
fn an_image_comes_from_a_file_is_listed_and_goes() {
    let home = Home::new("");
    let none = home.run(&["images"]);
    assert_eq!((none.code, none.stdout.as_str()), (0, ""));
    assert!(
        none.stderr.contains("there is no image here") && none.stderr.contains("hint:"),
        "{}",
        none.stderr
    );

    let imported = home.run(&["images", "import", &saved(&home), "local/hello:1"]);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    assert!(imported.stdout.starts_with("local/hello:1@sha256:"), "{}", imported.stdout);
    assert_eq!(imported.stderr, "", "nothing is drawn where there is no terminal");

    let listed = home.run(&["images"]);
    assert!(
        listed.stdout.contains("docker.io/local/hello:1") && listed.stdout.contains("5 B"),
        "{}",
        listed.stdout
    );
    let json: serde_json::Value =
        serde_json::from_str(&home.run(&["images", "--json"]).stdout).expect("one JSON array");
    assert_eq!(json[0]["name"], "docker.io/local/hello:1");
    assert_eq!(
        (&json[0]["bytes"], &json[0]["whole"], &json[0]["in_use"]),
        (&5.into(), &true.into(), &false.into())
    );

    assert_eq!(home.run(&["images", "rm", "local/hello:1"]).code, 0);
    let again = home.run(&["images", "rm", "local/hello:1"]);
    assert_eq!(again.code, 125);
    assert!(again.stderr.contains("the image `local/hello:1` is not here"), "{}", again.stderr);
    let young = home.run(&["images", "gc", "--dry-run", "--unused", "30d"]);
    assert_eq!(young.code, 0, "{}", young.stderr);
    assert_eq!(home.run(&["images", "gc", "--unused", "30"]).code, 125, "thirty of what?");
    let would = home.run(&["images", "gc", "--dry-run"]);
    assert!(would.stderr.contains("would remove 1 layers with 5 B"), "{}", would.stderr);
    let gone = home.run(&["images", "gc"]);
    assert!(gone.stderr.contains("removed 1 layers with 5 B"), "{}", gone.stderr);
    let left: serde_json::Value =
        serde_json::from_str(&home.run(&["images", "gc", "--json"]).stdout).expect("JSON");
    assert_eq!(left["layers"], serde_json::json!([]));
}

#[test]
fn gc_says_that_something_is_being_pulled_and_removes_nothing() {
    let home = Home::new("");
    let registry = TcpListener::bind("127.0.0.1:0").expect("a port");
    let image = format!("{}/silent:1", registry.local_addr().expect("it has one"));
    let mut pull = home.belljar(&["images", "pull", &image]).spawn().expect("it starts");
    // The registry was asked, and never answers.
    let _connection = registry.accept().expect("it is asked");
    let gc = home.run(&["images", "gc"]);
    pull.kill().expect("it is ours");
    pull.wait().expect("it is gone");
    assert_eq!(gc.code, 125, "{}", gc.stderr);
    assert!(gc.stderr.contains("something is being pulled or imported"), "{}", gc.stderr);
    assert!(gc.stderr.contains("try again when it is done"), "{}", gc.stderr);
    assert_eq!(home.run(&["images", "gc"]).code, 0, "who was killed holds nothing up");
}

#[test]
fn what_cannot_be_had_is_said_with_what_to_do() {
    let home = Home::new("");
    // Nothing listens there.
    let refused = home.run(&["images", "pull", "127.0.0.1:1/x:1"]);
    assert_eq!(refused.code, 125);
    assert!(refused.stderr.contains("the registry `127.0.0.1:1` cannot be reached"), "{}", refused.stderr);
    assert!(refused.stderr.contains("hint:"), "{}", refused.stderr);
    let json: serde_json::Value =
        serde_json::from_str(&home.run(&["images", "pull", "--json", "127.0.0.1:1/x:1"]).stdout)
            .expect("JSON");
    assert_eq!(json["error"]["code"], "registry_failed", "{json}");
    let floating = home.run(&["images", "pull", "alpine"]);
    assert!(
        floating.code != 0 && floating.stderr.contains("neither a digest nor a tag"),
        "{}",
        floating.stderr
    );
    let missing = home.run(&["images", "import", "/nowhere.tar", "x:1"]);
    assert!(missing.stderr.contains("cannot open `/nowhere.tar`"), "{}", missing.stderr);
    let file = home.path("no.tar");
    fs::write(&file, "hello").expect("a file can be written");
    let none = home.run(&["images", "import", file.to_str().expect("text"), "x:1"]);
    assert!(none.stderr.contains("is no archive of an image"), "{}", none.stderr);
}
