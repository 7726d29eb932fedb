use holdpoint_guest::prelude::*;

#[derive(Deserialize)]
struct Input {
    a: u32,
}

#[derive(Serialize)]
struct Output {
    b: u32,
}

#[node(writes = ["b"])]
fn work() -> Output {
    Output { b: 1 }
}

fn main() {}
