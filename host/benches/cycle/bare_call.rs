//! Wasmtime by itself: a fresh instance of the same component, called until it asks its question, which
//! traps. With the engine's settings and the standard WASI, and nothing of the product.

use wasmtime::component::{Component, Linker, ResourceTable};
use wasmtime::{Config, Engine, Store};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use crate::node;

mod bindings {
    wasmtime::component::bindgen!({ path: "../wit", world: "node", exports: { default: async } });
}
use bindings::NodePre;
use bindings::holdpoint::node::types::Context;

/// As in `sandbox/engine.rs`, which shows them to nobody.
const WASM_STACK_BYTES: usize = 2 << 20;
const HOST_STACK_BYTES: usize = 1 << 20;

/// All imports of the contract; the node asks its question before it calls any other.
const IMPORTS: [(&str, &[&str]); 6] = [
    ("types", &[]),
    ("interrupts", &["interrupt", "interrupt-all"]),
    ("effects", &["perform"]),
    ("steering", &["instructions"]),
    ("log", &["write"]),
    ("events", &["emit"]),
];

#[derive(Debug, thiserror::Error)]
#[error("the node asked")]
struct Asked;

#[derive(Clone)]
pub struct BareCall {
    engine: Engine,
    pre: NodePre<Guest>,
    context: Context,
    state: String,
}

struct Guest {
    wasi: WasiCtx,
    table: ResourceTable,
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl BareCall {
    pub fn new(bytes: &[u8]) -> wasmtime::Result<Self> {
        let mut config = Config::new();
        config
            .consume_fuel(true)
            .epoch_interruption(true)
            .cranelift_nan_canonicalization(true)
            .relaxed_simd_deterministic(true)
            .max_wasm_stack(WASM_STACK_BYTES)
            .async_stack_size(WASM_STACK_BYTES + HOST_STACK_BYTES);
        let engine = Engine::new(&config)?;
        let component = Component::from_binary(&engine, bytes)?;
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
        for (interface, functions) in IMPORTS {
            let mut instance = linker.instance(&format!("holdpoint:node/{interface}@0.1.0"))?;
            for function in functions {
                instance.func_new(function, |_, _, _, _| Err(Asked.into()))?;
            }
        }
        let pre = NodePre::new(linker.instantiate_pre(&component)?)?;
        let context = Context {
            thread_id: "bare".into(),
            run_id: "0198f0c0-0000-7000-8000-000000000000".into(),
            task_id: "0198f0c0-0000-5000-8000-000000000000".into(),
            node: node::NODE.into(),
            path: Vec::new(),
            step: 0,
            arg: None,
        };
        Ok(Self { engine, pre, context, state: node::input().to_string() })
    }

    pub async fn call(&self) -> anyhow::Result<()> {
        let guest = Guest { wasi: WasiCtxBuilder::new().build(), table: ResourceTable::new() };
        let mut store = Store::new(&self.engine, guest);
        store.set_epoch_deadline(1);
        let end = async {
            store.set_fuel(10_000_000_000)?;
            let node = self.pre.instantiate_async(&mut store).await?;
            node.holdpoint_node_handler().call_run(&mut store, &self.context, &self.state).await
        };
        match end.await {
            Err(error) if error.is::<Asked>() => Ok(()),
            Err(error) => anyhow::bail!("the bare call ended before its question: {error:#}"),
            Ok(_) => anyhow::bail!("the bare call came to an end without a question"),
        }
    }
}
