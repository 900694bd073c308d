//! Looks for placeholders in what a sandbox sends. Pure.

use super::forms::Forms;
use belljar_spec::secret::SecretName;
use std::sync::Arc;

/// Looks at a body as it passes, in any pieces.
pub(crate) struct Watch {
    placeholders: Vec<(SecretName, Arc<Forms>)>,
    longest: usize,
    /// The end of what came, shorter than any placeholder that it may be the beginning of.
    tail: Vec<u8>,
}

/// A placeholder was there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// Of which credential.
    pub(crate) credential: SecretName,
}

impl Watch {
    pub(crate) fn new(placeholders: Vec<(SecretName, Arc<Forms>)>) -> Watch {
        let longest = placeholders.iter().map(|(_, forms)| forms.longest()).max().unwrap_or(0);
        Watch { placeholders, longest, tail: Vec::new() }
    }

    /// Looks at the next piece. What is found must not be sent, and nothing after it.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Result<(), Found> {
        let keep = self.longest.saturating_sub(1);
        // What lies across the edge, then what lies within.
        let edge = self.tail.len();
        self.tail.extend_from_slice(&piece[..piece.len().min(keep)]);
        if edge > 0 {
            self.look(&self.tail)?;
        }
        self.look(piece)?;
        if piece.len() >= keep {
            self.tail.clear();
            self.tail.extend_from_slice(&piece[piece.len() - keep..]);
        } else {
            let over = self.tail.len().saturating_sub(keep);
            self.tail.drain(..over);
        }
        Ok(())
    }

    fn look(&self, text: &[u8]) -> Result<(), Found> {
        match self.placeholders.iter().find(|(_, forms)| forms.is_in(text)) {
            Some((credential, _)) => Err(Found { credential: credential.clone() }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn watch() -> Watch {
        let name = |text: &str| text.parse::<SecretName>().expect("a name");
        let forms = |text: &str| Arc::new(Forms::of(text.as_bytes(), text.as_bytes()));
        Watch::new(vec![(name("a"), forms("sk-0123456789")), (name("b"), forms("ghp_short"))])
    }

    proptest! {
        #[test]
        fn a_placeholder_is_found_wherever_it_is_cut(
            before in "[a-z -]{0,40}", after in "[a-z -]{0,40}", cuts in prop::collection::vec(0usize..100, 0..20),
        ) {
            let text = format!("{before}sk-0123456789{after}");
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.push(text.len());
            cuts.sort();
            let (mut watch, mut from, mut found) = (watch(), 0, false);
            for cut in cuts {
                found |= watch.feed(&text.as_bytes()[from..cut]).is_err();
                from = cut;
            }
            prop_assert!(found, "{}", text);
        }

        #[test]
        fn nothing_else_is_found(pieces in prop::collection::vec("(sk-|0123456|789|ghp_|shor|x){0,3}", 0..10)) {
            let text = pieces.concat();
            let mut watch = watch();
            let found = pieces.iter().any(|piece| watch.feed(piece.as_bytes()).is_err());
            prop_assert_eq!(found, text.contains("sk-0123456789") || text.contains("ghp_short"));
        }
    }
}
