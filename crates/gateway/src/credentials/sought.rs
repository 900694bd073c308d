//! Finds values in text without telling anything of them by the time that it takes.
//!
//! A program inside can have a server repeat any text, and measure how long its answer takes. A search that compares the text with
//! a value letter by letter takes longer the more of them fit. Here every window of the text is reduced to a number, by a key
//! that is drawn anew for each list, and the number of a window is compared with those of the forms: the work is the same for
//! every text, until a whole form is there. Pure, but for the key.

use super::forms::Forms;
use super::held::{self, Class};
use super::wrapped::Joined;
use belljar_vault::Secret;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use zeroize::Zeroizing;

/// Every value that a sandbox's servers may know: one list for all of its streams, which grows while they are open.
#[derive(Default)]
pub struct Known(Mutex<List>);

#[derive(Default)]
struct List {
    values: Vec<Secret>,
    forms: Vec<Arc<Forms>>,
    now: Arc<Sought>,
}

impl Known {
    /// One more, if it is new, with what is put in its place. It counts for what arrives from now on, on streams that are open
    /// too, and is never forgotten: a server may still say it when it is no longer used.
    pub fn remember(&self, value: &Secret, mask: &[u8]) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.values.contains(value) {
            return;
        }
        list.values.push(value.clone());
        list.forms.push(Arc::new(Forms::of(value.reveal(), mask)));
        list.now = Arc::new(Sought::new(&list.forms));
    }

    pub(crate) fn now(&self) -> Arc<Sought> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner).now)
    }
}

/// The values at one moment, as they are searched for.
#[derive(Default)]
pub(crate) struct Sought {
    /// What is put in place of each form, by its number.
    puts: Vec<Vec<u8>>,
    everywhere: Windows,
    /// Forms of base64 alone, for lines that are joined.
    in_base64: Windows,
    /// Forms in lower case, as the names of headers have them.
    in_names: Windows,
    class: Class,
    reach: usize,
    longest_in_base64: usize,
}

/// A place where a form was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hit {
    /// Where it begins.
    pub(crate) at: usize,
    pub(crate) form: usize,
    /// Where each of its letters stands, if there are line breaks between them.
    pub(crate) letters: Option<Vec<usize>>,
}

impl Sought {
    fn new(values: &[Arc<Forms>]) -> Sought {
        let key = RandomState::new().hash_one(values.len()) | 1;
        let mut sought = Sought { class: Class::default(), ..Sought::default() };
        let [mut everywhere, mut in_base64, mut in_names] = [const { Vec::new() }; 3];
        let mut longest = 0;
        for form in values.iter().flat_map(|forms| forms.iter()) {
            let number = sought.puts.len();
            sought.puts.push(form.put.clone());
            everywhere.push((form.find.clone(), number));
            in_names.push((Zeroizing::new(form.find.to_ascii_lowercase()), number));
            longest = longest.max(form.find.len());
            sought.class = sought.class.with(&form.find);
            if form.is_base64 {
                in_base64.push((form.find.clone(), number));
                sought.longest_in_base64 = sought.longest_in_base64.max(form.find.len());
            }
        }
        sought.reach = held::reach(longest, sought.longest_in_base64);
        sought.everywhere = Windows::new(everywhere, key);
        sought.in_base64 = Windows::new(in_base64, key);
        sought.in_names = Windows::new(in_names, key);
        sought
    }

    /// Which letters may stand in a form.
    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// How many bytes a form may have, line breaks included; rounded up, so that it says little of a value's length.
    pub(crate) fn reach(&self) -> usize {
        self.reach
    }

    /// Every place where a value is, in every form, also where they overlap; by where they begin. `breaks` are the line breaks
    /// that may stand within base64.
    pub(crate) fn hits(&self, text: &[u8], breaks: &[(usize, usize)]) -> Vec<Hit> {
        let mut hits = Vec::new();
        for run in held::runs(text, self.class) {
            let begin = run.start;
            self.everywhere.find(&text[run], |at, form| {
                hits.push(Hit { at: begin + at, form, letters: None });
            });
        }
        for joined in Joined::all(text, breaks, self.longest_in_base64) {
            self.in_base64.find(&joined.letters, |at, form| {
                let letters = joined.bindings[at..at + self.puts[form].len()].to_vec();
                hits.push(Hit { at: letters[0], form, letters: Some(letters) });
            });
        }
        hits.sort();
        hits
    }

    /// Is a value part of this name, whatever the case of its letters?
    pub(crate) fn is_in_name(&self, name: &str) -> bool {
        let mut found = false;
        self.in_names.find(name.to_ascii_lowercase().as_bytes(), |_, _| found = true);
        found
    }

    /// Writes over what was found. Of two that overlap the later is written over the earlier.
    pub(crate) fn mask(&self, hits: &[Hit], text: &mut [u8]) {
        for hit in hits {
            let put = &self.puts[hit.form];
            match &hit.letters {
                Some(letters) => letters.iter().zip(put).for_each(|(binding, byte)| text[*binding] = *byte),
                None => text[hit.at..hit.at + put.len()].copy_from_slice(put),
            }
        }
    }
}

/// Windows of text, by the lengths that forms have.
#[derive(Default)]
struct Windows {
    key: u64,
    lengths: Vec<Length>,
}

/// The forms of one length.
struct Length {
    length: usize,
    /// The key to the power of the length.
    power: u64,
    forms: Vec<(u64, usize, Zeroizing<Vec<u8>>)>,
}

impl Windows {
    fn new(forms: Vec<(Zeroizing<Vec<u8>>, usize)>, key: u64) -> Windows {
        let mut lengths: BTreeMap<usize, Length> = BTreeMap::new();
        for (form, number) in forms {
            let length = form.len();
            let power = key.wrapping_pow(length as u32);
            let of_length =
                lengths.entry(length).or_insert_with(|| Length { length, power, forms: Vec::new() });
            of_length.forms.push((digest(&form, key), number, form));
        }
        Windows { key, lengths: lengths.into_values().collect() }
    }

    /// Calls for each window that is a form, with where it begins and which it is.
    fn find(&self, text: &[u8], mut found: impl FnMut(usize, usize)) {
        self.suspects(text, |at, form, find| {
            if text[at..at + find.len()] == *find {
                found(at, form);
            }
        });
    }

    /// Calls for each window that has the number of a form: all that is ever compared letter by letter.
    fn suspects(&self, text: &[u8], mut suspect: impl FnMut(usize, usize, &[u8])) {
        for Length { length, power, forms } in &self.lengths {
            if text.len() < *length {
                break;
            }
            let mut number = digest(&text[..*length], self.key);
            for at in 0..=text.len() - length {
                if at > 0 {
                    let (gone, come) = (text[at - 1], text[at + length - 1]);
                    number = number
                        .wrapping_mul(self.key)
                        .wrapping_add(u64::from(come))
                        .wrapping_sub(power.wrapping_mul(u64::from(gone)));
                }
                // All of the number, so that chance or a likeness makes no difference.
                for (_, form, find) in forms.iter().filter(|(own, ..)| *own == number) {
                    suspect(at, *form, find);
                }
            }
        }
    }
}

/// A number for a window: its bytes as the digits of a polynomial (Karp and Rabin, 1987).
fn digest(window: &[u8], key: u64) -> u64 {
    window.iter().fold(0, |number: u64, byte| number.wrapping_mul(key).wrapping_add(u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sought(values: &[&str]) -> Sought {
        let forms = values.iter().map(|value| Arc::new(Forms::of(value.as_bytes(), b"*")));
        Sought::new(&forms.collect::<Vec<_>>())
    }

    #[test]
    fn a_name_is_compared_without_case() {
        let sought = sought(&["abCD-efgh"]);
        assert!(sought.is_in_name("x-abcd-efgh") && sought.is_in_name("ABcd-efghi"));
        assert!(!sought.is_in_name("x-abcd-efg") && !sought.is_in_name(""));
    }

    #[test]
    fn what_is_counted_depends_on_the_shape_of_a_value_alone() {
        let count = |value: &str| {
            let sought = sought(&[value]);
            let lengths: Vec<(usize, usize)> =
                sought.everywhere.lengths.iter().map(|one| (one.length, one.forms.len())).collect();
            (lengths, sought.reach, sought.class)
        };
        // In base64, the one has letters in which the two alphabets differ, and the other has none.
        for (one, two) in [("zzz~~~zz", "aaa~~~aa"), ("sk-abcdefgh", "sk-zyxwvuts"), ("a+b/c=de", "z+y/x=wv")]
        {
            assert_eq!(count(one), count(two), "{one} {two}");
        }
    }

    /// The work for a text is a step for each window and form, and one comparison for each whole form: a guess of all but a letter
    /// costs as much as a guess of nothing.
    #[test]
    fn no_letter_of_a_guess_is_compared_until_all_of_it_is_right() {
        let sought = sought(&["ghp_R34lS3cretV4lueQ7zx9PmK2bT5", "a+b/c=de:fgh\"ij"]);
        for windows in [&sought.everywhere, &sought.in_base64, &sought.in_names] {
            let compared = |text: &[u8]| {
                let mut count = 0;
                windows.suspects(text, |_, _, _| count += 1);
                count
            };
            for (_, _, find) in windows.lengths.iter().flat_map(|length| &length.forms) {
                assert!(compared(find) > 0);
                for end in 0..find.len() {
                    let mut almost = find.to_vec();
                    almost[end] ^= 1;
                    assert_eq!(compared(&almost), 0, "all but letter {end}");
                    let begun = [&find[..end], b" "].concat().repeat(20);
                    assert_eq!(compared(&begun), 0, "{end} letters, over and over");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn everything_that_is_there_is_found(text in "(abcdefgh|ijklmnop|[a-p]|,){0,20}") {
            let sought = sought(&["abcdefgh", "ijklmnop"]);
            let plain = |value: &str| text.match_indices(value).count();
            prop_assert_eq!(sought.hits(text.as_bytes(), &[]).len(), plain("abcdefgh") + plain("ijklmnop"));
        }
    }
}
