//! Asks a person before it refunds more than a little.

use holdpoint_guest::prelude::*;

#[derive(Deserialize)]
pub struct Input {
    pub amount: u64,
}

#[derive(Serialize)]
pub struct Output {
    pub decision: String,
}

#[node(reads = ["amount"], writes = ["decision"])]
pub fn {{snake}}(input: Input) -> Result<Output, NodeError> {
    if input.amount < 100 {
        return Ok(Output { decision: "refund".into() });
    }
    log::info!("{} is a lot; somebody must look at it", input.amount);
    // Stops here. Once somebody has answered, the node runs again from its beginning, and this call returns
    // what they said.
    let question = Question::new(json!({ "refund": input.amount })).schema(json!({ "enum": ["refund", "keep"] }));
    let decision = interrupt(question)?;
    Ok(Output { decision })
}

#[cfg(test)]
mod tests {
    use holdpoint_guest::testing::Script;

    use super::*;

    #[test]
    fn a_large_refund_asks_first() {
        let ran = Script::new().answer("keep").run(|| {{snake}}(Input { amount: 250 }));
        assert_eq!(ran.questions[0].payload, json!({ "refund": 250 }));
        assert_eq!(ran.returned.unwrap().unwrap().decision, "keep");
    }

    #[test]
    fn a_small_one_does_not() {
        let ran = Script::new().run(|| {{snake}}(Input { amount: 50 }));
        assert!(ran.questions.is_empty());
        assert_eq!(ran.returned.unwrap().unwrap().decision, "refund");
    }
}
