//! What compiling a component will take, estimated before it is done.
//!
//! The compiler takes more than linear time and memory for one function: a file of 20 kB can keep it busy
//! for minutes. It cannot be interrupted, so such a file must not reach it. What counts was measured:
//! loops and branches among each other, and values that live across branches, loops and calls.

use wasmparser::{
    FuncValidator, FuncValidatorAllocations, FunctionBody, Operator, Parser, ValidPayload, Validator,
    ValidatorResources,
};

use super::engine::FEATURES;
use super::errors::InvalidComponent;

/// Of a whole component. A Python or JavaScript runtime has a quarter of it; one that has all of it
/// takes half a minute and a gigabyte.
const WORK_MAX: u64 = 100_000_000;

/// Also checks that the component is valid, which is half of the way.
pub(super) fn check(bytes: &[u8]) -> Result<(), InvalidComponent> {
    match weigh(bytes)? {
        weight if weight.work > WORK_MAX => Err(InvalidComponent::TooCostly {
            limit: WORK_MAX,
            value: weight.work,
            function: weight.heaviest_function,
            share: weight.heaviest_work,
        }),
        _ => Ok(()),
    }
}

pub(super) fn weigh(bytes: &[u8]) -> Result<Weight, InvalidComponent> {
    weight(bytes).map_err(|error| InvalidComponent::Malformed { what: error.to_string() })
}

/// What a component amounts to for whoever compiles it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Weight {
    pub functions: u32,
    /// Units of work.
    pub work: u64,
    pub work_max: u64,
    /// Counted in the order of the file.
    pub heaviest_function: u32,
    pub heaviest_work: u64,
}

fn weight(bytes: &[u8]) -> wasmparser::Result<Weight> {
    let mut validator = Validator::new_with_features(FEATURES);
    let mut allocations = FuncValidatorAllocations::default();
    let mut weight = Weight { work_max: WORK_MAX, ..Weight::default() };
    for payload in Parser::new(0).parse_all(bytes) {
        if let ValidPayload::Func(function, body) = validator.payload(&payload?)? {
            let mut function = function.into_validator(allocations);
            let own = work_of(&mut function, &body)?;
            weight.work = weight.work.saturating_add(own);
            if own > weight.heaviest_work {
                (weight.heaviest_function, weight.heaviest_work) = (weight.functions, own);
            }
            allocations = function.into_allocations();
            weight.functions += 1;
        }
    }
    Ok(weight)
}

fn work_of(
    function: &mut FuncValidator<ValidatorResources>,
    body: &FunctionBody<'_>,
) -> wasmparser::Result<u64> {
    let mut reader = body.get_binary_reader();
    function.read_locals(&mut reader)?;
    let (mut branches, mut calls, mut loops, mut loop_depths) = (1u64, 0u64, 0u64, 0u64);
    let mut height_max = 0;
    // Of the blocks that are open, which are loops.
    let mut open = Vec::new();
    let mut depth = 0;
    let mut operators = wasmparser::OperatorsReader::new(reader);
    while !operators.eof() {
        let (operator, at) = operators.read_with_offset()?;
        function.op(at, &operator)?;
        height_max = height_max.max(function.operand_stack_height());
        match operator {
            Operator::Loop { .. } => {
                branches += 1;
                loops += 1;
                depth += 1;
                loop_depths += depth;
                open.push(true);
            }
            Operator::Block { .. } | Operator::If { .. } | Operator::TryTable { .. } => {
                branches += 1;
                open.push(false);
            }
            Operator::End => depth -= u64::from(open.pop() == Some(true)),
            Operator::Else | Operator::Br { .. } | Operator::BrIf { .. } => branches += 1,
            Operator::BrTable { targets } => branches += u64::from(targets.len()),
            Operator::Call { .. } | Operator::CallIndirect { .. } => calls += 1,
            _ => {}
        }
    }
    operators.finish()?;
    let values = u64::from(function.len_locals()) + u64::from(height_max);
    // 32-bit counts of a bounded file, each product of two: no sum comes near the end of 64 bits.
    Ok(loops * loops + branches * branches / 50 + values * (branches + 4 * calls) + values * loop_depths / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(run: &str) -> Vec<u8> {
        let module =
            format!("(component (core module (table 1 funcref) (memory 1) (func (param i32) {run})))");
        wat::parse_str(module).unwrap()
    }

    #[test]
    fn a_function_that_keeps_the_compiler_busy_for_minutes_is_refused() {
        let locals = |count: usize| "(local i32)".repeat(count);
        let loops = "(loop (br_if 0 (local.get 0)))";
        let call = "(call_indirect (i32.const 0))";
        for (what, run) in [
            ("many loops", loops.repeat(20_000)),
            ("nested loops", locals(2_000) + &"(loop ".repeat(900) + &"(br_if 0 (local.get 0)))".repeat(900)),
            ("locals and branches", locals(20_000) + &"(block (br_if 0 (local.get 0)))".repeat(20_000)),
            ("locals and calls", locals(10_000) + &call.repeat(10_000)),
            (
                "the stack and calls",
                "(i32.const 1)".repeat(10_000) + &call.repeat(10_000) + &"(drop)".repeat(10_000),
            ),
        ] {
            let refused = check(&component(&run)).unwrap_err();
            assert!(matches!(refused, InvalidComponent::TooCostly { .. }), "{what}: {refused}");
        }
    }

    #[test]
    fn long_plain_code_is_taken() {
        check(&component(&"(local.set 0 (i32.add (local.get 0) (i32.const 1)))".repeat(100_000))).unwrap();
    }

    #[test]
    fn what_is_not_valid_is_refused() {
        let error = check(&component("(i32.const 1)")).unwrap_err();
        assert!(matches!(error, InvalidComponent::Malformed { .. }), "{error}");
    }
}
