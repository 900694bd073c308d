//! A sandbox that is kept has the folder that was allowed when it was made, and not where a link that came later leads.

use belljar_tests_daemon::{Home, Sandbox};
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;

#[test]
fn a_sandbox_that_is_started_again_follows_no_link_that_came_later() {
    let home = Home::new();
    let daemon = home.start();
    let owner = home.client();
    let top = tempfile::tempdir().unwrap();
    let top = top.path().canonicalize().unwrap();
    // Another sandbox that works in a folder above can put the link there.
    for backend in ["native", "landlock"] {
        let (folder, elsewhere) = (top.join(backend), top.join(format!("not-{backend}")));
        fs::create_dir(&folder).unwrap();
        fs::create_dir(&elsewhere).unwrap();
        let request = json!({ "backend": backend, "workspace": { "folder": folder } });
        let request = json!({ "key": backend, "persistent": true, "sandbox": request });
        // Where a backend does not work, nothing is to be shown of it.
        if owner.post("/v1/sandboxes", &request).status != 201 {
            continue;
        }
        let sandbox = Sandbox::create(&owner, &json!({ "key": backend }));
        assert_eq!(sandbox.run("echo here > file").1, 0);
        owner.post(&sandbox.path("/stop"), &json!({})).ok();
        fs::rename(&folder, top.join(format!("{backend}-moved"))).unwrap();
        symlink(&elsewhere, &folder).unwrap();
        owner.post("/v1/sandboxes", &json!({ "key": backend })).refused(409, "path_moved");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "{backend}");
    }
    drop(daemon);
}
