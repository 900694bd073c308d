//! The macro of the crate `libfuzzer-sys`, as far as the fuzz targets use it, without the fuzzer: a target becomes a function that
//! takes bytes.

#[doc(hidden)]
pub use arbitrary;

/// Defines `run`, which gives bytes to the target, or the value that they stand for.
#[macro_export]
macro_rules! fuzz_target {
    (|$bytes:ident: &[u8]| $body:expr) => {
        pub(crate) fn run($bytes: &[u8]) {
            $body
        }
    };
    (|$input:ident: $type:ty| $body:expr) => {
        pub(crate) fn run(bytes: &[u8]) {
            let bytes = $crate::arbitrary::Unstructured::new(bytes);
            if let Ok($input) = <$type as $crate::arbitrary::Arbitrary>::arbitrary_take_rest(bytes) {
                $body
            }
        }
    };
}
