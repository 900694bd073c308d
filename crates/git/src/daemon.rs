//! The first line of a `git://` connection: which service, of which repository (gitprotocol-pack(5), "Git Transport").

use thiserror::Error;

/// The request of a client of git's daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub service: Service,
    /// As sent, with the leading slash.
    pub path: String,
    /// The protocol version that the client asks for: 0, 1 or 2.
    pub version: u8,
}

/// Git's services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    UploadPack,
    ReceivePack,
}

impl Service {
    pub fn name(self) -> &'static str {
        match self {
            Service::UploadPack => "git-upload-pack",
            Service::ReceivePack => "git-receive-pack",
        }
    }
}

/// Not a request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DaemonError {
    #[error("not a request for a repository")]
    Malformed,
    #[error("there is no service `{0}`")]
    UnknownService(String),
}

/// Reads the data of the first packet: `git-upload-pack /repo\0host=x\0\0version=2\0`.
pub fn parse(line: &[u8]) -> Result<Request, DaemonError> {
    let (command, rest) = match line.iter().position(|byte| *byte == 0) {
        Some(end) => (&line[..end], &line[end + 1..]),
        None => (line.strip_suffix(b"\n").unwrap_or(line), &[][..]),
    };
    let text = std::str::from_utf8(command).map_err(|_| DaemonError::Malformed)?;
    let (service, path) = text.split_once(' ').ok_or(DaemonError::Malformed)?;
    let service = match service {
        "git-upload-pack" => Service::UploadPack,
        "git-receive-pack" => Service::ReceivePack,
        other => return Err(DaemonError::UnknownService(other.escape_debug().take(40).collect())),
    };
    if !path.starts_with('/') || path.contains(char::is_control) {
        return Err(DaemonError::Malformed);
    }
    Ok(Request { service, path: path.to_string(), version: version(rest) })
}

/// The words after the two NULs, such as `version=2`; servers skip unknown ones.
fn version(rest: &[u8]) -> u8 {
    let mut words = rest.split(|byte| *byte == 0).skip_while(|word| !word.is_empty());
    let version = words.find_map(|word| word.strip_prefix(b"version="));
    match version {
        Some(b"1") => 1,
        Some(b"2") => 2,
        _ => 0,
    }
}

impl Request {
    /// Writes it as a client does.
    pub fn bytes(&self, host: &str) -> Vec<u8> {
        let mut line = format!("{} {}\0host={host}\0", self.service.name(), self.path);
        if self.version > 0 {
            line += &format!("\0version={}\0", self.version);
        }
        crate::pkt::data(line.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_as_git_writes_them() {
        for (line, service, version) in [
            (&b"git-upload-pack /repo\0host=127.0.0.1:9418\0\0version=2\0"[..], Service::UploadPack, 2),
            (b"git-receive-pack /repo\0host=x\0", Service::ReceivePack, 0),
            (b"git-upload-pack /repo\0host=x\0\0foo=bar\0version=1\0", Service::UploadPack, 1),
            (b"git-upload-pack /repo\0host=x\0\0version=9\0", Service::UploadPack, 0),
            (b"git-upload-pack /repo\n", Service::UploadPack, 0),
            (b"git-upload-pack /repo\0version=2\0", Service::UploadPack, 0),
        ] {
            let expected = Request { service, path: "/repo".to_string(), version };
            assert_eq!(parse(line), Ok(expected), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn others_are_refused() {
        for line in [
            &b""[..],
            b"git-upload-pack",
            b"git-upload-pack repo\0",
            b"git-upload-pack  /repo\0",
            b"git-upload-archive /repo\0host=x\0",
            b"git-upload-pack /re\npo\0",
            b"git-upload-pack /\xff\0",
        ] {
            assert!(parse(line).is_err(), "{}", line.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }

        #[test]
        fn what_is_written_is_read(path in "/[ -~]{0,20}", version in 0u8..=2, receives: bool) {
            let service = if receives { Service::ReceivePack } else { Service::UploadPack };
            let request = Request { service, path, version };
            prop_assert_eq!(parse(&request.bytes("h:1")[4..]), Ok(request));
        }
    }
}
