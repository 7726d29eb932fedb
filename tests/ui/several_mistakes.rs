use holdpoint_guest::prelude::*;

#[derive(Deserialize)]
struct Input {
    a: u32,
}

#[derive(Serialize)]
struct Output {
    b: u32,
}

#[node(reads = ["a"], write = ["b"])]
async fn work(input: &Input) {
    log::info!("{}", input.a);
}

fn main() {}
