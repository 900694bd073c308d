//! `belljar images` without a word: what is here.

use super::super::print;
use super::super::table::{age, since, size, table};
use belljar_images::{Listed, Store};
use belljar_spec::SandboxError;

pub(super) fn list(store: &Store, as_json: bool) -> Result<u8, SandboxError> {
    let images = store.list()?;
    if as_json {
        let text = serde_json::to_string_pretty(&images).expect("plain data can be written as JSON");
        return print(format!("{text}\n").as_bytes());
    }
    if images.is_empty() {
        eprintln!("belljar: there is no image here");
        eprintln!(
            "  hint: `belljar images pull alpine:3.22` gets one, and so does `belljar run --root oci:alpine:3.22`"
        );
        return Ok(0);
    }
    let rows: Vec<[String; 6]> = images.iter().map(row).collect();
    print(table(["IMAGE", "DIGEST", "SIZE", "OWN", "USED", "STATE"], &rows).as_bytes())
}

fn row(image: &Listed) -> [String; 6] {
    let state = match (image.whole, image.in_use) {
        (false, _) => "incomplete",
        (true, true) => "in use",
        (true, false) => "kept",
    };
    [
        // In full: by this name it can be removed.
        image.name.clone(),
        image.digest.hex()[..12].to_string(),
        size(image.bytes),
        size(image.own_bytes),
        age(since(image.last_used as i64)),
        state.into(),
    ]
}
