//! Asks a person before it refunds more than a little, and has the refund paid.

use holdpoint_guest::prelude::*;

#[derive(Deserialize)]
pub struct Input {
    pub order: u64,
    pub amount: u64,
}

#[derive(Serialize)]
pub struct Output {
    pub decision: String,
    pub receipt: Option<Value>,
}

#[node(reads = ["order", "amount"], writes = ["decision", "receipt"], effects = ["refund"])]
pub fn {{snake}}(input: Input) -> Result<Output, NodeError> {
    let mut decision = "refund".to_owned();
    if input.amount >= 100 {
        // Stops here. Once somebody has answered, the node runs again from its beginning, and this call returns
        // what they said.
        let question = Question::new(json!({ "refund": input.amount, "order": input.order }))
            .schema(json!({ "enum": ["refund", "keep"] }));
        decision = interrupt(question)?;
    }
    if decision != "refund" {
        return Ok(Output { decision, receipt: None });
    }
    // The host does this, once for each key on a thread, however often the node runs there. The key is what
    // it is for. Another thread with the same key does it again.
    let key = format!("refund-order-{}", input.order);
    let receipt: Value = effect("refund", &key, &json!({ "order": input.order, "amount": input.amount }))?;
    Ok(Output { decision, receipt: Some(receipt) })
}

#[cfg(test)]
mod tests {
    use holdpoint_guest::testing::Script;

    use super::*;

    #[test]
    fn a_large_refund_asks_first_and_is_paid_once() {
        // What the graph's HTTP effect gives: the status, and what the service said.
        let paid = json!({ "status": 200, "body": { "receipt": 5 } });
        let script = Script::new().answer("refund").effect("refund", &paid);
        let ran = script.run(|| {{snake}}(Input { order: 17, amount: 250 }));
        assert_eq!(ran.questions[0].payload, json!({ "refund": 250, "order": 17 }));
        assert_eq!(ran.effects.len(), 1);
        assert_eq!(ran.effects[0].idempotency_key, "refund-order-17");
        assert_eq!(ran.returned.unwrap().unwrap().receipt, Some(paid));
    }

    #[test]
    fn what_is_kept_is_not_paid() {
        let ran = Script::new().answer("keep").run(|| {{snake}}(Input { order: 17, amount: 250 }));
        assert!(ran.effects.is_empty());
        assert_eq!(ran.returned.unwrap().unwrap().decision, "keep");
    }
}
