//! What a guest or a client hands in, as random bytes: the entry points of `tests/fuzz`, from its corpus.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};

#[path = "../fuzz/entry.rs"]
mod entry;

/// What the inputs are made of, beside what is in the corpus.
const WORDS: [&str; 32] = [
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\u0000",
    "\\ud800",
    ":",
    ",",
    "null",
    "1e999",
    "-0",
    "\n",
    "\n\n",
    "=",
    "'''",
    "$ref",
    "\"$ref\":\"#\"",
    "\"pattern\":\"(a*)*b\"",
    "[nodes.a]\n",
    "component = 'x'\n",
    "effects",
    "attempt",
    "effect",
    "known",
    "asked",
    "answers",
    "\u{feff}",
    "\u{202e}",
    "9007199254740993",
    "\"a\":1,\"a\":2",
    "\0asm",
];

/// Runs an entry on its corpus, and then on what can be made of it, for so long.
fn fuzz(target: &str, time: Duration, times_min: usize) {
    let entry = entry::named(target).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut corpus: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(!corpus.is_empty());
    let seed = match std::env::var("HOLDPOINT_TEST_SEED") {
        Ok(text) => text.parse().expect("a seed as it was printed"),
        Err(_) => uuid::Uuid::now_v7().as_u128(),
    };
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&seed.to_le_bytes());
    let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let (began, mut times, mut taken) = (Instant::now(), 0, 0);
    let run = |input: &[u8]| match catch_unwind(AssertUnwindSafe(|| entry(input))) {
        Ok(is_taken) => usize::from(is_taken),
        Err(_) => {
            let shown = input.escape_ascii();
            panic!("{target}, HOLDPOINT_TEST_SEED={seed}: fails on {} bytes: b\"{shown}\"", input.len());
        }
    };
    assert!(corpus.iter().map(|input| run(input)).sum::<usize>() > 0, "nothing in the corpus is what it was");
    while began.elapsed() < time || times < times_min {
        let input = mutated(&corpus, &mut rng);
        let is_taken = run(&input);
        taken += is_taken;
        times += 1;
        // What was taken leads on to what is taken too.
        if is_taken == 1 && corpus.len() < 400 && input.len() < 16 << 10 {
            corpus.push(input);
        }
    }
    println!("{target}: {times} inputs, {taken} taken");
    // What is refused at the first byte tries nothing; and what is all taken is not random.
    assert!(taken > times / 200 && taken < times, "{taken} of {times}");
}

fn mutated(corpus: &[Vec<u8>], rng: &mut TestRng) -> Vec<u8> {
    let mut below = |n: usize| if n == 0 { 0 } else { rng.next_u64() as usize % n };
    let mut input = corpus[below(corpus.len())].clone();
    // Mostly few, so that much of it is still what it was.
    for _ in 0..1 + below(2) * below(4) {
        let at = below(input.len() + 1);
        let to = at + below((input.len() - at).min(12) + 1);
        match below(8) {
            0 if at < input.len() => input[at] ^= 1 << below(8),
            1 if at < input.len() => input[at] = below(256) as u8,
            2 => drop(input.drain(at..to)),
            3 => drop(input.splice(at..at, WORDS[below(WORDS.len())].bytes())),
            4 => drop(input.splice(at..to, WORDS[below(WORDS.len())].bytes())),
            5 => {
                let other = &corpus[below(corpus.len())];
                let from = below(other.len() + 1);
                let until = from + below((other.len() - from).min(400) + 1);
                input.splice(at..to, other[from..until].iter().copied());
            }
            6 => {
                let again = input[at..to].repeat(1 + below(20));
                input.splice(at..at, again);
            }
            _ => input.truncate(at.max(input.len() / 2)),
        }
    }
    input
}

#[test]
fn any_graph_file_is_read_or_refused() {
    fuzz("graph_file", Duration::from_secs(3), 1_000);
}

#[test]
fn any_json_is_taken_in_one_form_or_refused() {
    fuzz("json_guard", Duration::from_secs(3), 1_000);
}

#[test]
fn any_journal_row_is_read_or_named_as_damaged() {
    fuzz("journal_rows", Duration::from_secs(3), 500);
}

#[test]
fn any_command_is_carried_out_or_refused_and_changes_nothing_then() {
    fuzz("answers", Duration::from_secs(4), 100);
}

#[test]
fn any_component_is_taken_or_refused() {
    fuzz("component", Duration::from_secs(4), 100);
}

#[test]
fn whatever_a_node_hands_over_is_taken_or_its_own_failure() {
    fuzz("outcome", Duration::from_secs(4), 100);
}

#[test]
fn any_request_is_answered_and_never_with_a_fault_of_the_service() {
    fuzz("request", Duration::from_secs(4), 100);
}

#[test]
fn s27_any_schema_and_answer_are_done_with_soon() {
    fuzz("schema", Duration::from_secs(3), 500);
}

#[test]
fn each_entry_has_a_corpus_and_each_corpus_an_entry() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let mut folders: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    folders.sort();
    assert_eq!(folders, entry::names());
}
