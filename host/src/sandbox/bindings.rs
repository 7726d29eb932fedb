//! What wasmtime makes of the contract in `wit/`. No name from here leaves the sandbox.

wasmtime::component::bindgen!({
    path: "../wit",
    world: "node",
    imports: {
        "holdpoint:node/interrupts": async | trappable,
        "holdpoint:node/effects": async | trappable,
        "holdpoint:node/steering": async | trappable,
        default: trappable,
    },
    exports: { default: async },
});
