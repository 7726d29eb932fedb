use holdpoint_guest::prelude::*;

#[derive(Deserialize)]
struct Input {
    a: u32,
}

#[derive(Serialize)]
struct Output {
    b: u32,
}

#[node(reads = ["a"], writes = ["b"])]
async fn work(input: Input) -> Result<Output, NodeError> {
    Ok(Output { b: input.a })
}

fn main() {}
