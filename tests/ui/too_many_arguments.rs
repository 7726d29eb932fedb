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
fn work(input: Input, context: &Context, more: u32) -> Output {
    Output { b: input.a + context.step + more }
}

fn main() {}
