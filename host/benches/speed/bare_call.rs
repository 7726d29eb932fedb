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
const FIBER_STACK_BYTES: usize = 2 * WASM_STACK_BYTES + (1 << 20);

/// All imports of the contract; the node asks its question before it calls any other.
const IMPORTS: [(&str, &[&str]); 6] = [
    ("types", &[]),
    ("interrupts", &["interrupt", "interrupt-all"]),
    ("effects", &["perform"]),
    ("steering", &["instructions"]),
    ("log", &["write"]),
    ("events", &["emit"]),
];

/// Where an instance's memory, tables and stack come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// Mapped for each instance, and unmapped after it.
    OnDemand,
    /// Slots that were mapped before and are cleared between two instances: what lies below
    /// `keep_resident_bytes` by overwriting it, the rest by giving it back to the system.
    #[cfg(feature = "pooling")]
    Pooling { keep_resident_bytes: usize },
}

/// How a fresh memory comes by the component's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// Mapped from one image, page by page, as it is written to.
    CopyOnWrite,
    /// Copied.
    Copied,
}

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

/// An instance after its call, with all that it holds.
pub struct Live(#[expect(dead_code, reason = "held, for what it weighs")] Store<Guest>);

impl BareCall {
    pub fn new(bytes: &[u8], allocation: Allocation, image: Image) -> wasmtime::Result<Self> {
        let engine = Engine::new(&config(allocation, image))?;
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
        self.live().await.map(drop)
    }

    /// The same, and keeps the instance.
    pub async fn live(&self) -> anyhow::Result<Live> {
        let guest = Guest { wasi: WasiCtxBuilder::new().build(), table: ResourceTable::new() };
        let mut store = Store::new(&self.engine, guest);
        store.set_epoch_deadline(1);
        let end = async {
            store.set_fuel(10_000_000_000)?;
            let node = self.pre.instantiate_async(&mut store).await?;
            node.holdpoint_node_handler().call_run(&mut store, &self.context, &self.state).await
        };
        match end.await {
            Err(error) if error.is::<Asked>() => Ok(Live(store)),
            Err(error) => anyhow::bail!("the bare call ended before its question: {error:#}"),
            Ok(_) => anyhow::bail!("the bare call came to an end without a question"),
        }
    }
}

fn config(allocation: Allocation, image: Image) -> Config {
    let mut config = Config::new();
    config
        .consume_fuel(true)
        .epoch_interruption(true)
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(FIBER_STACK_BYTES)
        .memory_init_cow(image == Image::CopyOnWrite);
    match allocation {
        Allocation::OnDemand => {}
        #[cfg(feature = "pooling")]
        Allocation::Pooling { keep_resident_bytes } => {
            let mut pool = wasmtime::PoolingAllocationConfig::new();
            pool.linear_memory_keep_resident(keep_resident_bytes)
                .table_keep_resident(keep_resident_bytes)
                .async_stack_keep_resident(keep_resident_bytes)
                .total_component_instances(128)
                .total_core_instances(1_024)
                .total_memories(128)
                .total_tables(512)
                .total_stacks(128)
                .max_component_instance_size(8 << 20)
                .max_core_instance_size(8 << 20)
                .max_core_instances_per_component(64)
                .max_tables_per_component(64)
                // What the product's limits allow a task.
                .table_elements(100_000)
                .max_memory_size(256 << 20);
            config.allocation_strategy(wasmtime::InstanceAllocationStrategy::Pooling(pool));
        }
    }
    config
}
