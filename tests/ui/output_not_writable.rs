use holdpoint_guest::prelude::*;

#[derive(Deserialize)]
struct Input {
    a: u32,
}

struct Output {
    b: u32,
}

#[node(reads = ["a"], writes = ["b"])]
fn work(input: Input) -> Result<Output, NodeError> {
    Ok(Output { b: input.a })
}

fn main() {}
