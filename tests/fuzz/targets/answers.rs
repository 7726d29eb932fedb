#![no_main]

#[path = "../entry.rs"]
#[allow(dead_code, reason = "each target has one of its entries")]
mod entry;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    entry::answers(data);
});
