//! Error numbers that another process reports.

use rustix::io::Errno;

/// The kernel's error of this number, if there can be one (errno(3)).
pub fn parse(number: i32) -> Option<Errno> {
    (1..4096).contains(&number).then(|| Errno::from_raw_os_error(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_none_of_the_kernels_is_no_error() {
        assert_eq!(parse(2), Some(Errno::NOENT));
        for number in [i32::MIN, -2, 0, 4096, i32::MAX] {
            assert_eq!(parse(number), None, "{number}");
        }
    }
}
