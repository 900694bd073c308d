//! Names, patterns and rules as people write them.
#![no_main]

use belljar_spec::egress::{HostName, HostPattern, Rule, spelled_address};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|texts: (&str, &str)| {
    let (pattern, name) = texts;
    let name = name.parse::<HostName>();
    if let Ok(name) = &name {
        // A name is written in one way only, and is never an address.
        assert_eq!(name.as_str().parse().as_ref(), Ok(name));
        assert!(spelled_address(name.as_str()).is_none());
        assert!(HostPattern::covering(name).matches(name));
    }
    if let Ok(pattern) = pattern.parse::<HostPattern>() {
        assert_eq!(pattern.to_string().parse().as_ref(), Ok(&pattern));
        assert!(pattern.matches(pattern.name()));
        if let Ok(name) = &name
            && pattern.matches(name)
        {
            assert!(name.as_str().ends_with(pattern.name().as_str()));
        }
    }
    if let Ok(rule) = pattern.parse::<Rule>() {
        assert!(rule.matches(rule.host.name(), None));
        assert!(!rule.openings.is_empty());
    }
});
