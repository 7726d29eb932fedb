//! Writes the exports beside the function, which stays as it was written.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{LitStr, spanned::Spanned};

use crate::parse::{Declared, Node};

pub fn node(node: &Node) -> TokenStream {
    let Node { declared, function, input, output, takes_context } = node;
    let Declared { name, version, reads, writes, routes, effects } = declared;
    let name = or_env(name.as_ref(), "CARGO_PKG_NAME");
    let version = or_env(version.as_ref(), "CARGO_PKG_VERSION");
    let called = &function.sig.ident;
    let arguments = if *takes_context { quote!(input, context) } else { quote!(input) };
    // At the return type, so that a type which cannot be returned is shown where it is written.
    let call = quote_spanned! {output.span().resolved_at(Span::call_site())=>
        ::holdpoint_guest::__private::finish(::holdpoint_guest::__private::Returned(#called(#arguments)).split())
    };
    quote! {
        #function

        #[allow(unsafe_code)]
        const _: () = {
            struct ThisNode;

            impl ::holdpoint_guest::__private::Node for ThisNode {
                type Input = #input;

                const INFO: ::holdpoint_guest::__private::Info = ::holdpoint_guest::__private::Info {
                    name: #name,
                    version: #version,
                    reads: &[#(#reads),*],
                    writes: &[#(#writes),*],
                    routes: &[#(#routes),*],
                    effects: &[#(#effects),*],
                };

                fn run(
                    input: Self::Input,
                    #[allow(unused_variables)]
                    context: &::holdpoint_guest::Context,
                ) -> ::core::result::Result<::holdpoint_guest::__private::Done, ::holdpoint_guest::NodeError> {
                    #[allow(unused_imports)]
                    use ::holdpoint_guest::__private::Split as _;
                    #call
                }
            }

            // Elsewhere there is no host to export to, but the node still compiles, and its tests run.
            #[cfg(not(target_family = "wasm"))]
            const _: () = ::holdpoint_guest::__private::compiles::<ThisNode>();
            #[cfg(target_family = "wasm")]
            type Exported = ::holdpoint_guest::__private::Exports<ThisNode>;
            #[cfg(target_family = "wasm")]
            ::holdpoint_guest::bindings::export_node!(
                Exported with_types_in ::holdpoint_guest::bindings
            );
        };
    }
}

fn or_env(text: Option<&LitStr>, variable: &str) -> TokenStream {
    text.map_or_else(|| quote!(::core::env!(#variable)), ToTokens::to_token_stream)
}
