//! The JSON schema of the files, for editors.

/// As JSON. Written by hand, since it is more precise than the types, and needs no dependency; tests compare it with the parser.
pub fn schema() -> &'static str {
    include_str!("schema.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::known_keys;
    use belljar_spec::egress::{Mode, Protocol, groups};
    use belljar_spec::llm::UpstreamKind;
    use belljar_spec::{Assurance, BackendChoice};
    use serde_json::Value;
    use std::str::FromStr;

    fn read() -> Value {
        serde_json::from_str(schema()).expect("the schema is JSON")
    }

    fn sorted(words: impl IntoIterator<Item = String>) -> Vec<String> {
        let mut words: Vec<String> = words.into_iter().collect();
        words.sort();
        words
    }

    fn is<T: FromStr>(word: &str) -> bool {
        word.parse::<T>().is_ok()
    }

    fn words(value: &Value) -> Vec<String> {
        let words = value.as_array().expect("a list").iter();
        sorted(words.map(|word| word.as_str().expect("a word").to_string()))
    }

    #[test]
    fn the_schema_knows_the_keys_that_are_read() {
        let schema = read();
        let egress = &schema["properties"]["egress"];
        let rule = &egress["properties"]["rule"]["items"];
        let credential = &schema["properties"]["credential"]["additionalProperties"];
        let github = &schema["properties"]["github"];
        let llm = &schema["properties"]["llm"];
        let price = &llm["properties"]["price"]["additionalProperties"];
        for (header, table) in [
            ("", &schema),
            ("[egress]", egress),
            ("[[egress.rule]]\nhost = \"x\"", rule),
            ("[egress.proxy]", &egress["properties"]["proxy"]),
            ("[credential.x]", credential),
            ("[github]", github),
            ("[llm]", llm),
            ("[workspace]", &schema["properties"]["workspace"]),
            ("[agent]", &schema["properties"]["agent"]),
            ("[git]", &schema["properties"]["git"]),
            ("[llm.budget]", &llm["properties"]["budget"]),
            ("[llm.price.x]", price),
            ("[profile.x]", &schema["properties"]["profile"]["additionalProperties"]),
            ("[golden]", &schema["properties"]["golden"]),
            ("[daemon]", &schema["properties"]["daemon"]),
            ("[sandbox]", &schema["properties"]["sandbox"]),
            ("[images]", &schema["properties"]["images"]),
            ("[e2b]", &schema["properties"]["e2b"]),
        ] {
            let properties = table["properties"].as_object().expect("a table");
            assert_eq!(sorted(properties.keys().cloned()), sorted(known_keys(header)), "{header}");
            assert_eq!(table["additionalProperties"], false, "{header}");
            for (key, about) in properties {
                assert!(about["description"].is_string(), "{key} is described");
            }
        }
        assert_eq!(rule["required"], serde_json::json!(["host"]));
        assert_eq!(github["required"], serde_json::json!(["app", "installation", "key"]));
    }

    #[test]
    fn the_schema_knows_the_words_that_are_read() {
        let schema = read();
        let egress = &schema["properties"]["egress"]["properties"];
        let modes = || sorted(Mode::ALL.map(|mode| mode.to_string()));
        assert_eq!(words(&egress["mode"]["enum"]), modes());
        assert_eq!(words(&egress["widest"]["enum"]), modes());
        let known = sorted(groups().map(|group| group.name().to_string()));
        assert_eq!(words(&egress["groups"]["items"]["enum"]), known);
        let profile = &schema["properties"]["profile"]["additionalProperties"]["properties"];
        assert_eq!(words(&profile["egress"]["enum"]), modes());
        assert_eq!(words(&profile["groups"]["items"]["enum"]), known);
        assert!(words(&profile["backend"]["enum"]).iter().all(|word| is::<BackendChoice>(word)));
        assert!(words(&profile["at_least"]["enum"]).iter().all(|word| is::<Assurance>(word)));
        let protocols = sorted(Protocol::ALL.map(|protocol| protocol.to_string()));
        assert_eq!(words(&egress["rule"]["items"]["properties"]["protocols"]["items"]["enum"]), protocols);
        let kinds = sorted(UpstreamKind::ALL.map(|kind| kind.to_string()));
        assert_eq!(words(&schema["properties"]["llm"]["properties"]["kind"]["enum"]), kinds);
    }
}
