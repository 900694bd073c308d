//! The agent's part of docs/tutorial.md, whose other steps run with the documentation's transcripts: the same repository, the same
//! command line, a model that plays the fix.

use belljar_agent::stop::StopReason;
use belljar_tests_agents::{Job, for_agents};
use belljar_tests_hosts::Step;
use std::fs;
use std::process::Command;

for_agents! {
    the_tutorials_bug_is_fixed_on_a_branch: claude codex;
}

const TUTORIAL: &str = include_str!("../../../../docs/tutorial.md");
const ARGS: [&str; 4] = ["--branch", "fix/average", "--budget", "turns=20,time=10m"];

fn the_tutorials_bug_is_fixed_on_a_branch(agent: &str) {
    let (_, run) = TUTORIAL.split_once("\n## 3. The run\n").unwrap();
    let (command, _) = run.split_once("--prompt").unwrap();
    assert!(command.contains(&format!("belljar agent run claude {}", ARGS.join(" "))), "{command}");
    let fix = "sed -i 's/(len(numbers) - 1)/len(numbers)/' average.py && python3 test_average.py && git commit -qam 'Fix the average' && git push";
    let job = Job::script(agent, [Step::run(fix), Step::say("The divisor was one too small.")]).args(ARGS);
    for name in ["average.py", "test_average.py"] {
        let (_, text) = TUTORIAL.split_once(&format!("cat > {name} <<'PY'\n")).unwrap();
        fs::write(job.work().join(name), text.split_once("\nPY\n").unwrap().0.to_string() + "\n").unwrap();
    }
    job.git(&["add", "."]);
    job.git(&["commit", "-qm", "An average, and a test"]);
    let before = job.git(&["rev-parse", "main"]);

    let done = job.run();
    assert_eq!((done.code, done.stop()), (0, StopReason::Success), "{}", done.stderr);
    assert_eq!(job.git(&["log", "--format=%s", "main..fix/average"]), "Fix the average\n");
    // What the reader does next.
    assert_eq!(
        (job.git(&["rev-parse", "main"]), job.git(&["status", "--porcelain"])),
        (before, String::new())
    );
    job.git(&["switch", "-q", "fix/average"]);
    let test = Command::new("python3").arg("test_average.py").current_dir(job.work()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&test.stdout), "ok\n");
}
