//! What wit-bindgen makes of the contract. No name from here appears in the crate's public face.

#![allow(unsafe_code, reason = "generated: the canonical ABI passes pointers")]
#![allow(missing_docs, clippy::all, reason = "generated")]

wit_bindgen::generate!({
    path: "../wit",
    world: "node",
    pub_export_macro: true,
    export_macro_name: "export_node",
    default_bindings_module: "::holdpoint_guest::bindings",
});

/// Comes before every host call, since the generated stand-ins for other targets abort without a word.
pub(crate) fn need_host() {
    if cfg!(not(target_family = "wasm")) {
        panic!("a host call outside of a component: there is no host here to answer it");
    }
}
