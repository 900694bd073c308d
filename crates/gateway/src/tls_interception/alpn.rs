//! Which HTTP is spoken, by what a hello offers (RFC 7301). Pure.

use crate::hello::ClientHello;

/// A version of HTTP, as TLS names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Alpn {
    Http1,
    Http2,
}

impl Alpn {
    /// As it is written.
    pub(crate) fn name(self) -> &'static [u8] {
        match self {
            Alpn::Http1 => b"http/1.1",
            Alpn::Http2 => b"h2",
        }
    }

    pub(crate) fn named(name: &[u8]) -> Option<Alpn> {
        [Alpn::Http1, Alpn::Http2].into_iter().find(|alpn| alpn.name() == name)
    }
}

/// What a client offers, as far as we can pass it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    /// In the client's order; never empty.
    protocols: Vec<Alpn>,
}

impl Offer {
    /// `None` where there is no HTTP in it.
    pub(super) fn of(hello: &ClientHello) -> Option<Offer> {
        if hello.alpn.iter().next().is_none() {
            // What clients mean that say nothing.
            return Some(Offer { protocols: vec![Alpn::Http1] });
        }
        let protocols: Vec<Alpn> = hello.alpn.iter().filter_map(Alpn::named).collect();
        (!protocols.is_empty()).then_some(Offer { protocols })
    }

    /// What the server is offered.
    pub(super) fn protocols(&self) -> &[Alpn] {
        &self.protocols
    }

    /// Can the client speak what the server chose? One that chooses nothing speaks HTTP/1.1.
    pub(super) fn fits(&self, chosen: Option<Alpn>) -> Result<(), &'static str> {
        match chosen {
            None if !self.protocols.contains(&Alpn::Http1) => Err(NOTHING_IN_COMMON),
            None | Some(_) => Ok(()),
        }
    }

    /// What a refusal is told in.
    pub(super) fn simplest(&self) -> Alpn {
        if self.protocols.contains(&Alpn::Http1) { Alpn::Http1 } else { Alpn::Http2 }
    }
}

/// In HTTP/2 and HTTP/1.1 alike: one of them speaks only the one, and the other only the other.
pub(super) const NOTHING_IN_COMMON: &str =
    "the server speaks no HTTP that the client does: let the client speak both HTTP/1.1 and HTTP/2";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hello::{self, Hello};

    fn offer(alpn: &[&str]) -> Option<Offer> {
        let name = |name: &&str| [&[name.len() as u8], name.as_bytes()].concat();
        let names: Vec<u8> = alpn.iter().flat_map(name).collect();
        let mut extensions = Vec::new();
        if !names.is_empty() {
            let list = [&(names.len() as u16).to_be_bytes()[..], &names].concat();
            extensions = [&[0, 16][..], &(list.len() as u16).to_be_bytes(), &list].concat();
        }
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[0, 0, 2, 0x13, 1, 1, 0],
            &(extensions.len() as u16).to_be_bytes(),
            &extensions,
        ]
        .concat();
        let message = [&[1, 0, 0, body.len() as u8][..], &body].concat();
        let record = [&[22, 3, 1, 0, message.len() as u8][..], &message].concat();
        match hello::read(&record) {
            Hello::Complete(hello) => Offer::of(&hello),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_offered_is_what_both_know() {
        use Alpn::{Http1, Http2};
        for (alpn, protocols, simplest) in [
            (&[][..], &[Http1][..], Http1),
            (&["http/1.1"], &[Http1], Http1),
            (&["h2", "http/1.1"], &[Http2, Http1], Http1),
            (&["h3", "h2"], &[Http2], Http2),
        ] {
            let offer = offer(alpn).expect("an offer");
            assert_eq!(offer.protocols(), protocols);
            assert_eq!(offer.simplest(), simplest);
        }
        assert_eq!(offer(&["postgresql"]), None);
        assert!(offer(&["h2"]).expect("an offer").fits(None).is_err());
        assert!(offer(&["h2", "http/1.1"]).expect("an offer").fits(None).is_ok());
        assert!(offer(&[]).expect("an offer").fits(None).is_ok());
    }
}
