//! What wit-bindgen makes of the contract. No name from here appears in the crate's public face.

#![allow(unsafe_code, reason = "generated: the canonical ABI passes pointers")]
#![allow(missing_docs, clippy::all, reason = "generated")]

wit_bindgen::generate!({
    path: "wit",
    world: "node",
    pub_export_macro: true,
    export_macro_name: "export_node",
    default_bindings_module: "::holdpoint_guest::bindings",
});
