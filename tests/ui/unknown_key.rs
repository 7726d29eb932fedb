use holdpoint_guest::prelude::*;

#[derive(Deserialize)]
struct Input {
    a: u32,
}

#[derive(Serialize)]
struct Output {
    b: u32,
}

#[node(read = ["a"], writes = ["b"])]
fn work(input: Input) -> Output {
    Output { b: input.a }
}

fn main() {}
