//! A push as an agent may write it: what is read is written as it was meant, and nothing of it is lost.
#![no_main]

use belljar_git::advertisement::{AddCapability, Advertisement};
use belljar_git::push::Collect;
use belljar_git::{daemon, pkt};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut collect = Collect::default();
    if collect.feed(bytes) == Ok(true)
        && let Ok((push, pack)) = collect.finish()
    {
        assert!(bytes.ends_with(&pack));
        let mut again = Collect::default();
        // Without a command there is no place for capabilities; a probe has none.
        if !push.updates.is_empty() {
            assert_eq!(again.feed(&push.bytes()), Ok(true));
            let (second, rest) = again.finish().expect("all of it was fed");
            assert_eq!((second, rest.len()), (push, 0));
        }
    }
    let _ = pkt::all(bytes);
    let _ = daemon::parse(bytes);
    if let Ok(list) = Advertisement::parse(bytes) {
        let again = Advertisement::parse(&list.bytes()).expect("a list that was just written");
        assert_eq!(again, list);
    }
    let mut add = AddCapability::new("no-thin");
    let mut passed = add.feed(bytes);
    passed.extend(add.finish());
    assert!(passed.len() == bytes.len() || passed.len() == bytes.len() + 8);
});
