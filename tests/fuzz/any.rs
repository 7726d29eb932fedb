//! libFuzzer on one of the entries, which the environment names. One program for all of them: each would be as large
//! as the host.
#![no_main]

use std::sync::LazyLock;

#[path = "entry.rs"]
mod entry;

static ENTRY: LazyLock<entry::Entry> = LazyLock::new(|| {
    let name = std::env::var("HOLDPOINT_FUZZ").unwrap_or_default();
    entry::named(&name).unwrap_or_else(|| panic!("HOLDPOINT_FUZZ is one of {}", entry::names().join(", ")))
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ENTRY(data);
});
