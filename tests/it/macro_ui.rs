//! What `#[node]` says of a mistake: one mistake a file in `tests/ui`.

#[test]
fn a_mistake_is_shown_where_it_is_with_what_to_write_instead() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/ui/*.rs"));
}
