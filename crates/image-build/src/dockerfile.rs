//! What a repository's Dockerfile is made from, as far as it has to be known before a build. Not a reader of the language: what it
//! does not understand, it leaves to Docker.

/// The images that stages start from, with this tag for `BASE_IMAGE_TAG`; stages that are named in the file are none.
pub(super) fn starts_from(text: &str, base_tag: &str) -> Vec<String> {
    let mut stages: Vec<String> = Vec::new();
    let mut images = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace().filter(|word| !word.starts_with("--"));
        if !words.next().is_some_and(|word| word.eq_ignore_ascii_case("FROM")) {
            continue;
        }
        let Some(image) = words.next() else { continue };
        let image = image.trim_matches(['"', '\'']);
        let image = image.replace("${BASE_IMAGE_TAG}", base_tag).replace("$BASE_IMAGE_TAG", base_tag);
        if !stages.iter().any(|stage| stage.eq_ignore_ascii_case(&image)) {
            images.push(image);
        }
        if words.next().is_some_and(|word| word.eq_ignore_ascii_case("AS")) {
            stages.extend(words.next().map(String::from));
        }
    }
    images
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stages_start_from_is_found() {
        let text = "# FROM no\nARG BASE_IMAGE_TAG=latest\nfrom --platform=linux/amd64 golang:1 AS tools\nRUN echo FROM x\n\
            FROM belljar-base:${BASE_IMAGE_TAG}\nCOPY --from=tools /x /x\nFROM Tools\nFROM \"belljar-base:$BASE_IMAGE_TAG\" as last\n";
        assert_eq!(starts_from(text, "v2"), ["golang:1", "belljar-base:v2", "belljar-base:v2"]);
        assert!(starts_from("", "v2").is_empty());
    }
}
