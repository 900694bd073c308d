//! The caller's language and time zone, as far as the system knows them. A locale that is not there makes programs complain, and
//! fall back to one without UTF-8: then it is left out, and `C.UTF-8` holds. Only for the host's own system, whose locales and time
//! zones are seen inside; other roots say themselves which they have.

use belljar_spec::{REGIONAL_VARIABLES, TIME_ZONE_VARIABLE};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Its variables, each with a locale or a time zone that is there.
pub(super) fn of_the_caller() -> Vec<(OsString, OsString)> {
    let known = |name: &&str| {
        std::env::var(name).ok().filter(|value| match *name {
            TIME_ZONE_VARIABLE => is_time_zone(value, Path::new(TIME_ZONES)),
            _ => is_there(value, Path::new(LOCALES)),
        })
    };
    let found = REGIONAL_VARIABLES.iter().filter_map(|name| Some((name.into(), known(name)?.into())));
    found.collect()
}

/// Whether a system has a time zone, by its name (`Europe/Berlin`): neither a path nor a rule.
fn is_time_zone(name: &str, zones: &Path) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-+/".contains(&byte);
    !name.starts_with('/')
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(is_plain)
        && zones.join(name).is_file()
}

/// Whether a system has a locale: by itself, as a directory, or in its archive.
fn is_there(locale: &str, locales: &Path) -> bool {
    if ["C", "POSIX", "C.UTF-8", "C.utf8"].contains(&locale) {
        return true;
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.@".contains(&byte);
    if locale.is_empty()
        || locale.len() > MAX_NAME_BYTES
        || !locale.bytes().all(is_plain)
        || locale.contains("..")
    {
        return false;
    }
    let names = [locale.to_string(), as_it_is_kept(locale)];
    names.iter().any(|name| locales.join(name).join("LC_CTYPE").is_file())
        || names_in_archive(&locales.join("locale-archive")).is_some_and(|archive| {
            archive.split(|byte| *byte == 0).any(|known| names.iter().any(|name| name.as_bytes() == known))
        })
}

/// `de_DE.UTF-8@euro` is kept as `de_DE.utf8@euro`.
fn as_it_is_kept(locale: &str) -> String {
    let (name, modifier) = locale.split_once('@').map_or((locale, None), |(name, rest)| (name, Some(rest)));
    let mut kept = match name.split_once('.') {
        None => name.to_string(),
        Some((language, letters)) => {
            let plain = letters.chars().filter(char::is_ascii_alphanumeric);
            format!("{language}.{}", plain.collect::<String>().to_ascii_lowercase())
        }
    };
    kept.extend(modifier.map(|modifier| format!("@{modifier}")));
    kept
}

/// The names in an archive of locales, each before a zero byte (glibc, locale/locarchive.h).
fn names_in_archive(path: &Path) -> Option<Vec<u8>> {
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let file = File::open(path).ok()?;
    let mut head = [0; 28];
    file.read_exact_at(&mut head, 0).ok()?;
    let number = |index: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(head.get(4 * index..4 * index + 4)?.try_into().ok()?))
    };
    let (magic, offset, used) = (number(0)?, number(5)?, number(6)?);
    if magic != ARCHIVE || used > MAX_NAMES_BYTES {
        return None;
    }
    let mut names = vec![0; used as usize];
    file.read_exact_at(&mut names, offset.into()).ok()?;
    Some(names)
}

const LOCALES: &str = "/usr/lib/locale";
const TIME_ZONES: &str = "/usr/share/zoneinfo";
/// AR_MAGIC.
const ARCHIVE: u32 = 0xde02_0109;
const MAX_NAME_BYTES: usize = 64;
/// All of glibc's have 20 KB together.
const MAX_NAMES_BYTES: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_zone_is_a_name_that_the_system_knows() {
        let zones = tempfile::tempdir().unwrap();
        fs::create_dir(zones.path().join("Europe")).unwrap();
        fs::write(zones.path().join("Europe/Berlin"), "TZif2").unwrap();
        fs::write(zones.path().join("UTC"), "TZif2").unwrap();
        let absolute = zones.path().join("UTC");
        for (name, expected) in [
            ("Europe/Berlin", true),
            ("UTC", true),
            ("Europe", false),
            ("Europe/Paris", false),
            ("", false),
            (":UTC", false),
            ("Europe/../UTC", false),
            ("CET-1CEST,M3.5.0,M10.5.0/3", false),
            (absolute.to_str().unwrap(), false),
        ] {
            assert_eq!(is_time_zone(name, zones.path()), expected, "{name}");
        }
    }

    #[test]
    fn a_locale_is_found_where_systems_keep_it() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("de_DE.utf8");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("LC_CTYPE"), "").unwrap();
        fs::create_dir(place.path().join("empty")).unwrap();
        let names = b"\0en_US.utf8\0fr_FR.utf8@euro\0";
        let head: Vec<u8> = [ARCHIVE, 1, 0, 0, 0, 28, names.len() as u32]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        fs::write(place.path().join("locale-archive"), [&head[..], names].concat()).unwrap();
        for (locale, expected) in [
            ("C", true),
            ("C.UTF-8", true),
            ("de_DE.UTF-8", true),
            ("de_DE.utf8", true),
            ("en_US.UTF-8", true),
            ("fr_FR.UTF-8@euro", true),
            ("en_US", false),
            ("en_US.utf", false),
            ("en", false),
            ("it_IT.UTF-8", false),
            ("empty", false),
            ("", false),
            (".", false),
            ("../locale/de_DE.utf8", false),
            ("/usr/lib/locale/de_DE.utf8", false),
        ] {
            assert_eq!(is_there(locale, place.path()), expected, "{locale}");
        }
        fs::write(place.path().join("locale-archive"), [0xff; 64]).unwrap();
        assert!(!is_there("en_US.UTF-8", place.path()), "an archive that is none");
    }
}
