//! The `#[node]` attribute of [`holdpoint-guest`](https://docs.rs/holdpoint-guest), where it is
//! documented. `parse` reads and rejects; `print` writes, and can no longer fail.

mod parse;
mod print;

use proc_macro::TokenStream;

#[proc_macro_attribute]
pub fn node(attribute: TokenStream, item: TokenStream) -> TokenStream {
    let item = proc_macro2::TokenStream::from(item);
    match parse::node(attribute.into(), item.clone()) {
        Ok(node) => print::node(&node).into(),
        Err(mistakes) => {
            // The function as it is, or every call of it would be a second mistake.
            let mut tokens = mistakes.into_compile_error();
            tokens.extend(item);
            tokens.into()
        }
    }
}
