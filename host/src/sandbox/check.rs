//! What can be said of a file before it is compiled. Only headers and names are read.

use wasmparser::{ComponentExternalKind, Encoding, Parser, Payload};
use wasmtime::{Engine, Precompiled};

use super::errors::InvalidComponent;

/// Of the names in one error.
const NAMES_SHOWN_MAX: usize = 10;

pub(super) fn check(bytes: &[u8], bytes_max: u64) -> Result<(), InvalidComponent> {
    if bytes.len() as u64 > bytes_max {
        return Err(InvalidComponent::TooLarge { limit: bytes_max, value: bytes.len() as u64 });
    }
    if let Some(Precompiled::Component | Precompiled::Module) = Engine::detect_precompiled(bytes) {
        return Err(InvalidComponent::Precompiled);
    }
    if !bytes.starts_with(b"\0asm") {
        return Err(InvalidComponent::NotWasm { found: found(bytes) });
    }
    let malformed =
        |error: wasmparser::BinaryReaderError| InvalidComponent::Malformed { what: error.to_string() };
    let mut forbidden = Vec::new();
    let mut exports = Vec::new();
    let mut has_handler = false;
    // Of the module or component that the payload belongs to; the component itself has 1.
    let mut depth = 0;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(malformed)? {
            Payload::Version { encoding, .. } => {
                if depth == 0 && encoding == Encoding::Module {
                    return Err(InvalidComponent::CoreModule);
                }
                depth += 1;
            }
            Payload::End(_) => depth -= 1,
            Payload::ComponentImportSection(imports) if depth == 1 => {
                for import in imports {
                    let name = import.map_err(malformed)?.name.name;
                    if !is_allowed(name) && forbidden.len() < NAMES_SHOWN_MAX {
                        forbidden.push(shown(name));
                    }
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    let export = export.map_err(malformed)?;
                    let name = export.name.name;
                    has_handler |= export.kind == ComponentExternalKind::Instance && is_handler(name);
                    if exports.len() < NAMES_SHOWN_MAX {
                        exports.push(shown(name));
                    }
                }
            }
            _ => {}
        }
    }
    if !forbidden.is_empty() {
        return Err(InvalidComponent::ForbiddenImports { names: forbidden });
    }
    if !has_handler {
        let exports = if exports.is_empty() { "nothing".to_owned() } else { exports.join(", ") };
        return Err(InvalidComponent::NoHandler { exports });
    }
    Ok(())
}

pub(super) fn is_allowed(import: &str) -> bool {
    let Some((package, interface, version)) = parts(import) else {
        return false;
    };
    match package {
        "holdpoint:node" => {
            matches!(interface, "types" | "interrupts" | "effects" | "steering" | "log" | "events")
                && is_patch_of(version, "0.1.")
        }
        "wasi:io" | "wasi:clocks" | "wasi:random" | "wasi:cli" | "wasi:filesystem" | "wasi:sockets" => {
            is_patch_of(version, "0.2.")
        }
        _ => false,
    }
}

fn is_handler(export: &str) -> bool {
    parts(export).is_some_and(|(package, interface, version)| {
        package == "holdpoint:node" && interface == "handler" && is_patch_of(version, "0.1.")
    })
}

/// `package/interface@version`
fn parts(name: &str) -> Option<(&str, &str, &str)> {
    let (path, version) = name.split_once('@')?;
    let (package, interface) = path.split_once('/')?;
    Some((package, interface, version))
}

fn is_patch_of(version: &str, prefix: &str) -> bool {
    version
        .strip_prefix(prefix)
        .is_some_and(|patch| !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit()))
}

fn shown(name: &str) -> String {
    name.chars().take(120).flat_map(char::escape_debug).collect()
}

/// What a file is that is no WebAssembly, in words that help whoever picked the wrong one.
fn found(bytes: &[u8]) -> &'static str {
    const KNOWN: [(&[u8], &str); 10] = [
        (b"\x7fELF", "a native program or library"),
        (b"MZ", "a Windows program"),
        (b"\x89PNG", "an image (PNG)"),
        (b"\xff\xd8\xff", "an image (JPEG)"),
        (b"GIF8", "an image (GIF)"),
        (b"%PDF", "a PDF document"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\x1f\x8b", "a gzip archive"),
        (b"(module", "WebAssembly text (build its binary form first)"),
        (b"(component", "WebAssembly text (build its binary form first)"),
    ];
    if bytes.is_empty() {
        return "an empty file";
    }
    if b"\0asm".starts_with(bytes) {
        return "the first bytes of a WebAssembly file";
    }
    for (start, what) in KNOWN {
        if bytes.starts_with(start) {
            return what;
        }
    }
    match std::str::from_utf8(&bytes[..bytes.len().min(512)]) {
        Ok(_) => "a text file",
        Err(error) if error.error_len().is_none() => "a text file",
        Err(_) => "a file of some other kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1 << 20;

    fn refused(bytes: &[u8]) -> InvalidComponent {
        check(bytes, LIMIT).unwrap_err()
    }

    fn component(text: &str) -> Vec<u8> {
        wat::parse_str(text).unwrap()
    }

    #[test]
    fn what_is_no_component_is_refused_by_name() {
        for (bytes, word) in [
            (&b""[..], "empty file"),
            (b"\0as", "first bytes"),
            (b"\x89PNG\r\n\x1a\n....", "image (PNG)"),
            (b"\x7fELF\x02\x01\x01", "native program"),
            (b"(component)", "WebAssembly text"),
            (b"name = \"refund\"", "a text file"),
            (b"\x00\x01\xfe\xff", "some other kind"),
        ] {
            let message = refused(bytes).to_string();
            assert!(message.contains(word), "{message}");
        }
        assert_eq!(refused(&component("(module)")), InvalidComponent::CoreModule);
        let huge = vec![0; LIMIT as usize + 1];
        assert_eq!(refused(&huge), InvalidComponent::TooLarge { limit: LIMIT, value: LIMIT + 1 });
    }

    #[test]
    fn a_precompiled_artifact_is_refused() {
        let artifact = Engine::default().precompile_component(&component("(component)")).unwrap();
        assert_eq!(refused(&artifact), InvalidComponent::Precompiled);
    }

    #[test]
    fn a_component_that_is_cut_short_is_refused() {
        let whole = component("(component (core module (func (export \"f\") i32.const 1 drop)))");
        for length in 8..whole.len() {
            let refused = refused(&whole[..length]);
            let cut_between_sections = matches!(refused, InvalidComponent::NoHandler { .. });
            assert!(
                cut_between_sections || matches!(refused, InvalidComponent::Malformed { .. }),
                "{length}: {refused}"
            );
        }
    }

    #[test]
    fn each_forbidden_import_is_named() {
        let error = refused(&component(
            r#"(component
                (import "wasi:http/types@0.2.0" (instance))
                (import "wasi:io/streams@0.2.6" (instance))
                (import "wasi:io/streams@0.3.0" (instance))
                (import "holdpoint:node/log@0.1.7" (instance))
                (import "holdpoint:node/secrets@0.1.0" (instance))
                (import "holdpoint:node/log@0.2.0" (instance))
                (import "run" (func)))"#,
        ));
        let InvalidComponent::ForbiddenImports { names } = &error else { panic!("{error}") };
        assert_eq!(
            names,
            &[
                "wasi:http/types@0.2.0",
                "wasi:io/streams@0.3.0",
                "holdpoint:node/secrets@0.1.0",
                "holdpoint:node/log@0.2.0",
                "run"
            ]
        );
    }

    #[test]
    fn a_component_without_a_handler_is_refused() {
        let error = refused(&component(r#"(component (instance $i) (export "a:b/c@1.0.0" (instance $i)))"#));
        assert_eq!(error, InvalidComponent::NoHandler { exports: "a:b/c@1.0.0".into() });
        check(
            &component(r#"(component (instance $i) (export "holdpoint:node/handler@0.1.0" (instance $i)))"#),
            LIMIT,
        )
        .unwrap();
    }

    #[test]
    fn an_import_of_a_nested_component_is_its_own_affair() {
        let error = refused(&component(r#"(component (component (import "anything" (func))))"#));
        assert_eq!(error, InvalidComponent::NoHandler { exports: "nothing".into() });
    }
}
