//! Archives by the byte: what no archiver would write must be written too.

use belljar_images::Digest;
use std::fs;
use std::path::Path;

/// An archive in the making.
#[derive(Default, Clone)]
pub(crate) struct Tar(pub(crate) Vec<u8>);

/// One header, with whatever is in it.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) name: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) size: u64,
    pub(crate) mtime: u64,
}

impl Header {
    pub(crate) fn new(kind: u8, name: impl AsRef<[u8]>) -> Header {
        let name = name.as_ref().to_vec();
        let mode = if kind == b'5' { 0o755 } else { 0o644 };
        Header { name, link: Vec::new(), kind, mode, uid: 0, size: 0, mtime: 1_000_000_000 }
    }

    fn block(&self) -> [u8; 512] {
        let mut block = [0; 512];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.name[..self.name.len().min(100)]);
        put(100, format!("{:07o}", self.mode).as_bytes());
        put(108, format!("{:07o}", self.uid).as_bytes());
        put(116, format!("{:07o}", self.uid).as_bytes());
        if self.size < 1 << 33 {
            put(124, format!("{:011o}", self.size).as_bytes());
        } else {
            put(124, &[0x80, 0, 0, 0]);
            put(128, &self.size.to_be_bytes());
        }
        put(136, format!("{:011o}", self.mtime).as_bytes());
        put(156, &[self.kind]);
        put(157, &self.link[..self.link.len().min(100)]);
        put(257, b"ustar\x0000");
        put(148, b"        ");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block
    }
}

impl Tar {
    /// A header and what follows, as they are.
    pub(crate) fn raw(mut self, header: &Header, content: &[u8]) -> Tar {
        self.0.extend(header.block());
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn file(self, name: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Tar {
        self.file_with(Header::new(b'0', name), content)
    }

    pub(crate) fn file_with(self, header: Header, content: impl AsRef<[u8]>) -> Tar {
        let size = content.as_ref().len() as u64;
        self.raw(&Header { size, ..header }, content.as_ref())
    }

    pub(crate) fn directory(self, name: impl AsRef<[u8]>) -> Tar {
        self.raw(&Header::new(b'5', name), &[])
    }

    pub(crate) fn symlink(self, name: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Tar {
        self.raw(&Header { link: to.as_ref().to_vec(), ..Header::new(b'2', name) }, &[])
    }

    pub(crate) fn hard_link(self, name: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Tar {
        self.raw(&Header { link: to.as_ref().to_vec(), ..Header::new(b'1', name) }, &[])
    }

    /// An extended header for what follows.
    pub(crate) fn pax(self, records: &[(&str, &[u8])]) -> Tar {
        let mut lines = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let mut length = rest + 1;
            while length != rest + length.to_string().len() {
                length = rest + length.to_string().len();
            }
            lines.extend(format!("{length} {key}=").into_bytes());
            lines.extend(*value);
            lines.push(b'\n');
        }
        self.file_with(Header::new(b'x', "pax"), lines)
    }

    /// GNU's long name for what follows.
    pub(crate) fn long_name(self, name: impl AsRef<[u8]>) -> Tar {
        self.file_with(Header::new(b'L', "././@LongLink"), [name.as_ref(), b"\0"].concat())
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    use flate2::{Compression, write::GzEncoder};
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

/// A configuration of an image with these layers, of this machine's kind.
pub(crate) fn config(layers: &[&[u8]]) -> String {
    let ids: Vec<String> = layers.iter().map(|layer| format!("\"{}\"", Digest::of(layer))).collect();
    let here = belljar_images::Platform::here();
    format!(
        r#"{{"architecture":"{}","os":"linux","config":{{"Env":["PATH=/bin","A=b=c","BAD"],"User":"1000:1000","WorkingDir":"/srv",
        "Entrypoint":["/bin/x"],"Cmd":["y"]}},"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
        here.architecture,
        ids.join(",")
    )
}

/// What `docker save` would write of an image with these layers.
pub(crate) fn saved(layers: &[&[u8]]) -> Vec<u8> {
    let config = config(layers);
    let names: Vec<String> = (0..layers.len()).map(|number| format!("\"{number}/layer.tar\"")).collect();
    let manifest = format!(r#"[{{"Config":"c.json","RepoTags":["x:1"],"Layers":[{}]}}]"#, names.join(","));
    let mut tar = Tar::default().file("c.json", config).file("manifest.json", manifest);
    for (number, layer) in layers.iter().enumerate() {
        tar = tar.file(format!("{number}/layer.tar"), layer);
    }
    tar.end()
}

/// Everything in a directory: paths, kinds, modes, links and contents. Two that are equal are the same for every reader.
pub(crate) fn everything(directory: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut found = Vec::new();
    let mut left = vec![directory.to_path_buf()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        let to = if meta.is_symlink() { fs::read_link(&path).unwrap() } else { Default::default() };
        found.push(format!(
            "{:?} {:o} {}:{} {} {:?} {:?}",
            path.strip_prefix(directory).unwrap(),
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.rdev(),
            to,
            content
        ));
        if meta.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found.sort();
    found
}
