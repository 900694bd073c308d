//! What another root costs: one command in a new sandbox with the host's system, with a directory, and with an image of several
//! layers that is here already. The ratio to `host` is what counts.

use crate::cold::{WARM_UP, turn};
use crate::peers::{belljar, works};
use belljar_bench_sample::{Case, print};
use std::error::Error;
use std::path::Path;
use std::process::Command;

pub(crate) fn run(runs: usize) -> Result<(), Box<dyn Error>> {
    let place = std::env::temp_dir().join(format!("belljar-bench-roots-{}", std::process::id()));
    let outcome = compare(&place, runs);
    let _ = std::fs::remove_dir_all(&place);
    outcome
}

fn compare(place: &Path, runs: usize) -> Result<(), Box<dyn Error>> {
    let belljar = belljar()?.display().to_string();
    let made = Command::new("sh").args(["-c", SYSTEM, "sh"]).arg(place).arg(IMAGE).status();
    if !made.is_ok_and(|status| status.success()) {
        println!("roots: no static busybox here");
        return Ok(());
    }
    let words = |more: &[&str]| -> Vec<String> {
        let all = ["run"].iter().chain(more).chain(&["--", "/bin/true"]);
        std::iter::once(belljar.clone()).chain(all.map(ToString::to_string)).collect()
    };
    let directory = place.join("root").display().to_string();
    let mut roots = vec![("host", words(&[])), ("directory", words(&["--root", &directory]))];
    let archive = place.join("image.tar").display().to_string();
    if works(&[belljar.clone(), "images".into(), "import".into(), archive, IMAGE.into()]) {
        roots.push(("image, 5 layers", words(&["--image", IMAGE])));
    }
    let mut cases: Vec<Case> = roots.iter().map(|(name, _)| Case::new(*name)).collect();
    for round in 0..runs + WARM_UP {
        for (case, (_, words)) in cases.iter_mut().zip(&roots) {
            turn(case, words, round)?;
        }
    }
    print("Roots: one command in a new sandbox, from exec to exit", &cases, "host");
    works(&[belljar, "images".into(), "rm".into(), IMAGE.into()]);
    Ok(())
}

const IMAGE: &str = "belljar-bench/roots:1";
/// A system of busybox at `$1/root`, and the same with four small layers over it as `docker save` writes it.
const SYSTEM: &str = r#"set -e
busybox=$(command -v busybox)
! ldd "$busybox" >/dev/null 2>&1
mkdir -p "$1/root/bin" "$1/root/etc" "$1/image"
cp "$busybox" "$1/root/bin/busybox"
for name in sh true; do ln -s busybox "$1/root/bin/$name"; done
layers= ids=
for number in 0 1 2 3 4; do
    from="$1/root"
    if [ "$number" != 0 ]; then from="$1/layer$number"; mkdir -p "$from/opt"; echo "$number" > "$from/opt/$number"; fi
    tar --owner=0 --group=0 -cf "$1/image/$number.tar" -C "$from" .
    id=$(sha256sum "$1/image/$number.tar" | cut -d' ' -f1)
    layers="$layers${layers:+,}\"$number.tar\""
    ids="$ids${ids:+,}\"sha256:$id\""
done
case $(uname -m) in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) arch=$(uname -m) ;; esac
printf '{"architecture":"%s","os":"linux","config":{},"rootfs":{"type":"layers","diff_ids":[%s]}}' "$arch" "$ids" > "$1/image/config.json"
printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":[%s]}]' "$2" "$layers" > "$1/image/manifest.json"
tar -cf "$1/image.tar" -C "$1/image" .
"#;
