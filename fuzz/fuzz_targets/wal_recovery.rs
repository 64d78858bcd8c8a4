#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| gapless_fuzz::properties::wal_recovery::holds(input));
