//! How answers find their questions, and when they must not.

use holdpoint::Command;
use serde_json::json;

use crate::world::*;

#[tokio::test(flavor = "multi_thread")]
async fn i10_one_value_answers_the_one_question() {
    let world = World::new();
    let graph = world.one().await;
    let ops = json!([{ "ask": "a?" }, { "put_results": "a" }]);
    paused(graph.invoke(on("t"), script(ops)).await.unwrap());
    completed(graph.resume(on("t"), Command::resume("A")).await.unwrap());
    assert_eq!(graph.state(on("t")).await.unwrap()["a"], json!(["A"]));
    assert_eq!(world.started(), ["n", "n"]);
}
