//! Components written by hand: what no toolchain would emit. Also the tests of the whole host use these.

/// A component around one core module, `core`, which has a memory `memory`, `realloc`, `describe`
/// and `run`; `imports` and `with` give the module more.
pub fn component(imports: &str, with: &str, core: &str) -> Vec<u8> {
    let types = r#"
        (type $send-def (record (field "label" string) (field "arg" string)))
        (import "send" (type $send (eq $send-def)))
        (type $route-def (variant (case "go" string) (case "send" $send) (case "end")))
        (import "route" (type $route (eq $route-def)))
        (type $outcome-def (record (field "update" string) (field "routes" (list $route))))
        (import "outcome" (type $outcome (eq $outcome-def)))
        (type $failure-def (record (field "message" string) (field "detail" (option string))))
        (import "failure" (type $failure (eq $failure-def)))
        (type $node-error-def (variant (case "retry" $failure) (case "fail" $failure)))
        (import "node-error" (type $node-error (eq $node-error-def)))
        (type $context-def (record (field "thread-id" string) (field "run-id" string)
            (field "task-id" string) (field "node" string) (field "path" (list string))
            (field "step" u32) (field "arg" (option string))))
        (import "context" (type $context (eq $context-def)))
        (type $node-info-def (record (field "name" string) (field "version" string)
            (field "reads" (list string)) (field "writes" (list string))
            (field "routes" (list string)) (field "effects" (list string))))
        (import "node-info" (type $node-info (eq $node-info-def)))
    "#;
    let names = ["send", "route", "outcome", "failure", "node-error", "context", "node-info"];
    // The same types three times: as the component's own, and as the face's imports and exports.
    let each = |form: &dyn Fn(&str) -> String, prefix: &str| {
        let text = names.iter().fold(types.to_owned(), |text, name| {
            text.replace(&format!(r#"(import "{name}" (type ${name} (eq ${name}-def)))"#), &form(name))
        });
        text.replace('$', &format!("${prefix}"))
    };
    let own_types = each(&|_| String::new(), "").replace("-def ", " ");
    let shown = each(&|name| format!(r#"(export ${name} "{name}" (type ${name}-def))"#), "x-");
    let given: String = names.iter().map(|name| format!(r#"(with "{name}" (type ${name}))"#)).collect();
    let text = format!(
        r#"(component
            {imports}
            (core module $core {core})
            (core instance $core (instantiate $core {with}))
            {own_types}
            (func $describe (result $node-info)
                (canon lift (core func $core "describe") (memory (core memory $core "memory"))))
            (func $run (param "context" $context) (param "state" string)
                       (result (result $outcome (error $node-error)))
                (canon lift (core func $core "run") (memory (core memory $core "memory"))
                            (realloc (core func $core "realloc"))))
            (component $face
                {types}
                (import "describe" (func $describe (result $node-info)))
                (import "run" (func $run (param "context" $context) (param "state" string)
                                         (result (result $outcome (error $node-error)))))
                {shown}
                (export "describe" (func $describe) (func (result $x-node-info)))
                (export "run" (func $run) (func (param "context" $x-context) (param "state" string)
                                                (result (result $x-outcome (error $x-node-error))))))
            (instance $face (instantiate $face {given}
                (with "describe" (func $describe)) (with "run" (func $run))))
            (export "holdpoint:node/handler@0.1.0" (instance $face)))"#
    );
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A node whose `run` has this body, which leaves the address of its result; `0` is an update of `{}`
/// without routes. `items` are further items of its module.
pub fn node(items: &str, run: &str) -> Vec<u8> {
    component("", "", &module(items, run))
}

pub fn module(items: &str, run: &str) -> String {
    format!(
        r#"
        {items}
        (memory $memory (export "memory") 1)
        (global $free (mut i32) (i32.const 4096))
        ;; At 0 the result: 0 (ok), update at 64 with 2 bytes, no routes. At 128 a description.
        (data (memory $memory) (i32.const 0) "\00\00\00\00\40\00\00\00\02\00\00\00\00\00\00\00\00\00\00\00")
        (data (memory $memory) (i32.const 64) "{{}}")
        (data (memory $memory) (i32.const 128) "\c0\00\00\00\01\00\00\00\c1\00\00\00\01\00\00\00")
        (data (memory $memory) (i32.const 192) "n1")
        (func (export "realloc") (param i32 i32 i32 i32) (result i32)
            (global.get $free)
            (global.set $free (i32.add (global.get $free)
                (i32.and (i32.add (local.get 3) (i32.const 15)) (i32.const -16)))))
        (func (export "describe") (result i32) (i32.const 128))
        (func $run (export "run")
            (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
            {run})"#
    )
}
