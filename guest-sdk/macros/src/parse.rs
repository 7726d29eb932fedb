//! Reads the attribute and the function under it, and says of every mistake what to write instead.

use proc_macro2::{Span, TokenStream};
use syn::{
    Error, Expr, ExprArray, ExprLit, FnArg, Ident, ItemFn, Lit, LitStr, MetaNameValue, Result, ReturnType,
    Signature, Token, Type, parse::Parser, punctuated::Punctuated, spanned::Spanned,
};

/// A node that makes sense.
pub struct Node {
    pub declared: Declared,
    pub function: ItemFn,
    pub input: Type,
    pub output: Type,
    pub takes_context: bool,
}

/// What the attribute says.
#[derive(Default)]
pub struct Declared {
    pub name: Option<LitStr>,
    pub version: Option<LitStr>,
    pub reads: Vec<LitStr>,
    pub writes: Vec<LitStr>,
    pub routes: Vec<LitStr>,
    pub effects: Vec<LitStr>,
}

pub fn node(attribute: TokenStream, item: TokenStream) -> Result<Node> {
    let mut mistakes = Mistakes::default();
    let declared = mistakes.keep(declared(attribute));
    let function = mistakes.keep(function(item));
    mistakes.none()?;
    let (declared, (function, input, output, takes_context)) =
        declared.zip(function).expect("what is missing is a mistake, and there is none");
    Ok(Node { declared, function, input, output, takes_context })
}

fn declared(attribute: TokenStream) -> Result<Declared> {
    let entries =
        Punctuated::<MetaNameValue, Token![,]>::parse_terminated.parse2(attribute).map_err(|why| {
            Error::new(
                why.span(),
                "write `key = value`, as in `#[node(reads = [\"labels\"], writes = [\"decision\"])]`",
            )
        })?;
    let mut mistakes = Mistakes::default();
    let mut declared = Declared::default();
    let mut seen: Vec<&Ident> = Vec::new();
    for MetaNameValue { path, value, .. } in &entries {
        let Some(key) = path.get_ident() else {
            mistakes.add(path.span(), UNKNOWN_KEY);
            continue;
        };
        if seen.contains(&key) {
            mistakes
                .add(key.span(), &format!("`{key}` is there twice: write one `{key}` with everything in it"));
            continue;
        }
        seen.push(key);
        match key.to_string().as_str() {
            "name" => declared.name = mistakes.keep(text(key, value)),
            "version" => declared.version = mistakes.keep(text(key, value)),
            "reads" => declared.reads = names(key, value, &mut mistakes),
            "writes" => declared.writes = names(key, value, &mut mistakes),
            "routes" => declared.routes = names(key, value, &mut mistakes),
            "effects" => declared.effects = names(key, value, &mut mistakes),
            _ => mistakes.add(key.span(), UNKNOWN_KEY),
        }
    }
    mistakes.none()?;
    Ok(declared)
}

const UNKNOWN_KEY: &str =
    "a node declares `reads`, `writes`, `routes`, `effects`, `name` and `version`: write one of these";

fn text(key: &Ident, value: &Expr) -> Result<LitStr> {
    match string(value) {
        Some(text) if !text.value().is_empty() => Ok(text.clone()),
        _ => Err(Error::new(value.span(), format!("write a string: `{key} = \"…\"`"))),
    }
}

fn names(key: &Ident, value: &Expr, mistakes: &mut Mistakes) -> Vec<LitStr> {
    let Expr::Array(ExprArray { elems, .. }) = value else {
        let shown = string(value).map_or_else(|| "…".to_owned(), LitStr::value);
        mistakes.add(value.span(), &format!("write a list: `{key} = [\"{shown}\"]`"));
        return Vec::new();
    };
    let mut names: Vec<LitStr> = Vec::new();
    for element in elems {
        let Some(name) = string(element) else {
            mistakes.add(element.span(), &format!("write each name as a string: `{key} = [\"…\"]`"));
            continue;
        };
        if name.value().is_empty() {
            mistakes.add(name.span(), "a name has at least one character");
        } else if names.iter().any(|before| before.value() == name.value()) {
            mistakes.add(name.span(), &format!("\"{}\" is in `{key}` already: write it once", name.value()));
        } else {
            names.push(name.clone());
        }
    }
    names
}

fn string(value: &Expr) -> Option<&LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text),
        _ => None,
    }
}

fn function(item: TokenStream) -> Result<(ItemFn, Type, Type, bool)> {
    let function: ItemFn = syn::parse2(item).map_err(|why| {
        Error::new(why.span(), "`#[node]` goes on a function with a body: `fn approve(input: Input) -> Result<Output, NodeError> { … }`")
    })?;
    let signature = &function.sig;
    let mut mistakes = Mistakes::default();
    if let Some(word) = &signature.asyncness {
        mistakes.add(
            word.span(),
            "a node is not async: remove `async`; `interrupt(…)?` and `effect(…)?` wait by themselves",
        );
    }
    if let Some(word) = &signature.unsafety {
        mistakes.add(
            word.span(),
            "a node is called by the host, which knows nothing of your invariants: remove `unsafe`",
        );
    }
    if let Some(abi) = &signature.abi {
        mistakes.add(abi.span(), "`#[node]` makes the export itself: remove `extern`");
    }
    if !signature.generics.params.is_empty() {
        mistakes.add(
            signature.generics.span(),
            "a node is one component with one input: write the types out, without generics",
        );
    } else if let Some(clause) = &signature.generics.where_clause {
        mistakes.add(
            clause.span(),
            "a node has no generics, so there is nothing to say about them: remove `where`",
        );
    }
    let output = mistakes.keep(output(signature));
    let arguments = mistakes.keep(arguments(signature));
    mistakes.none()?;
    let (output, (input, takes_context)) =
        output.zip(arguments).expect("what is missing is a mistake, and there is none");
    Ok((function, input, output, takes_context))
}

fn output(signature: &Signature) -> Result<Type> {
    match &signature.output {
        ReturnType::Type(_, output) => Ok((**output).clone()),
        ReturnType::Default => Err(Error::new(
            signature.paren_token.span.close(),
            "a node says what it returns: write `-> Result<Output, NodeError>`, or `-> Result<(), NodeError>` if it writes nothing",
        )),
    }
}

fn arguments(signature: &Signature) -> Result<(Type, bool)> {
    const SHAPE: &str = "a node takes `(input: Input)` or `(input: Input, context: &Context)`";
    let types: Vec<&Type> = signature
        .inputs
        .iter()
        .map(|argument| match argument {
            FnArg::Typed(argument) => Ok(&*argument.ty),
            FnArg::Receiver(receiver) => {
                Err(Error::new(receiver.span(), format!("a node is a free function: {SHAPE}")))
            }
        })
        .collect::<Result<_>>()?;
    let (input, context) = match types.as_slice() {
        [] => {
            return Err(Error::new(
                signature.paren_token.span.join(),
                format!("{SHAPE}; write `input: Value` if the type does not matter"),
            ));
        }
        [input] => (*input, None),
        [input, context] => (*input, Some(*context)),
        [_, _, more, ..] => {
            return Err(Error::new(
                more.span(),
                format!("{SHAPE}: read more state by more fields of the input"),
            ));
        }
    };
    match input {
        Type::Reference(_) => {
            return Err(Error::new(input.span(), "a node owns its input: write `input: Input`, without `&`"));
        }
        Type::ImplTrait(_) => {
            return Err(Error::new(
                input.span(),
                "a node is one component with one input: write the type out, without `impl`",
            ));
        }
        _ => {}
    }
    if let Some(context) = context {
        match context {
            Type::Reference(reference) if reference.mutability.is_none() => {}
            _ => {
                return Err(Error::new(
                    context.span(),
                    "the second argument is the context: write `context: &Context`",
                ));
            }
        }
    }
    Ok((input.clone(), context.is_some()))
}

/// Everything that is wrong, so that one compilation shows it all.
#[derive(Default)]
struct Mistakes(Option<Error>);

impl Mistakes {
    fn add(&mut self, at: Span, say: &str) {
        self.combine(Error::new(at, say));
    }

    fn keep<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|mistake| self.combine(mistake)).ok()
    }

    fn combine(&mut self, mistake: Error) {
        match &mut self.0 {
            Some(mistakes) => mistakes.combine(mistake),
            none => *none = Some(mistake),
        }
    }

    fn none(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}
