//! Whatever a node could tell one attempt from another by, it tells the host here, in its questions: what
//! it says must replay at every prefix, byte for byte, with the same fuel and memory. Tried are: memory that
//! was never written, and what an earlier attempt wrote; where things lie; how far memory and tables grow;
//! numbers of handles; clocks, sleeping, what is ready first; chance; how much work was done, read off a clock;
//! the bits of floats and vectors, and what relaxed vectors leave open; exceptions and when they are collected;
//! how deep the stack is; where fuel ends. Hash order is in `replay.rs`, nodes that differ on purpose in
//! `replaying.rs`.

use holdpoint::model::Limits;
use serde_json::json;

use crate::telling::{Stage, finished, stopped_by, telling};

const SUM: &str = r#"
    (func $sum (param $bytes i32) (result i64) (local $at i32) (local $sum i64)
        (loop $more
            (local.set $sum (i64.add (i64.rotl (local.get $sum) (i64.const 1))
                (i64.load $memory (local.get $at))))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (br_if $more (i32.lt_u (local.get $at) (local.get $bytes))))
        (local.get $sum))"#;

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_a_node_did_not_write_is_the_same_in_every_attempt() {
    let stage = Stage::new(Limits::default()).await;
    let run = "
        (call $say (call $sum (i32.const 65536)))
        (drop (memory.grow $memory (i32.const 16)))
        (call $say (call $sum (i32.const 1114112)))
        ;; And what was written before the question is there no more than before.
        (i64.store $memory (i32.const 1114104) (i64.const -1))
        (call $say (call $sum (i32.const 1114112)))";
    let (said, outcome) = stage.told(SUM, run).await;
    assert!(finished(&outcome));
    assert_ne!(said[1], said[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_things_lie_in_memory_is_the_same_in_every_attempt() {
    let stage = Stage::new(Limits::default()).await;
    let run = "
        (call $say (i64.extend_i32_u (local.get 14)))
        (call $say (i64.extend_i32_u (call $realloc (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 7))))
        ;; Where the last answer was put.
        (call $say (i64.load (i32.const 1200)))";
    let (said, outcome) = stage.told("", run).await;
    assert!(finished(&outcome) && said.len() == 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn how_far_memory_and_tables_grow_is_the_same_in_every_attempt() {
    let stage =
        Stage::new(Limits { memory_bytes: 8 << 20, table_elements: 5_000, ..Limits::default() }).await;
    let items = "
        (memory $small 0 5)
        (table $few 0 7 funcref)
        (table $many 0 funcref)";
    let grown = "
        (loop $more (local.set 0 (memory.grow $small (i32.const 1)))
            (call $say (i64.extend_i32_s (local.get 0))) (br_if $more (i32.ge_s (local.get 0) (i32.const 0))))
        (loop $more (local.set 0 (table.grow $few (ref.null func) (i32.const 2)))
            (call $say (i64.extend_i32_s (local.get 0))) (br_if $more (i32.ge_s (local.get 0) (i32.const 0))))";
    let (said, outcome) = stage.told(items, grown).await;
    let no = u64::MAX;
    assert_eq!(said, [0, 1, 2, 3, 4, no, 0, 2, 4, no]);
    assert!(finished(&outcome));

    // Up to the limit, then past it: never a refusal that the node could see.
    for (items, run, limit) in [
        ("(memory $big 0)", "(drop (memory.grow $big (i32.const 111)))", None),
        ("(memory $big 0)", "(drop (memory.grow $big (i32.const 112)))", Some("memory_bytes")),
        ("(table $many 0 funcref)", "(drop (table.grow $many (ref.null func) (i32.const 5000)))", None),
        (
            "(table $many 0 funcref)",
            "(drop (table.grow $many (ref.null func) (i32.const 5001)))",
            Some("table_elements"),
        ),
    ] {
        let run = format!("(call $say (i64.const 1)) {run} (call $say (i64.const 2))");
        let (said, outcome) = stage.told(items, &run).await;
        match limit {
            None => assert!(finished(&outcome) && said == [1, 2], "{run}: {outcome:?}"),
            Some(limit) => assert_eq!((stopped_by(&outcome).as_str(), said.len()), (limit, 1), "{run}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_are_numbered_and_run_out_in_the_same_way_in_every_attempt() {
    let stage = Stage::new(Limits { handles: 20, ..Limits::default() }).await;
    let subscribe = "(call $subscribe (i64.const 9))";
    let run = format!(
        "(drop {subscribe}) (local.set 0 {subscribe}) (drop {subscribe})
        (call $say (i64.extend_i32_u {subscribe}))
        (call $drop (local.get 0))
        (call $say (i64.extend_i32_u {subscribe}))
        (call $say (i64.extend_i32_u {subscribe}))
        (loop $more (call $say (i64.extend_i32_u {subscribe})) (br $more))"
    );
    let (said, outcome) = stage.told("", &run).await;
    assert_eq!(stopped_by(&outcome), "handles");
    assert!(said.len() > 10, "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn time_chance_and_what_is_ready_are_the_same_in_every_attempt() {
    let stage = Stage::new(Limits::default()).await;
    let run = "
        (call $say (call $now))
        (call $say (call $now))
        (call $say (call $random))
        (i32.store (i32.const 2048) (call $subscribe (i64.const 7000000000000)))
        (i32.store (i32.const 2052) (call $subscribe (i64.const 5)))
        (i32.store (i32.const 2056) (call $subscribe (i64.const 6000000000000)))
        (call $say (call $now))
        (call $poll (i32.const 2048) (i32.const 3) (i32.const 2064))
        (call $say (i64.load (i32.const 2064)))
        (call $drop (i32.load (i32.const 2052)))
        (i32.store (i32.const 2052) (i32.load (i32.const 2056)))
        (call $poll (i32.const 2048) (i32.const 2) (i32.const 2064))
        (call $say (i64.load (i32.load (i32.const 2064))))
        (call $instructions (i32.const 2064))
        (call $say (call $now))
        (call $say (call $random))";
    let (said, outcome) = stage.told("", run).await;
    assert!(finished(&outcome), "{outcome:?}");
    assert!(said[0] < said[1] && said[1] < said[3], "time goes on: {said:?}");
    assert!(said[6] >= 6_000_000_000_000, "and a sleep takes its time: {said:?}");
    assert_ne!(said[2], said[7]);
}

#[tokio::test(flavor = "multi_thread")]
async fn how_much_a_node_has_done_it_cannot_read_off_a_clock() {
    let stage = Stage::new(Limits::default()).await;
    let measured = |times: u32| {
        format!(
            "(i64.store (i32.const 2048) (call $now))
            (local.set 0 (i32.const {times}))
            (loop $more
                (local.set 0 (i32.sub (local.get 0) (i32.const 1)))
                (br_if $more (local.get 0)))
            (call $say (i64.sub (call $now) (i64.load (i32.const 2048))))"
        )
    };
    let (said, outcome) = stage.told("", &[1, 3_000_000, 17].map(measured).concat()).await;
    assert!(finished(&outcome));
    assert!(said[0] > 0 && said.iter().all(|took| *took == said[0]), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn floats_have_the_same_bits_in_every_attempt() {
    let stage = Stage::new(Limits::default()).await;
    let zero = "(f64.convert_i32_s (local.get 13))";
    let canonical = 0x7ff8_0000_0000_0000;
    for (what, bits) in [
        (format!("(f64.div {zero} {zero})"), canonical),
        (format!("(f64.sqrt (f64.sub {zero} (f64.const 1)))"), canonical),
        (format!("(f64.add (f64.const -nan:0x123) {zero})"), canonical),
        (format!("(f64.min (f64.const nan:0xfff) {zero})"), canonical),
        (format!("(f64.mul (f64.const -inf) {zero})"), canonical),
        (format!("(f64.promote_f32 (f32.div (f32.demote_f64 {zero}) (f32.demote_f64 {zero})))"), canonical),
        ("(f64x2.extract_lane 0 (f64x2.add (v128.const f64x2 nan:0x123 0) (v128.const f64x2 1 1)))".to_owned(), canonical),
        ("(f64x2.extract_lane 1 (f64x2.sqrt (v128.const f64x2 0 -1)))".to_owned(), canonical),
        (
            "(f64.promote_f32 (f32x4.extract_lane 2 (f32x4.div (v128.const f32x4 1 1 0 1) (v128.const f32x4 1 1 0 1))))"
                .to_owned(),
            canonical,
        ),
        // No arithmetic: the bits are the node's own.
        ("(f64.neg (f64.const nan:0x123))".to_owned(), 0xfff0_0000_0000_0123),
    ] {
        let run = format!("(local.set 13 (i32.const 0)) (call $say (i64.reinterpret_f64 {what}))");
        let (said, outcome) = stage.told("", &run).await;
        assert!(finished(&outcome));
        assert_eq!(said, [bits], "{what}: {:x}", said[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_relaxed_vectors_leave_open_is_the_same_in_every_attempt() {
    let stage = Stage::new(Limits::default()).await;
    let nan = "(v128.const f32x4 nan 1e20 -1e20 -nan:0x77)";
    let big = "(v128.const f32x4 1e38 3 -0 0)";
    let bytes = "(v128.const i8x16 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)";
    let over = "(v128.const i8x16 16 17 127 128 255 200 31 32 0 1 2 3 -1 -2 -3 -4)";
    let (low, mixed) =
        ("(v128.const i16x8 -32768 -32768 1 2 3 4 5 6)", "(v128.const i16x8 -32768 1 1 2 3 4 5 6)");
    for vector in [
        format!("(i8x16.relaxed_swizzle {bytes} {over})"),
        format!("(i32x4.relaxed_trunc_f32x4_s {nan})"),
        format!("(i32x4.relaxed_trunc_f32x4_u {nan})"),
        format!("(f32x4.relaxed_min {nan} {big})"),
        format!("(f32x4.relaxed_max {big} {nan})"),
        format!("(f32x4.relaxed_madd {big} {big} {nan})"),
        format!("(i16x8.relaxed_q15mulr_s {low} {mixed})"),
        format!("(i16x8.relaxed_dot_i8x16_i7x16_s {over} {over})"),
    ] {
        let run = format!(
            "(call $say (i64x2.extract_lane 0 {vector})) (call $say (i64x2.extract_lane 1 {vector}))"
        );
        let (said, outcome) = stage.told("", &run).await;
        assert!(finished(&outcome) && said.len() == 2, "{vector}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exceptions_that_pile_up_are_collected_in_the_same_way_in_every_attempt() {
    let stage = Stage::new(Limits { fuel: 200_000_000, ..Limits::default() }).await;
    let items = "
        (tag $thrown (param i64))
        (table $kept 4000 exnref)
        (func $throw (param $i i32) (result i64)
            (local $e exnref) (local $value i64)
            (block $caught (result i64 exnref)
                (try_table (catch_ref $thrown $caught) (throw $thrown (i64.extend_i32_u (local.get $i))))
                (unreachable))
            (local.set $e)
            (table.set $kept (i32.rem_u (local.get $i) (i32.const 4000)) (local.get $e)))";
    let run = "
        (loop $more
            (local.set 1 (i32.add (local.get 1) (i32.wrap_i64 (call $throw (local.get 0)))))
            (local.set 0 (i32.add (local.get 0) (i32.const 1)))
            (if (i32.eqz (i32.rem_u (local.get 0) (i32.const 5000)))
                (then (call $say (i64.extend_i32_u (local.get 1)))))
            (br_if $more (i32.lt_u (local.get 0) (i32.const 20000))))";
    let (said, outcome) =
        stage.told(items, &format!("(local.set 0 (i32.const 0)) (local.set 1 (i32.const 0)) {run}")).await;
    assert!(finished(&outcome), "{outcome:?}");
    assert_eq!(said.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_thrown_and_caught_around_a_question_is_the_same_in_every_attempt() {
    let stage = Stage::new(Limits::default()).await;
    let throw = "(throw $thrown (i64.const 7))";
    let caught = |body: &str| format!("(block $c (try_table (catch_all $c) {body}))");
    let item = "(tag $thrown (param i64))";
    let one = "(call $say (i64.const 1))";
    let (said, outcome) = stage.told(item, &format!("{} {one}", caught(&format!("{one} {throw}")))).await;
    assert!(finished(&outcome) && said == [1, 1]);
    let (said, outcome) = stage.told(item, &format!("{one} {throw}")).await;
    assert_eq!((stopped_by(&outcome).as_str(), said.len()), ("exception", 1));
}

/// Not the depth, which is the machine's, but that the stack ended.
#[tokio::test(flavor = "multi_thread")]
async fn how_deep_a_node_gets_is_the_same_in_every_attempt() {
    let stage = Stage::new(Limits::default()).await;
    let items = "
        (global $depth (mut i64) (i64.const 0))
        (func $deeper (result i64)
            (global.set $depth (i64.add (global.get $depth) (i64.const 1)))
            (if (i64.eqz (i64.rem_u (global.get $depth) (i64.const 5000)))
                (then (call $instructions (i32.const 2064)) (call $say (global.get $depth))))
            (i64.add (i64.const 1) (call $deeper)))";
    let (said, outcome) = stage.told(items, "(drop (call $deeper))").await;
    assert_eq!(stopped_by(&outcome), "stack-overflow");
    assert!(said.len() > 2, "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fuel_runs_out_at_the_same_place_in_every_attempt() {
    let fuel = 3_000_000;
    let stage = Stage::new(Limits { fuel, ..Limits::default() }).await;
    let run = "
        (local.set 0 (i32.const 0))
        (loop $more
            (local.set 0 (i32.add (local.get 0) (i32.const 1)))
            (if (i32.eqz (i32.rem_u (local.get 0) (i32.const 30000)))
                (then (call $say (i64.extend_i32_u (local.get 0)))))
            (br $more))";
    let report = stage.report(telling("", run), json!({})).await;
    assert_eq!(report.difference, None);
    assert_eq!((stopped_by(&report.ended.outcome).as_str(), report.ended.fuel), ("fuel", fuel));
    assert!(report.journal.len() > 3);
}
