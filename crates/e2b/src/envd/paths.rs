//! Paths as clients say them: relative to where the sandbox begins, which is the home unless its template names another folder; `~` for
//! the home; or absolute.

/// A path inside, absolute.
pub(crate) fn absolute(path: &str, home: &str, start: &str) -> String {
    let joined = match path {
        "" => start.to_string(),
        "~" => home.to_string(),
        path if path.starts_with('/') => path.to_string(),
        path => match path.strip_prefix("~/") {
            Some(rest) => format!("{home}/{rest}"),
            None => format!("{start}/{path}"),
        },
    };
    plain(&joined)
}

/// The same path without empty parts, `.` and `..`: what clients are told a file's path is. The kernel would follow a link before `..`;
/// no client names a path that way.
fn plain(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The last part of a path.
pub(crate) fn name(path: &str) -> &str {
    match path.trim_end_matches('/').rsplit_once('/') {
        Some((_, name)) if !name.is_empty() => name,
        _ => path,
    }
}

/// The folder that a path lies in.
pub(crate) fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}

pub(crate) fn join(folder: &str, name: &str) -> String {
    format!("{}/{name}", folder.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_and_plain() {
        for (path, expected) in [
            ("", "/home/user"),
            ("~", "/home/user"),
            ("~/a", "/home/user/a"),
            ("a//b/./c", "/home/user/a/b/c"),
            ("../x", "/home/x"),
            ("../../../x", "/x"),
            ("/etc/../a/", "/a"),
            ("/", "/"),
            ("~x", "/home/user/~x"),
        ] {
            assert_eq!(absolute(path, "/home/user", "/home/user"), expected, "{path}");
        }
        for (path, expected) in
            [("", "/app"), ("a", "/app/a"), ("~/a", "/home/user/a"), ("../a", "/a"), ("/b", "/b")]
        {
            assert_eq!(absolute(path, "/home/user", "/app"), expected, "{path}");
        }
        assert_eq!(
            (name("/a/b"), name("/"), parent("/a/b"), parent("/a"), parent("/")),
            ("b", "/", "/a", "/", "/")
        );
        assert_eq!((join("/", "a"), join("/b", "a")), ("/a".into(), "/b/a".into()));
    }
}
